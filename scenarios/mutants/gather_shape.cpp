// A rank sends actions of another shape.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_loss.h"

namespace lockstep {
namespace {

class GatherShape : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    LossInput other = input;
    other.action_BA = input.action_BA.narrow(1, 0, input.action_BA.size(1) - 1);
    return right(other);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_gather_shape(const Planting& planting) {
  return std::make_unique<GatherShape>(planting);
}

}  // namespace lockstep
