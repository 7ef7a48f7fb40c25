// Gradients are divided by the world size once more after their mean.

#include <ATen/ATen.h>

#include "harness/train/parameters.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class MeanTakenTwice : public Planted {
 public:
  using Planted::Planted;

  void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
    for (at::Tensor& parameter : parameters.tensors) {
      if (acts(step)) {
        parameter.mutable_grad().div_(world());
      }
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_mean_taken_twice(const Planting& planting) {
  return std::make_unique<MeanTakenTwice>(planting);
}

}  // namespace lockstep
