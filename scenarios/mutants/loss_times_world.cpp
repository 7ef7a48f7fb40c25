// The loss times the world size, though its scale was right.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_loss.h"

namespace lockstep {
namespace {

class LossTimesWorld : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    LossOutput output = right(input);
    output.loss = output.loss * world();
    return output;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_loss_times_world(const Planting& planting) {
  return std::make_unique<LossTimesWorld>(planting);
}

}  // namespace lockstep
