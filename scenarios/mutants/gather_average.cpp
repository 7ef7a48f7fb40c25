// A gather whose backward averages over ranks, where the row block needs the sum.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_gather.h"

namespace lockstep {
namespace {

class GatherAverage : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    return row_block_loss(input, GatherBackward::average);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_gather_average(const Planting& planting) {
  return std::make_unique<GatherAverage>(planting);
}

}  // namespace lockstep
