#include "harness/jobs/orders/rewards/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <map>
#include <set>

namespace lockstep::rewards {
namespace {

using Wide = boost::multiprecision::cpp_bin_float_quad;
constexpr double kUlp = 0x1p-52;

struct WideStatistics {
  int64_t count = 0;
  Wide mean = 0, sigma = 0, sizes = 0;
};

WideStatistics wide(const std::vector<Wide>& values, const Convention& convention) {
  WideStatistics seen;
  seen.count = static_cast<int64_t>(values.size());
  Wide squares = 0;
  for (const Wide& value : values) {
    seen.mean += value;
    seen.sizes += abs(value);
  }
  if (!values.empty()) seen.mean /= seen.count;
  for (const Wide& value : values) squares += (value - seen.mean) * (value - seen.mean);
  const int64_t divisor = seen.count - convention.ddof;
  Wide variance = divisor > 0 ? Wide(squares / divisor) : Wide(0);
  if (convention.floor_place == FloorPlace::variance && variance < convention.floor) variance = convention.floor;
  if (convention.epsilon_place == EpsilonPlace::inside) variance += convention.epsilon;
  seen.sigma = sqrt(variance);
  if (convention.floor_place == FloorPlace::deviation && seen.sigma < convention.floor) seen.sigma = convention.floor;
  if (convention.epsilon_place == EpsilonPlace::outside) seen.sigma += convention.epsilon;
  return seen;
}

double ulps(double found, const Wide& expected, const Wide& size) {
  const Wide off = abs(Wide(found) - expected);
  if (off == 0) return 0;
  return size == 0 ? HUGE_VAL : static_cast<double>(off / size / kUlp);
}

/// Advantage of one row, and the sigma that its rounding is measured against.
std::pair<Wide, Wide> wide_advantage(const Case& one, const Wide& value, const WideStatistics& batch, const WideStatistics& group) {
  const auto ratio = [](const Wide& difference, const Wide& sigma) { return difference == 0 ? Wide(0) : Wide(difference / sigma); };
  switch (one.estimator) {
    case Estimator::global: return {ratio(value - batch.mean, batch.sigma), batch.sigma};
    case Estimator::group_mean: return {ratio(value - group.mean, batch.sigma), batch.sigma};
    default: break;
  }
  if (group.count == 1) return {one.convention.group_of_one == GroupOfOne::raw ? value : Wide(0), 1};
  if (one.estimator == Estimator::group) return {ratio(value - group.mean, group.sigma), group.sigma};
  // The mean of the others, as it stands in the paper.
  const Wide others = (group.mean * group.count - value) / (group.count - 1);
  return {value - others, Wide(group.count - 1) / group.count};
}

void compare_batch(const Statistics& found, const WideStatistics& expected, const Wide& largest, Distances& far) {
  if (found.count != expected.count) far.problem = fmt::format("{} rows count, and {} should", found.count, expected.count);
  const double condition = expected.mean == 0 ? HUGE_VAL : static_cast<double>(expected.sizes / expected.count / abs(expected.mean));
  far.mean_ulp = std::max(far.mean_ulp, ulps(found.mean, expected.mean, condition < 1e6 ? abs(expected.mean) : largest));
  far.deviation_ulp = std::max(far.deviation_ulp, ulps(found.deviation, expected.sigma, expected.sigma));
  if (std::isfinite(condition)) far.mean_condition = std::max(far.mean_condition, condition);
  if (std::isfinite(found.condition)) far.deviation_condition = std::max(far.deviation_condition, found.condition);
}

/// The denominator of a place in the partition, counted from the rows: rank or micro below 0 are all.
double counted_at(const Case& one, const CaseStep& step, int rank, int64_t micro) {
  double rows = 0, valid = 0;
  std::set<int64_t> groups;
  for (std::size_t i = 0; i < step.rows.size(); ++i) {
    if (rank >= 0 && step.ranks[i] != rank) continue;
    if (micro >= 0 && step.rows.micro[i] != micro) continue;
    if (step.rows.counted[i] == 0 || !std::isfinite(step.rows.rewards[i] + step.rows.kl[i])) continue;
    ++rows;
    valid += static_cast<double>(step.rows.steps[i]);
    groups.insert(step.rows.groups[i]);
  }
  switch (one.denominator) {
    case Denominator::rows: return rows;
    case Denominator::valid_steps: return valid;
    case Denominator::groups: return static_cast<double>(groups.size());
    case Denominator::constant: break;
  }
  return one.constant;
}

/// Weights of a step against what the rows say.
void compare_weights(const Case& one, const CaseStep& step, const Partitioned& partitioned, Distances& far) {
  for (int rank = 0; rank < one.world; ++rank) {
    int64_t parts = 0;
    for (std::size_t i = 0; i < step.rows.size(); ++i) {
      if (step.ranks[i] == rank) parts = std::max(parts, step.rows.micro[i] + 1);
    }
    for (int64_t micro = 0; micro < parts; ++micro) {
      double expected = one.world / counted_at(one, step, -1, -1);
      if (one.scope == Scope::local) expected = 1 / counted_at(one, step, rank, -1);
      if (one.scope == Scope::micro) expected = 1 / (static_cast<double>(parts) * counted_at(one, step, rank, micro));
      if (!std::isfinite(expected)) expected = 0;
      const double found = weight_of(one.denominator, one.scope, partitioned, rank, static_cast<int>(micro));
      if (std::abs(found - expected) > 4 * kUlp * expected)
        far.problem = fmt::format("terms of rank {}, micro-batch {} weigh {} and should weigh {}", rank, micro, found, expected);
    }
  }
}

/// Rows of a step that count, after masking.
struct Kept {
  std::vector<int64_t> ids, groups;
  std::vector<Wide> values, rewards;
};

Kept kept(const Case& one, const CaseStep& step) {
  Kept rows;
  for (std::size_t i = 0; i < step.rows.size(); ++i) {
    const double value = step.rows.rewards[i] - one.beta * step.rows.kl[i];
    if (step.rows.counted[i] == 0 || !std::isfinite(value)) continue;
    rows.ids.push_back(step.rows.ids[i]);
    rows.groups.push_back(step.rows.groups[i]);
    rows.values.emplace_back(value);
    rows.rewards.emplace_back(step.rows.rewards[i]);
  }
  return rows;
}

bool refused(const Case& one, const CaseStep& step) {
  for (std::size_t i = 0; one.convention.non_finite == NonFinite::refuse && i < step.rows.size(); ++i) {
    if (step.rows.counted[i] != 0 && !std::isfinite(step.rows.rewards[i] - one.beta * step.rows.kl[i])) return true;
  }
  return false;
}

void compare_step(const Case& one, const CaseStep& step, const StepNumbers& found, Distances& far) {
  const Kept rows = kept(one, step);
  const WideStatistics batch = wide(rows.values, one.convention);
  Wide largest = 0;
  for (const Wide& value : rows.values) largest = std::max(largest, Wide(abs(value)));
  compare_batch(found.advantages.batch, batch, largest, far);
  std::map<int64_t, std::vector<Wide>> groups;
  for (std::size_t i = 0; i < rows.values.size(); ++i) groups[rows.groups[i]].push_back(rows.values[i]);
  std::map<int64_t, WideStatistics> by_group;
  for (const auto& [id, values] : groups) by_group[id] = wide(values, one.convention);
  std::map<int64_t, double> found_by_id;
  for (std::size_t i = 0; i < found.ids.size(); ++i) found_by_id[found.ids[i]] = found.advantages.values[i];
  for (std::size_t i = 0; i < rows.values.size(); ++i) {
    const auto [expected, sigma] = wide_advantage(one, rows.values[i], batch, by_group[rows.groups[i]]);
    const Wide size = sigma == 0 ? Wide(1) : Wide(largest / sigma);
    far.advantage_ulp = std::max(far.advantage_ulp, ulps(found_by_id.at(rows.ids[i]), expected, size));
    found_by_id.erase(rows.ids[i]);
  }
  for (const auto& [id, value] : found_by_id) {
    if (value != 0) far.problem = fmt::format("sample {} does not count, and has the advantage {}", id, value);
  }
}

}  // namespace

Distances distances(const Case& one, const std::vector<StepNumbers>& steps) {
  Distances far;
  if (steps.size() != one.steps.size()) return {.problem = fmt::format("{} of {} steps", steps.size(), one.steps.size())};
  std::vector<Wide> since, merged;
  Wide largest = 0;
  for (std::size_t at = 0; at < steps.size(); ++at) {
    const CaseStep& step = one.steps[at];
    if (refused(one, step) != !steps[at].refused.empty())
      far.problem = fmt::format("step {} is {}refused", at, steps[at].refused.empty() ? "not " : "");
    if (!far.problem.empty()) return far;
    if (!steps[at].refused.empty()) continue;
    compare_step(one, step, steps[at], far);
    compare_weights(one, step, steps[at].partitioned, far);
    // The normaliser sees rewards as they are: rows that count and are finite.
    for (std::size_t i = 0; i < step.rows.size(); ++i) {
      if (step.rows.counted[i] == 0 || !std::isfinite(step.rows.rewards[i])) continue;
      since.emplace_back(step.rows.rewards[i]);
      largest = std::max(largest, Wide(std::abs(step.rows.rewards[i])));
    }
    if (step.merges) {
      merged.insert(merged.end(), since.begin(), since.end());
      since.clear();
    }
    const WideStatistics expected = wide(merged, one.convention);
    if (steps[at].normalizer.count != expected.count)
      far.problem = fmt::format("the normaliser has {} rows, and should have {}", steps[at].normalizer.count, expected.count);
    far.normalizer_ulp = std::max(far.normalizer_ulp, ulps(steps[at].normalizer.mean, expected.mean, largest));
  }
  return far;
}

std::string expected_failure(const Case& one) {
  if (one.convention.non_finite != NonFinite::refuse) return "";
  for (const CaseStep& step : one.steps) {
    for (const double reward : step.rows.rewards) {
      if (!std::isfinite(reward)) return "score-not-finite";
    }
  }
  return "";
}

void widen(Distances& all, const Distances& more) {
  all.mean_ulp = std::max(all.mean_ulp, more.mean_ulp);
  all.deviation_ulp = std::max(all.deviation_ulp, more.deviation_ulp);
  all.advantage_ulp = std::max(all.advantage_ulp, more.advantage_ulp);
  all.normalizer_ulp = std::max(all.normalizer_ulp, more.normalizer_ulp);
  all.mean_condition = std::max(all.mean_condition, more.mean_condition);
  all.deviation_condition = std::max(all.deviation_condition, more.deviation_condition);
  if (all.problem.empty()) all.problem = more.problem;
}

}  // namespace lockstep::rewards
