// The schedule is stepped once a rank instead of once a step.

#include <algorithm>

#include "harness/train/optimizer.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class SchedulerPerRank : public Planted {
 public:
  using Planted::Planted;

  double learning_rate(int64_t step, double rate) override {
    if (!acts(step)) {
      return rate;
    }
    const int64_t stepped = config().step + (step - config().step + 1) * run().layout.world_size - 1;
    return lockstep::learning_rate(run(), std::min(stepped, run().steps));
  }
};

}  // namespace

std::unique_ptr<Mutant> make_scheduler_per_rank(const Planting& planting) {
  return std::make_unique<SchedulerPerRank>(planting);
}

}  // namespace lockstep
