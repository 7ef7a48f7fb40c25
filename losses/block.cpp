#include "losses/block.h"

#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace lockstep {

at::Tensor valid_candidates(const LossInput& input, const Candidates& candidates,
                            const at::Tensor& target_B) {
  if (!input.options.mask_duplicates) {
    return {};
  }
  const at::Tensor all = at::tensor(at::ArrayRef<int64_t>(candidates.ids), at::kLong);
  const at::Tensor own = all.index_select(0, target_B);
  const at::Tensor column = at::arange(all.numel(), at::kLong);
  return (own.unsqueeze(1) != all.unsqueeze(0)).logical_or(target_B.unsqueeze(1) == column.unsqueeze(0));
}

at::Tensor in_loss_precision(const at::Tensor& energies) {
  return energies.scalar_type() == at::kBFloat16 ? energies.to(at::kFloat) : energies;
}

Block make_block(const LossInput& input) {
  Block block;
  block.candidates = in_batch_candidates(input);
  block.rows = input.model.encode_context();
  block.energy_BN = block_energies(input, block.rows, input.model.encode_action(block.candidates.action_NA),
                                   block.candidates.ids);
  block.target_B = target_columns(input, block.candidates);
  block.valid_BN = valid_candidates(input, block.candidates, block.target_B);
  if (input.counted_B.defined()) {
    block.counted_B = input.counted_B.narrow(0, input.first_row, input.end_row - input.first_row);
  }
  block.tiled = takes_tiles(input, block.candidates.ids.size());
  return block;
}

LossOutput make_output(const LossInput& input, const at::Tensor& counted_B, const at::Tensor& row_losses_B) {
  LossOutput output;
  output.row_losses_B = counted_B.defined() ? at::where(counted_B, row_losses_B, 0.0) : row_losses_B;
  output.row_weight = input.total_rows > 0 ? input.comm.world_size() / input.total_rows : 0.0;
  if (input.shared != nullptr) output.row_weight = 1;
  const bool one_row = input.shared != nullptr && input.end_row - input.first_row == 1;
  output.loss = one_row ? output.row_losses_B.squeeze(0) : output.row_losses_B.sum();
  if (output.row_weight != 1) output.loss = output.loss * output.row_weight;
  return output;
}

EnergyMeans energy_means(const at::Tensor& energy_BN, const at::Tensor& target_B, const at::Tensor& valid) {
  const at::AutoDispatchBelowADInplaceOrView guard;  // without gradient
  const at::Tensor energy = energy_BN.to(at::kDouble).contiguous();
  const bool one_row = energy.size(0) == 1;
  const double own = one_row ? energy.const_data_ptr<double>()[target_B.const_data_ptr<int64_t>()[0]]
                             : energy.gather(1, target_B.unsqueeze(1)).sum().item<double>();
  at::Tensor among = energy;
  const auto rows = static_cast<double>(energy.size(0));
  double pairs = rows * static_cast<double>(energy.size(1));
  if (valid.defined()) {
    among = energy.masked_fill(valid.dim() == 1 ? ~valid.unsqueeze(0) : ~valid, 0.0);
    pairs = valid.sum().item<double>() * (valid.dim() == 1 ? rows : 1.0);
  }
  EnergyMeans means;
  if (rows > 0) {
    means.positive = own / rows;
    means.negative = pairs > rows ? (among.sum().item<double>() - own) / (pairs - rows) : 0.0;
  }
  return means;
}

void describe_block(const Block& block, LossOutput& output) {
  output.energies = block.energy_BN.detach();
  output.column_ids = block.candidates.ids;
  const EnergyMeans means = energy_means(block.energy_BN, block.target_B, block.valid_BN);
  output.energy_positive = means.positive;
  output.energy_negative = means.negative;
  output.energies_computed += block.energy_BN.numel() * (block.tiled ? 2 : 1);
  output.replayed = block.tiled;
  if (const int64_t rows = block.energy_BN.size(0); rows > 0) {
    const double candidates = block.valid_BN.defined()
                                  ? block.valid_BN.sum().item<double>() / static_cast<double>(rows)
                                  : static_cast<double>(block.energy_BN.size(1));
    output.negatives_in_batch = candidates - 1;
  }
}

void require_in_batch(const LossOptions& options, const at::Tensor& explicit_BnA, const char* why) {
  if (!options.in_batch || explicit_BnA.defined()) {
    throw std::invalid_argument(why);
  }
}

}  // namespace lockstep
