#include <ATen/ATen.h>

#include "losses/loss.h"

namespace lockstep {

Candidates in_batch_candidates(const LossInput& input) {
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
