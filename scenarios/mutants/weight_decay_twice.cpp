// Weight decay by the optimizer and by hand.

#include "harness/train/optimizer.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class WeightDecayTwice : public Planted {
 public:
  using Planted::Planted;

  void before_update(int64_t step, const TrainingState& state) override {
    if (acts(step)) {
      state.optimizer.config().weight_decay = 2 * run().weight_decay;
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_weight_decay_twice(const Planting& planting) {
  return std::make_unique<WeightDecayTwice>(planting);
}

}  // namespace lockstep
