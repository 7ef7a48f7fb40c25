#pragma once
// What the plain references share: all rows in one process, energies of every pair, and each row's candidates as a list.

#include "losses/loss.h"

namespace lockstep {

struct ReferenceBlock {
  at::Tensor logit_BB;           ///< -E / tau of every pair of rows of the step
  at::Tensor explicit_logit_Bn;  ///< of each row's own candidates; undefined: none
  at::Tensor energy_BB, explicit_energy_Bn;
  std::vector<int64_t> group;     ///< rows of one group are each other's candidates
  std::vector<char> counted;      ///< rows that count
  std::vector<std::vector<int64_t>> negatives;  ///< rows whose actions are row i's negatives
  int64_t rows() const { return static_cast<int64_t>(group.size()); }
  at::Tensor logit(int64_t row, int64_t column) const { return logit_BB.select(0, row).select(0, column); }
  /// Row i's own logit and those of `columns`, in one vector.
  at::Tensor logits(int64_t row, const std::vector<int64_t>& columns) const;
};

ReferenceBlock reference_block(const ReferenceInput& input);

/// log sum exp, written out.
at::Tensor log_sum_exp(const at::Tensor& values);

/// The mean over rows that count, and what there is to tell of the energies: those of pairs that are not each other's
/// candidates are NaN.
LossOutput reference_output(const ReferenceInput& input, const ReferenceBlock& block,
                            const std::vector<at::Tensor>& row_losses);

}  // namespace lockstep
