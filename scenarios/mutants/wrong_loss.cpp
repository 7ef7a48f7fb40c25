#include "scenarios/mutants/wrong_loss.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "harness/trainers/core/task.h"
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

namespace {

/// Where the backward is to average, the gradient becomes the mean over the ranks.
at::Tensor averaged(at::Tensor together, GatherBackward backward, Comm& comm) {
  if (backward != GatherBackward::average || comm.world_size() == 1) return together;
  together.register_hook([&comm](const at::Tensor& gradient) {
    at::Tensor sum = gradient.clone(at::MemoryFormat::Contiguous);
    comm.all_reduce_sum(sum, "loss.candidates.gradient");
    return sum / comm.world_size();
  });
  return together;
}

/// All ranks' rows; this rank's stand at [offset, offset + b) and get the gradient that `backward` says.
at::Tensor with_backward(const at::Tensor& all, const at::Tensor& own, int64_t offset,
                         GatherBackward backward, Comm& comm) {
  if (backward == GatherBackward::none || !own.is_floating_point()) {
    return all;
  }
  const int64_t behind = offset + own.size(0);
  const at::Tensor after = all.narrow(0, behind, all.size(0) - behind);
  return averaged(at::cat({all.narrow(0, 0, offset), own, after}, 0), backward, comm);
}

}  // namespace

GatheredBlock gather_encoded(const LossInput& input, GatherBackward backward, bool contexts) {
  GatheredBlock block;
  block.rows = input.model.encode_context();
  block.own_bD = input.model.encode_action(input.action_BA);
  std::vector<at::Tensor> own{
      block.own_bD, at::tensor(at::ArrayRef<int64_t>(input.ids.data(), input.ids.size()), at::kLong)};
  if (contexts) {
    own.insert(own.end(), block.rows.tensors.begin(), block.rows.tensors.end());
  }
  const GatheredRows gathered = gather_rows(input.comm, own, input.step, "loss.candidates");
  const at::Tensor kept = gathered.valid.nonzero().squeeze(1);
  block.offset = gathered.valid.narrow(0, 0, gathered.offset).sum().item<int64_t>();
  std::vector<at::Tensor> all;
  for (std::size_t t = 0; t < own.size(); ++t) {
    all.push_back(
        with_backward(gathered.columns[t].index_select(0, kept), own[t], block.offset, backward, input.comm));
  }
  block.action_ND = all[0];
  block.ids.assign(all[1].const_data_ptr<int64_t>(), all[1].const_data_ptr<int64_t>() + all[1].numel());
  block.contexts.tensors.assign(all.begin() + 2, all.end());
  return block;
}

namespace {

/// Of a row in exact arithmetic, whose candidates are there already: encoded, with the same wrong backward.
at::Tensor shared_with_backward(const LossInput& input, GatherBackward backward) {
  const Candidates& candidates = input.shared->candidates;
  const at::Tensor all = input.model.encode_action(candidates.action_NA);
  if (backward == GatherBackward::none) return all.detach();
  std::vector<int64_t> own;
  for (const int owner : candidates.owners) own.push_back(owner == input.comm.rank() ? 1 : 0);
  const at::Tensor own_N1 = at::tensor(at::ArrayRef<int64_t>(own), at::kLong).to(at::kBool).unsqueeze(1);
  return averaged(at::where(own_N1, all, all.detach()), backward, input.comm);
}

LossOutput row_of_shared(const LossInput& input, GatherBackward backward) {
  const EncodedRows rows = input.model.encode_context();
  const Candidates& candidates = input.shared->candidates;
  const at::Tensor energies =
      input.model.energies(rows, shared_with_backward(input, backward), candidates.ids, 0);
  return row_loss(input, energies, target_columns(input, candidates), candidates.ids);
}

}  // namespace

LossOutput row_block_loss(const LossInput& input, GatherBackward backward) {
  if (input.shared != nullptr) return row_of_shared(input, backward);
  const GatheredBlock block = gather_encoded(input, backward, false);
  const at::Tensor energies = input.model.energies(block.rows, block.action_ND, block.ids, 0);
  LossOutput output = row_loss(input, energies, targets(input, block.offset), block.ids);
  // Reducers wait for parameters without gradient: they get zeros.
  output.loss = output.loss + 0.0 * block.own_bD.sum();
  return output;
}

LossOutput full_block_loss(const LossInput& input, GatherBackward backward) {
  const GatheredBlock block = gather_encoded(input, backward, true);
  const at::Tensor energies = input.model.energies(block.contexts, block.action_ND, block.ids, 0);
  const at::Tensor every = at::arange(energies.size(0), at::kLong);
  LossOutput all = row_loss(input, energies, every, block.ids);
  const int64_t rows = input.end_row - input.first_row;
  LossOutput output =
      row_loss(input, energies.narrow(0, block.offset, rows), targets(input, block.offset), block.ids);
  output.loss = all.row_losses_B.sum() / input.total_rows + 0.0 * block.own_bD.sum();
  for (const at::Tensor& context : block.rows.tensors) {
    if (context.is_floating_point()) {
      output.loss = output.loss + 0.0 * context.sum();
    }
  }
  output.energies_computed = energies.numel();
  return output;
}

at::Tensor ReducedByHand::sent_gradient(int64_t step, const std::string& parameter,
                                        const at::Tensor& gradient) {
  if (acts(step)) {
    local_[parameter] = gradient.clone();
  }
  return gradient;
}

void ReducedByHand::reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) {
  if (!acts(step)) {
    return;
  }
  prepare(local_);
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    const at::Tensor sent = to_send(local_.at(parameters.names[i])).contiguous();
    parameters.tensors[i].mutable_grad().copy_(reduce(network_->all_gather(sent, "planted")));
  }
}

double norm_of(const std::map<std::string, at::Tensor>& tensors) {
  double squares = 0;
  for (const auto& [name, tensor] : tensors) {
    squares += tensor.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(squares);
}

}  // namespace lockstep
