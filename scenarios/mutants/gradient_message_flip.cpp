// A bit of a reduced gradient is flipped where it arrives, at one step.

#include <ATen/ATen.h>

#include "harness/train/parameters.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class GradientMessageFlip : public Planted {
 public:
  using Planted::Planted;

  void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
    if (strikes(step)) {
      flip_first_element(parameter_of(parameters, tensor()).mutable_grad(), config().bit);
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_gradient_message_flip(const Planting& planting) {
  return std::make_unique<GradientMessageFlip>(planting);
}

}  // namespace lockstep
