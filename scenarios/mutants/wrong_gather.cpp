#include "scenarios/mutants/wrong_gather.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

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

/// Columns that stand rank by rank, in the order of the whole batch.
void put_in_batch_order(GatheredBlock& block, const Candidates& candidates) {
  std::vector<int64_t> rank_by_rank(candidates.owners.size()), place(candidates.owners.size());
  std::iota(rank_by_rank.begin(), rank_by_rank.end(), 0);
  std::stable_sort(rank_by_rank.begin(), rank_by_rank.end(), [&](int64_t a, int64_t b) {
    return candidates.owners[static_cast<std::size_t>(a)] < candidates.owners[static_cast<std::size_t>(b)];
  });
  for (std::size_t k = 0; k < rank_by_rank.size(); ++k) {
    place[static_cast<std::size_t>(rank_by_rank[k])] = static_cast<int64_t>(k);
  }
  block.action_ND = block.action_ND.index_select(0, at::tensor(at::ArrayRef<int64_t>(place), at::kLong));
  block.ids = candidates.ids;
}

LossOutput row_block_loss(const LossInput& input, GatherBackward backward) {
  GatheredBlock block = gather_encoded(input, backward, false);
  at::Tensor target_B = targets(input, block.offset);
  if (input.shared != nullptr) {
    put_in_batch_order(block, input.shared->candidates);
    target_B = target_columns(input, input.shared->candidates);
  }
  const at::Tensor energies = input.model.energies(block.rows, block.action_ND, block.ids, 0);
  LossOutput output = row_loss(input, energies, target_B, block.ids);
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
