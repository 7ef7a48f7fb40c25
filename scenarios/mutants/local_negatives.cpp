// Candidates of this rank alone, where those of all ranks were asked for.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_loss.h"

namespace lockstep {
namespace {

class LocalNegatives : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    LossInput local = input;
    local.options.local = true;
    return right(local);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_local_negatives(const Planting& planting) {
  return std::make_unique<LocalNegatives>(planting);
}

}  // namespace lockstep
