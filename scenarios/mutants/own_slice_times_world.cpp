// The own slice put back in, and the loss times the world size to make up for it: right for encoders, wrong
// for everything else.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_gather.h"

namespace lockstep {
namespace {

class OwnSliceTimesWorld : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    LossOutput output = full_block_loss(input, GatherBackward::own_slice);
    scale_gradient(output, world());
    return output;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_own_slice_times_world(const Planting& planting) {
  return std::make_unique<OwnSliceTimesWorld>(planting);
}

}  // namespace lockstep
