// Gradients times a factor: the world size multiplied in once too often, or a loss that was not averaged.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class GradScale : public Planted {
 public:
  using Planted::Planted;

  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    // `tensor` may name one parameter, or a whole group by its prefix.
    if (step < config().step || !parameter.starts_with(config().tensor)) {
      return gradient;
    }
    return gradient * config().factor;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_grad_scale(const Planting& planting) {
  return std::make_unique<GradScale>(planting);
}

}  // namespace lockstep
