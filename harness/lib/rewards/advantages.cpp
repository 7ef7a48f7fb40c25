#include "harness/lib/rewards/advantages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <stdexcept>

namespace lockstep::rewards {
namespace {

/// Neumaier's sum: what each addition loses is kept beside.
class Sum {
 public:
  void add(double value) {
    const double next = sum_ + value;
    lost_ += std::abs(sum_) >= std::abs(value) ? (sum_ - next) + value : (value - next) + sum_;
    sum_ = next;
  }
  double value() const { return sum_ + lost_; }

 private:
  double sum_ = 0, lost_ = 0;
};

bool usable(double value) { return std::abs(value) <= kLargestReward; }

}  // namespace

double deviation_of(double variance, const Convention& convention) {
  if (convention.floor_place == FloorPlace::variance) variance = std::max(variance, convention.floor);
  if (convention.epsilon_place == EpsilonPlace::inside) variance += convention.epsilon;
  double deviation = std::sqrt(variance);
  if (convention.floor_place == FloorPlace::deviation) deviation = std::max(deviation, convention.floor);
  if (convention.epsilon_place == EpsilonPlace::outside) deviation += convention.epsilon;
  return deviation;
}

std::string in_words(const Convention& convention) {
  std::string text = convention.ddof == 0 ? "population deviation" : "Bessel's deviation";
  if (convention.floor > 0) {
    const bool of_deviation = convention.floor_place == FloorPlace::deviation;
    text += fmt::format(", floor {:g} under the {}", convention.floor, of_deviation ? "deviation" : "variance");
  }
  if (convention.epsilon > 0) {
    const bool outside = convention.epsilon_place == EpsilonPlace::outside;
    text += fmt::format(", epsilon {:g} {} the root", convention.epsilon, outside ? "outside" : "inside");
  }
  return text + (convention.group_of_one == GroupOfOne::raw ? ", a group of one keeps its raw reward" : "");
}

Moments moments_of(std::span<const double> values) {
  if (values.empty()) return {};
  const auto count = static_cast<int64_t>(values.size());
  const auto n = static_cast<double>(count);
  if (std::ranges::all_of(values, [&](double value) { return value == values.front(); })) return {count, values.front(), 0};
  Sum sum;
  for (const double value : values) sum.add(value);
  const double mean = sum.value() / n;
  Sum squares, rest;
  for (const double value : values) {
    const double difference = value - mean;
    squares.add(difference * difference);
    rest.add(difference);
  }
  return {count, mean, std::max(0.0, squares.value() - rest.value() * rest.value() / n)};
}

Moments merge(const Moments& a, const Moments& b) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  const int64_t count = a.count + b.count;
  const double n = static_cast<double>(count), n_a = static_cast<double>(a.count), n_b = static_cast<double>(b.count);
  const double between = b.mean - a.mean;
  return {count, a.mean + between * (n_b / n), a.m2 + b.m2 + between * between * (n_a * n_b / n)};
}

Statistics statistics_of(const Moments& moments, const Convention& convention) {
  const int64_t divisor = moments.count - convention.ddof;
  const double variance = divisor > 0 ? moments.m2 / static_cast<double>(divisor) : 0;
  return {moments.count, moments.mean, deviation_of(variance, convention)};
}

Screened screen(std::span<const double> values, std::span<const uint8_t> counted, const Convention& convention) {
  Screened screened;
  screened.counted.assign(values.size(), 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!counted.empty() && counted[i] == 0) continue;
    if (!usable(values[i])) {
      if (convention.non_finite == NonFinite::refuse && screened.problem.empty())
        screened.problem = fmt::format("element {} is {}", i, values[i]);
      continue;
    }
    screened.counted[i] = 1;
    ++screened.count;
  }
  return screened;
}

std::vector<double> counted_values(std::span<const double> values, std::span<const uint8_t> counted) {
  std::vector<double> taken;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (counted.empty() || counted[i] != 0) taken.push_back(values[i]);
  }
  return taken;
}

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
