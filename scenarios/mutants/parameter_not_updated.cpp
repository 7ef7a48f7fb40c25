// One parameter is missing from the optimizer.

#include <ATen/ATen.h>

#include "harness/train/parameters.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class ParameterNotUpdated : public Planted {
 public:
  using Planted::Planted;

  void before_update(int64_t step, const TrainingState& state) override {
    if (acts(step)) {
      kept_ = parameter_of(state.parameters, tensor()).detach().clone();
    }
  }
  void after_update(int64_t step, const TrainingState& state) override {
    if (acts(step)) {
      parameter_of(state.parameters, tensor()).detach().copy_(kept_);
    }
  }

 private:
  at::Tensor kept_;
};

}  // namespace

std::unique_ptr<Mutant> make_parameter_not_updated(const Planting& planting) {
  return std::make_unique<ParameterNotUpdated>(planting);
}

}  // namespace lockstep
