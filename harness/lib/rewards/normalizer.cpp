#include "harness/lib/rewards/normalizer.h"

namespace lockstep::rewards {

std::string RunningNormalizer::add(std::span<const double> values) {
  const Screened screened = screen(values, {}, convention_);
  if (!screened.problem.empty()) return screened.problem;
  state_.delta = merge(state_.delta, moments_of(counted_values(values, screened.counted)));
  return "";
}

void RunningNormalizer::merge_deltas(std::span<const Moments> by_rank) {
  for (const Moments& delta : by_rank) state_.merged = merge(state_.merged, delta);
  state_.delta = {};
  ++state_.merges;
}

double RunningNormalizer::normalized(double value) const {
  const Statistics now = statistics();
  const double difference = value - now.mean;
  return difference == 0 ? 0 : difference / now.deviation;
}

}  // namespace lockstep::rewards
