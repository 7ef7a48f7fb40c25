// Labels count from 0 on every rank: beyond the first, rows are drawn to the rows of rank 0.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_loss.h"

namespace lockstep {
namespace {

class LabelOffset : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    const Candidates candidates = in_batch_candidates(input);
    const EncodedRows rows = input.model.encode_context();
    const at::Tensor energies =
        input.model.energies(rows, input.model.encode_action(candidates.action_NA), candidates.ids, 0);
    return row_loss(input, energies, targets(input, 0), candidates.ids);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_label_offset(const Planting& planting) {
  return std::make_unique<LabelOffset>(planting);
}

}  // namespace lockstep
