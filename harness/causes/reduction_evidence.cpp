#include "harness/causes/reduction_evidence.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "harness/compare/forced/reduction.h"

namespace lockstep::causes {

std::optional<Reduction> reduction_of(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::reduced_gradients || !inputs.forced) return std::nullopt;
  if (inputs.forced->cell.local.size() < 2) return std::nullopt;
  Reduction reduction;
  reduction.evidence = &*inputs.forced;
  const ForcedValues& cell = inputs.forced->cell;
  reduction.world = cell.local.size();
  const std::vector<NamedTensor> means = mean_of_local(cell);
  for (const ReductionUse& use : judge_reduction(cell)) {
    Reduced tensor;
    tensor.reduced = find_tensor(cell.gradients, use.name);
    tensor.mean = *find_tensor(means, use.name);
    for (const auto& rank : cell.local) {
      tensor.local.push_back(find_tensor(rank, use.name));
      if (!tensor.local.back()) return std::nullopt;
    }
    tensor.allowance = reduction_allowance(cell, *tensor.reduced);
    tensor.wrong = use.used > 1;
    reduction.tensors.push_back(std::move(tensor));
  }
  if (inputs.cell) {
    const std::string bucket = bucket_of(inputs.cell->ranks[0], inputs.difference.divergence.where);
    if (!bucket.empty()) reduction.bucket = ", in " + bucket;
  }
  return reduction.tensors.empty() ? std::nullopt : std::optional(reduction);
}

namespace {

/// Does the hypothesis give every element of the tensor, within `room` allowances of its own size?
bool gives(const Reduced& tensor, const Hypothesis& hypothesis, double room = 2) {
  for (std::size_t i = 0; i < tensor.reduced->values.size(); ++i) {
    const double expected = hypothesis(tensor, i), actual = tensor.reduced->values[i];
    const double grown =
        tensor.mean.values[i] == 0 ? 1 : std::max(1.0, std::abs(expected / tensor.mean.values[i]));
    const double size = tensor.reduced->epsilon * std::abs(expected) * 8;
    if (!(distance(expected, actual) <= room * tensor.allowance[i] * std::min(grown, 1e3) + size))
      return false;
  }
  return true;
}

}  // namespace

std::size_t wrong_count(const Reduction& reduction) {
  return static_cast<std::size_t>(std::count_if(reduction.tensors.begin(), reduction.tensors.end(),
                                                [](const Reduced& t) { return t.wrong; }));
}

bool explains(const Reduction& reduction, const Hypothesis& hypothesis, bool everywhere) {
  if (wrong_count(reduction) == 0) return false;
  return std::all_of(reduction.tensors.begin(), reduction.tensors.end(), [&](const Reduced& tensor) {
    return (!tensor.wrong && !everywhere) || gives(tensor, hypothesis);
  });
}

std::string of_tensors(const Reduction& reduction) {
  return fmt::format("{} of {} tensors{}", wrong_count(reduction), reduction.tensors.size(),
                     reduction.bucket);
}

int single_rank(const Reduction& reduction, const std::function<Hypothesis(std::size_t rank)>& hypothesis) {
  int named = -1;
  for (std::size_t rank = 0; rank < reduction.world; ++rank) {
    if (!explains(reduction, hypothesis(rank), false)) continue;
    if (named >= 0) return -1;
    named = reduction.evidence->cell.local_ranks.at(rank);
  }
  return named;
}

}  // namespace lockstep::causes
