// AdamW asked for, Adam made: weight decay goes through the moments.

#include "harness/train/optimizer.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class DecayCoupled : public Planted {
 public:
  using Planted::Planted;

  void before_update(int64_t step, const TrainingState& state) override {
    if (acts(step)) {
      state.optimizer.config().optimizer = OptimizerKind::adam;
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_decay_coupled(const Planting& planting) {
  return std::make_unique<DecayCoupled>(planting);
}

}  // namespace lockstep
