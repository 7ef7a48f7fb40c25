#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "losses/loss.h"

namespace lockstep {
namespace {

std::vector<int64_t> values_of(const at::Tensor& int64s) {
  const at::Tensor flat = int64s.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

at::Tensor int64s(std::span<const int64_t> values) {
  return at::tensor(at::ArrayRef<int64_t>(values.data(), values.size()), at::kLong);
}

}  // namespace

at::Tensor target_columns(const LossInput& input, const Candidates& candidates) {
  if (candidates.own_columns.empty()) {
    return at::arange(candidates.offset + input.first_row, candidates.offset + input.end_row, at::kLong);
  }
  return int64s(std::span<const int64_t>(candidates.own_columns)
                    .subspan(static_cast<std::size_t>(input.first_row),
                             static_cast<std::size_t>(input.end_row - input.first_row)));
}

Candidates candidates_in_batch_order(const LossInput& input, std::span<const int64_t> positions) {
  std::vector<at::Tensor> sent{input.action_BA, int64s(input.ids), int64s(positions)};
  if (input.counted_B.defined()) sent.push_back(input.counted_B);
  const GatheredRows gathered = gather_rows(input.comm, sent, input.step, "loss.candidates");
  const int64_t most = gathered.valid.numel() / input.comm.world_size();
  const std::vector<int64_t> position = values_of(gathered.columns[2]);
  const auto* valid = gathered.valid.const_data_ptr<bool>();
  std::vector<int64_t> order;
  for (int64_t place = 0; place < gathered.valid.numel(); ++place) {
    if (valid[place]) order.push_back(place);
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return position[static_cast<std::size_t>(a)] < position[static_cast<std::size_t>(b)];
  });
  const at::Tensor index = int64s(order);
  Candidates candidates{gathered.columns[0].index_select(0, index),
                        values_of(gathered.columns[1].index_select(0, index)), 0};
  if (input.counted_B.defined()) candidates.counted_N = gathered.columns[3].index_select(0, index);
  candidates.own_columns.resize(input.ids.size());
  for (std::size_t column = 0; column < order.size(); ++column) {
    const auto owner = static_cast<int>(order[column] / most);
    candidates.owners.push_back(owner);
    if (owner == input.comm.rank()) {
      candidates.own_columns[static_cast<std::size_t>(order[column] % most)] = static_cast<int64_t>(column);
    }
  }
  return candidates;
}

Candidates in_batch_candidates(const LossInput& input) {
  if (input.shared != nullptr && !input.options.local) {
    return input.shared->candidates;
  }
  if (input.options.local || input.comm.world_size() == 1) {
    return {input.action_BA, {input.ids.begin(), input.ids.end()}, 0, input.counted_B};
  }
  const at::Tensor ids = at::tensor(at::ArrayRef<int64_t>(input.ids.data(), input.ids.size()), at::kLong);
  std::vector<at::Tensor> sent{input.action_BA, ids};
  if (input.counted_B.defined()) {
    sent.push_back(input.counted_B);
  }
  const GatheredRows gathered = gather_rows(input.comm, sent, input.step, "loss.candidates");
  Candidates candidates{gathered.columns[0], {}, gathered.offset};
  if (input.counted_B.defined()) {
    candidates.counted_N = gathered.columns[2];
  }
  at::Tensor all_ids = gathered.columns[1];
  if (gathered.total_rows != gathered.valid.numel()) {
    // Ranks with fewer rows were padded for the gather alone: nothing is computed for the padding.
    const at::Tensor kept = gathered.valid.nonzero().squeeze(1);
    candidates.action_NA = candidates.action_NA.index_select(0, kept);
    all_ids = all_ids.index_select(0, kept);
    if (candidates.counted_N.defined()) {
      candidates.counted_N = candidates.counted_N.index_select(0, kept);
    }
    candidates.offset = gathered.valid.narrow(0, 0, gathered.offset).sum().item<int64_t>();
  }
  candidates.ids.assign(all_ids.const_data_ptr<int64_t>(),
                        all_ids.const_data_ptr<int64_t>() + all_ids.numel());
  return candidates;
}

}  // namespace lockstep
