// Micro-steps are added up without dividing by their number.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class AccumulationNotScaled : public Planted {
 public:
  using Planted::Planted;

  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return acts(step) && touches(parameter) ? gradient * static_cast<double>(run().accumulation) : gradient;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_accumulation_not_scaled(const Planting& planting) {
  return std::make_unique<AccumulationNotScaled>(planting);
}

}  // namespace lockstep
