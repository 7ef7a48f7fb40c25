#include "scenarios/flow_rl/running.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr int64_t kMerged = 0, kDelta = 1, kReturn = kObserved, kRows = kObserved + 1, kNumbers = 3;

}  // namespace

RunningStatistics::RunningStatistics() : state_(at::zeros({2, kRows, kNumbers}, at::kDouble)) {}

rewards::Moments RunningStatistics::at(int64_t part, int64_t which) const {
  const double* values = state_.const_data_ptr<double>() + (part * kRows + which) * kNumbers;
  return {static_cast<int64_t>(values[0]), values[1], values[2]};
}

void RunningStatistics::put(int64_t part, int64_t which, const rewards::Moments& moments) {
  double* values = state_.mutable_data_ptr<double>() + (part * kRows + which) * kNumbers;
  values[0] = static_cast<double>(moments.count);
  values[1] = moments.mean;
  values[2] = moments.m2;
}

void RunningStatistics::begin(std::span<const rewards::Moments> seen) {
  for (std::size_t i = 0; i < seen.size(); ++i) put(kMerged, static_cast<int64_t>(i), seen[i]);
}

ObservationScale RunningStatistics::scale() const {
  std::vector<rewards::Moments> merged;
  for (int64_t i = 0; i < kObserved; ++i) merged.push_back(at(kMerged, i));
  return ObservationScale(merged);
}

double RunningStatistics::return_deviation() const {
  constexpr double kLeast = 1e-3;
  const rewards::Moments moments = at(kMerged, kReturn);
  return moments.count < 2 ? 1 : std::max(std::sqrt(moments.m2 / static_cast<double>(moments.count)), kLeast);
}

void RunningStatistics::add(std::span<const rewards::Moments> seen, const rewards::Moments& returns, bool merges) {
  for (int64_t i = 0; i < kRows; ++i) {
    const rewards::Moments delta = merge(at(kDelta, i), i == kReturn ? returns : seen[static_cast<std::size_t>(i)]);
    put(kDelta, i, merges ? rewards::Moments{} : delta);
    if (merges) put(kMerged, i, merge(at(kMerged, i), delta));
  }
}

}  // namespace lockstep
