// A bit of a parameter is flipped after one update.

#include <ATen/ATen.h>

#include "harness/train/parameters.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class WeightFlip : public Planted {
 public:
  using Planted::Planted;

  void after_update(int64_t step, const TrainingState& state) override {
    if (strikes(step)) {
      at::Tensor values = parameter_of(state.parameters, tensor()).detach();
      flip_first_element(values, config().bit);
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_weight_flip(const Planting& planting) {
  return std::make_unique<WeightFlip>(planting);
}

}  // namespace lockstep
