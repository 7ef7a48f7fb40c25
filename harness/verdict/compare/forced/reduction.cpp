#include "harness/verdict/compare/forced/reduction.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {

std::vector<double> reduction_allowance(const ForcedValues& values, const NamedTensor& tensor) {
  const auto ranks = static_cast<double>(values.local.size());
  const double divisor = values.reduced_by_sum ? 1 : ranks;
  // Below the smallest normal number rounding is absolute: softmax of a model that explodes gives such gradients in float64, too.
  const double least = tensor.epsilon < 1e-10 ? std::numeric_limits<double>::denorm_min() : std::numeric_limits<float>::denorm_min();
  std::vector<double> allowance(tensor.values.size(), least * ranks);
  for (const std::vector<NamedTensor>& rank : values.local) {
    const NamedTensor* own = find_tensor(rank, tensor.name);
    if (!own || own->values.size() != allowance.size()) continue;
    // Each micro-step's may be reduced and added to the sum so far: terms that cancel are as large as elements of the tensor are.
    const auto additions = static_cast<double>(values.micro_steps - 1);
    const double usual = additions > 0 ? norm(own->values) / std::sqrt(static_cast<double>(std::max<std::size_t>(1, own->values.size()))) : 0;
    for (std::size_t i = 0; i < allowance.size(); ++i) {
      const double size = std::abs(own->values[i]);
      allowance[i] += tensor.epsilon * ((ranks + 4) * size + additions * std::max(size, usual)) / divisor;
    }
  }
  return allowance;
}

std::vector<ReductionUse> judge_reduction(const ForcedValues& cell) {
  std::vector<ReductionUse> uses;
  if (cell.local.empty()) return uses;
  const std::vector<NamedTensor> means = mean_of_local(cell);
  for (const NamedTensor& reduced : cell.gradients) {
    const NamedTensor* mean = find_tensor(means, reduced.name);
    if (!mean || mean->shape != reduced.shape) continue;
    const bool finite =
        std::all_of(mean->values.begin(), mean->values.end(), [](double x) { return std::isfinite(x); });
    if (!finite) continue;
    const std::vector<double> allowance = reduction_allowance(cell, reduced);
    ReductionUse use{reduced.name, 0};
    for (std::size_t i = 0; i < allowance.size(); ++i) {
      const double gap = distance(mean->values[i], reduced.values[i]);
      if (gap > 0) use.used = std::max(use.used, gap / allowance[i]);
    }
    uses.push_back(use);
  }
  return uses;
}

std::string bucket_of(const StepRecords& rank0, const std::string& tensor) {
  std::vector<const Record*> ready, buckets;
  for (const Record& record : rank0.records) {
    if (record.phase == Phase::collective && record.collective.op == "reduce_gradients") {
      buckets.push_back(&record);
    }
    if (record.phase == Phase::local_gradients) ready.push_back(&record);
  }
  // Buckets hold tensors that stand side by side, in the order of the parameters or in that of their
  // gradients.
  const auto found_in = [&](const std::vector<const Record*>& order) -> std::string {
    for (const Record* bucket : buckets) {
      for (std::size_t first = 0; first < order.size(); ++first) {
        uint64_t sum = 0;
        bool holds = false;
        for (std::size_t last = first; last < order.size(); ++last) {
          sum += order[last]->stats.hash;
          holds = holds || order[last]->name == tensor;
          if (holds && sum == bucket->collective.hash_in) return bucket->collective.tag;
        }
      }
    }
    return "";
  };
  const std::string by_readiness = found_in(ready);
  if (!by_readiness.empty()) return by_readiness;
  std::vector<const Record*> by_parameter;
  for (const Record& record : rank0.records) {
    if (record.phase != Phase::reduced_gradients) continue;
    const auto local =
        std::find_if(ready.begin(), ready.end(), [&](const Record* x) { return x->name == record.name; });
    if (local != ready.end()) by_parameter.push_back(*local);
  }
  return found_in(by_parameter);
}

}  // namespace lockstep
