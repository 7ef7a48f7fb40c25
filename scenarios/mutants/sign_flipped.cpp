// Gradients with the wrong sign.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class SignFlipped : public Planted {
 public:
  using Planted::Planted;

  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return acts(step) && touches(parameter) ? -gradient : gradient;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_sign_flipped(const Planting& planting) {
  return std::make_unique<SignFlipped>(planting);
}

}  // namespace lockstep
