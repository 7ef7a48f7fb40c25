// Every rank draws its own initial parameters and nobody broadcasts.

#include <ATen/ATen.h>

#include "harness/train/parameters.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class InitialWeightsDiffer : public Planted {
 public:
  using Planted::Planted;

  bool initial_parameters(ParameterList& parameters) override {
    for (at::Tensor& parameter : parameters.tensors) {
      if (parameter.numel() > 1) {
        parameter.detach().copy_(parameter.detach().reshape({-1}).roll(rank()).view_as(parameter));
      }
    }
    return false;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_initial_weights_differ(const Planting& planting) {
  return std::make_unique<InitialWeightsDiffer>(planting);
}

}  // namespace lockstep
