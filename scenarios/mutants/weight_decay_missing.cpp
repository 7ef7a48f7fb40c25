// Weight decay is configured and does not reach the optimizer.

#include "harness/train/optimizer.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class WeightDecayMissing : public Planted {
 public:
  using Planted::Planted;

  void before_update(int64_t step, const TrainingState& state) override {
    if (acts(step)) {
      state.optimizer.config().weight_decay = 0;
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_weight_decay_missing(const Planting& planting) {
  return std::make_unique<WeightDecayMissing>(planting);
}

}  // namespace lockstep
