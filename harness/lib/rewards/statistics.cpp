#include "harness/lib/rewards/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

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
  Statistics statistics{moments.count, moments.mean, deviation_of(variance, convention),
                        std::numeric_limits<double>::infinity()};
  if (variance > 0) statistics.condition = std::sqrt(1 + moments.mean / variance * moments.mean);
  return statistics;
}

double mean_condition(std::span<const double> values) {
  Sum sum, sizes;
  for (const double value : values) {
    sum.add(value);
    sizes.add(std::abs(value));
  }
  if (sum.value() == 0) return std::numeric_limits<double>::infinity();
  return sizes.value() / std::abs(sum.value());
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

}  // namespace lockstep::rewards
