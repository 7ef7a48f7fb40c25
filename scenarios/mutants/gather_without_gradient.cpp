// Every rank computes the whole block over plainly gathered encodings: the gather has no backward, so
// encoders learn nothing.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_gather.h"

namespace lockstep {
namespace {

class GatherWithoutGradient : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override { return full_block_loss(input, GatherBackward::none); }
};

}  // namespace

std::unique_ptr<Mutant> make_gather_without_gradient(const Planting& planting) {
  return std::make_unique<GatherWithoutGradient>(planting);
}

}  // namespace lockstep
