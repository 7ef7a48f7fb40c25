// Local gradients over the world size, though their reduction is a mean.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class GradientOverWorld : public Planted {
 public:
  using Planted::Planted;

  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return acts(step) && touches(parameter) ? gradient / world() : gradient;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_gradient_over_world(const Planting& planting) {
  return std::make_unique<GradientOverWorld>(planting);
}

}  // namespace lockstep
