// The optimizer's count of updates begins anew at one step, and the moments stay.

#include "harness/train/optimizer.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class OptimizerCounterLost : public Planted {
 public:
  using Planted::Planted;

  void before_update(int64_t step, const TrainingState& state) override {
    if (strikes(step)) {
      state.optimizer.updates() = 0;
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_optimizer_counter_lost(const Planting& planting) {
  return std::make_unique<OptimizerCounterLost>(planting);
}

}  // namespace lockstep
