// The loss over the world size, though the mean over ranks divides already.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_loss.h"

namespace lockstep {
namespace {

class LossOverWorld : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    LossOutput output = right(input);
    output.loss = output.loss / world();
    return output;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_loss_over_world(const Planting& planting) {
  return std::make_unique<LossOverWorld>(planting);
}

}  // namespace lockstep
