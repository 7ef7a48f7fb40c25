// One element of one gradient is not a number, at one step.

#include <ATen/ATen.h>

#include <limits>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class NanGradient : public Planted {
 public:
  using Planted::Planted;

  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    if (!strikes(step) || parameter != tensor()) {
      return gradient;
    }
    at::Tensor broken = gradient.clone(at::MemoryFormat::Contiguous);
    broken.view({-1}).narrow(0, 0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
    return broken;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_nan_gradient(const Planting& planting) {
  return std::make_unique<NanGradient>(planting);
}

}  // namespace lockstep
