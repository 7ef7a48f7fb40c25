// The sum is divided by a world size from before a rank left.

#include <ATen/ATen.h>

#include "harness/train/parameters.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class DividedByWrongWorld : public Planted {
 public:
  using Planted::Planted;

  void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
    for (at::Tensor& parameter : parameters.tensors) {
      if (acts(step)) {
        parameter.mutable_grad().mul_(world() / (world() + 1));
      }
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_divided_by_wrong_world(const Planting& planting) {
  return std::make_unique<DividedByWrongWorld>(planting);
}

}  // namespace lockstep
