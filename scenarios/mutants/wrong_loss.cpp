#include "scenarios/mutants/wrong_loss.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "losses/block.h"
#include "losses/infonce.h"

namespace lockstep {

at::Tensor targets(const LossInput& input, int64_t offset) {
  return at::arange(offset + input.first_row, offset + input.end_row, at::kLong);
}

at::Tensor targets_of_rank_0(const LossInput& input, const Candidates& candidates) {
  if (candidates.owners.empty()) return targets(input, 0);
  std::vector<int64_t> first;
  for (std::size_t column = 0; column < candidates.owners.size(); ++column) {
    if (candidates.owners[column] == 0) first.push_back(static_cast<int64_t>(column));
  }
  first.resize(std::max(first.size(), input.ids.size()), 0);
  return at::tensor(at::ArrayRef<int64_t>(first), at::kLong)
      .narrow(0, input.first_row, input.end_row - input.first_row);
}

LossOutput row_loss(const LossInput& input, const at::Tensor& head_BN, const at::Tensor& target_B,
                    std::vector<int64_t> column_ids) {
  const double world = input.comm.world_size();
  const at::Tensor energy_BN = in_loss_precision(head_BN);
  const InfoNce nce =
      row_infonce(energy_BN, input.model.temperature(), target_B, {}, {world, input.total_rows});
  LossOutput output;
  output.loss = nce.loss;
  output.row_losses_B = nce.row_losses_B;
  output.row_weight = world / input.total_rows;
  if (input.shared != nullptr) {
    output.loss = nce.row_losses_B.sum();
    output.row_weight = 1;
  }
  output.energies = energy_BN.detach();
  output.column_ids = std::move(column_ids);
  output.energy_positive = nce.energy_positive;
  output.energy_negative = nce.energy_negative;
  output.energies_computed = energy_BN.numel();
  return output;
}

void scale_gradient(LossOutput& output, double factor) {
  output.loss = output.loss + (factor - 1) * (output.loss - output.loss.detach());
}

}  // namespace lockstep
