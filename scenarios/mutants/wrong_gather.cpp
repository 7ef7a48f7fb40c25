#include "scenarios/mutants/wrong_gather.h"

#include <ATen/ATen.h>


namespace lockstep {
namespace {

/// All ranks' rows; this rank's stand at [offset, offset + b) and get the gradient that `backward` says.
at::Tensor with_backward(const at::Tensor& all, const at::Tensor& own, int64_t offset,
                         GatherBackward backward, Comm& comm) {
  if (backward == GatherBackward::none || !own.is_floating_point()) {
    return all;
  }
  const int64_t behind = offset + own.size(0);
  at::Tensor together =
      at::cat({all.narrow(0, 0, offset), own, all.narrow(0, behind, all.size(0) - behind)}, 0);
  if (backward == GatherBackward::average && comm.world_size() > 1) {
    together.register_hook([&comm](const at::Tensor& gradient) {
      at::Tensor sum = gradient.clone(at::MemoryFormat::Contiguous);
      comm.all_reduce_sum(sum, "loss.candidates.gradient");
      return sum / comm.world_size();
    });
  }
  return together;
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
  at::Tensor together = at::where(own_N1, all, all.detach());
  if (backward == GatherBackward::average && input.comm.world_size() > 1) {
    together.register_hook([&comm = input.comm](const at::Tensor& gradient) {
      at::Tensor sum = gradient.clone(at::MemoryFormat::Contiguous);
      comm.all_reduce_sum(sum, "loss.candidates.gradient");
      return sum / comm.world_size();
    });
  }
  return together;
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

}  // namespace lockstep
