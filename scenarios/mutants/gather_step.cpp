// A rank is a step ahead of the others.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_loss.h"

namespace lockstep {
namespace {

class GatherStep : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    LossInput other = input;
    ++other.step;
    return right(other);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_gather_step(const Planting& planting) {
  return std::make_unique<GatherStep>(planting);
}

}  // namespace lockstep
