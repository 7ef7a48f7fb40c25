// A rank sends actions of another type.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_loss.h"

namespace lockstep {
namespace {

class GatherDtype : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    LossInput other = input;
    other.action_BA = input.action_BA.to(run().precision == Precision::float64 ? at::kFloat : at::kDouble);
    return right(other);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_gather_dtype(const Planting& planting) {
  return std::make_unique<GatherDtype>(planting);
}

}  // namespace lockstep
