// A plain gather of encoded candidates under the row block: the action encoder gets no gradient.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_gather.h"

namespace lockstep {
namespace {

class CandidatesDetached : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override { return row_block_loss(input, GatherBackward::none); }
};

}  // namespace

std::unique_ptr<Mutant> make_candidates_detached(const Planting& planting) {
  return std::make_unique<CandidatesDetached>(planting);
}

}  // namespace lockstep
