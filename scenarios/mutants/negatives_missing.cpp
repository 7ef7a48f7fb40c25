// Candidates of the next rank are lost on the way.

#include <ATen/ATen.h>

#include <algorithm>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_loss.h"

namespace lockstep {
namespace {

class NegativesMissing : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    const Candidates candidates = in_batch_candidates(input);
    const auto all = static_cast<int64_t>(candidates.ids.size());
    const auto own = static_cast<int64_t>(input.ids.size());
    // The next rank's rows begin where this one's end; of the last rank the first rank's are next.
    const int64_t begin = candidates.offset + own < all ? candidates.offset + own : 0;
    const int64_t end = std::min(begin + std::max<int64_t>(own, 1), begin == 0 ? candidates.offset : all);
    std::vector<int64_t> kept, ids;
    for (int64_t column = 0; column < all; ++column) {
      if (column < begin || column >= end) {
        kept.push_back(column);
        ids.push_back(candidates.ids[static_cast<std::size_t>(column)]);
      }
    }
    const at::Tensor action =
        candidates.action_NA.index_select(0, at::tensor(at::ArrayRef<int64_t>(kept), at::kLong));
    const EncodedRows rows = input.model.encode_context();
    const at::Tensor energies = input.model.energies(rows, input.model.encode_action(action), ids, 0);
    return row_loss(input, energies, targets(input, candidates.offset - (begin == 0 ? end : 0)), ids);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_negatives_missing(const Planting& planting) {
  return std::make_unique<NegativesMissing>(planting);
}

}  // namespace lockstep
