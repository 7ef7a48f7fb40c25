// Gradients are summed over the ranks and not divided.

#include <ATen/ATen.h>

#include "harness/train/parameters.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class GradientSum : public Planted {
 public:
  using Planted::Planted;

  void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
    for (at::Tensor& parameter : parameters.tensors) {
      if (acts(step)) {
        parameter.mutable_grad().mul_(world());
      }
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_gradient_sum(const Planting& planting) {
  return std::make_unique<GradientSum>(planting);
}

}  // namespace lockstep
