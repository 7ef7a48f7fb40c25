// Gathered encodings with the own slice put back in, whole block on every rank: encoders get 1 / world size
// of their gradient.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_gather.h"

namespace lockstep {
namespace {

class OwnSlice : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    return full_block_loss(input, GatherBackward::own_slice);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_own_slice(const Planting& planting) {
  return std::make_unique<OwnSlice>(planting);
}

}  // namespace lockstep
