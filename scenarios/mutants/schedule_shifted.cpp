// The schedule is stepped before the update instead of behind it: one step ahead.

#include "harness/train/optimizer.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class ScheduleShifted : public Planted {
 public:
  using Planted::Planted;

  double learning_rate(int64_t step, double rate) override {
    return acts(step) ? lockstep::learning_rate(run(), step + 1) : rate;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_schedule_shifted(const Planting& planting) {
  return std::make_unique<ScheduleShifted>(planting);
}

}  // namespace lockstep
