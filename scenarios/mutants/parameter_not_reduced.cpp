// One parameter was not registered with the reducer: every rank keeps its own gradient of it.

#include <ATen/ATen.h>

#include "harness/train/parameters.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class ParameterNotReduced : public Planted {
 public:
  using Planted::Planted;

  at::Tensor sent_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    if (acts(step) && parameter == tensor()) {
      local_ = gradient.clone();
    }
    return gradient;
  }
  void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
    if (acts(step)) {
      parameter_of(parameters, tensor()).mutable_grad().copy_(local_);
    }
  }

 private:
  at::Tensor local_;
};

}  // namespace

std::unique_ptr<Mutant> make_parameter_not_reduced(const Planting& planting) {
  return std::make_unique<ParameterNotReduced>(planting);
}

}  // namespace lockstep
