#include "scenarios/mutants/wrong_loss.h"

#include <ATen/ATen.h>

#include "losses/block.h"
#include "losses/infonce.h"

namespace lockstep {

at::Tensor targets(const LossInput& input, int64_t offset) {
  return at::arange(offset + input.first_row, offset + input.end_row, at::kLong);
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
