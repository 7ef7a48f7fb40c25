// A gather whose backward keeps the own slice under the row block: pulls without the pushes of other ranks.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_gather.h"

namespace lockstep {
namespace {

class SlicedBackward : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    return row_block_loss(input, GatherBackward::own_slice);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_sliced_backward(const Planting& planting) {
  return std::make_unique<SlicedBackward>(planting);
}

}  // namespace lockstep
