#include "harness/lib/rewards/advantages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <stdexcept>

namespace lockstep::rewards {
namespace {

constexpr std::array<std::string_view, 4> kEstimators{"leave_one_out", "global", "group", "group_mean"};

constexpr KnownConvention known(std::string_view project, int ddof, double epsilon, EpsilonPlace epsilon_place,
                                double floor = 0, FloorPlace floor_place = FloorPlace::deviation,
                                GroupOfOne group_of_one = GroupOfOne::zero) {
  return {project, {ddof, epsilon, epsilon_place, floor, floor_place, NonFinite::mask, group_of_one}};
}
constexpr std::array kKnown{
    known("lockstep", 0, 0, EpsilonPlace::outside, 1e-4),
    known("TRL, GRPO", 1, 1e-4, EpsilonPlace::outside),
    known("verl, GRPO", 1, 1e-6, EpsilonPlace::outside, 0, FloorPlace::deviation, GroupOfOne::raw),
    known("verl, whitening; slime", 1, 1e-8, EpsilonPlace::inside),
    known("OpenRLHF, group", 1, 1e-9, EpsilonPlace::outside),
    known("OpenRLHF, batch", 0, 0, EpsilonPlace::outside, 1e-8, FloorPlace::variance),
    known("DDPO", 0, 1e-8, EpsilonPlace::outside),
    known("flow_grpo", 0, 1e-4, EpsilonPlace::outside),
};

/// Rows of each group that count, in the batch's order.
std::map<int64_t, std::vector<std::size_t>> rows_by_group(const Batch& batch, std::span<const uint8_t> counted) {
  std::map<int64_t, std::vector<std::size_t>> rows;
  for (std::size_t i = 0; i < batch.groups.size(); ++i) {
    if (counted[i] != 0) rows[batch.groups[i]].push_back(i);
  }
  return rows;
}

double advantage(double reward, Estimator estimator, const Statistics& batch, const Statistics& group,
                 const Convention& convention) {
  // 0 / 0, where neither the rows nor the convention have a deviation: nobody is better than the mean.
  const auto ratio = [](double difference, double deviation) { return difference == 0 ? 0 : difference / deviation; };
  if (estimator == Estimator::global) return ratio(reward - batch.mean, batch.deviation);
  if (estimator == Estimator::group_mean) return ratio(reward - group.mean, batch.deviation);
  if (group.count == 1) return convention.group_of_one == GroupOfOne::raw ? reward : 0;
  if (estimator == Estimator::group) return ratio(reward - group.mean, group.deviation);
  const auto n = static_cast<double>(group.count);
  return n / (n - 1) * (reward - group.mean);
}

}  // namespace

std::string_view name_of(Estimator estimator) { return kEstimators[static_cast<std::size_t>(estimator)]; }

Advantages advantages_of(const Batch& batch, Estimator estimator, const Convention& convention) {
  const std::size_t rows = batch.rewards.size();
  if (batch.groups.size() != rows || (!batch.counted.empty() && batch.counted.size() != rows)) {
    throw std::invalid_argument(fmt::format("{} rewards, {} groups and {} marks of rows that count", rows,
                                            batch.groups.size(), batch.counted.size()));
  }
  Advantages done;
  Screened screened = screen(batch.rewards, batch.counted, convention);
  done.problem = std::move(screened.problem);
  if (!done.problem.empty()) return done;
  done.values.assign(rows, 0);
  done.batch = statistics_of(moments_of(counted_values(batch.rewards, screened.counted)), convention);
  std::vector<double> values;
  for (const auto& [id, places] : rows_by_group(batch, screened.counted)) {
    values.clear();
    for (const std::size_t place : places) values.push_back(batch.rewards[place]);
    const Statistics group = statistics_of(moments_of(values), convention);
    for (const std::size_t place : places)
      done.values[place] = advantage(batch.rewards[place], estimator, done.batch, group, convention);
    done.group_ids.push_back(id);
    done.by_group.push_back(group);
  }
  return done;
}

std::string in_words(const AdvantageWay& way) {
  const std::string name(name_of(way.estimator));
  return way.estimator == Estimator::leave_one_out ? name : name + ", " + in_words(way.convention);
}

std::span<const KnownConvention> known_conventions() { return kKnown; }

std::optional<AdvantageWay> fitted_way(const Batch& batch, std::span<const double> advantages, double tolerance) {
  double largest = 0;
  for (const double value : advantages) largest = std::max(largest, std::abs(value));
  if (!(largest > 0)) return std::nullopt;
  using enum Estimator;
  for (const Estimator estimator : {leave_one_out, global, group, group_mean}) {
    for (const KnownConvention& each : kKnown) {
      const std::vector<double> found = advantages_of(batch, estimator, each.convention).values;
      const auto near = [&](double a, double b) { return std::abs(a - b) <= tolerance * largest; };
      if (std::ranges::equal(found, advantages, near)) return AdvantageWay{estimator, each.convention};
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::rewards
