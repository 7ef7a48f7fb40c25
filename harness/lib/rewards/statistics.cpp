#include "harness/lib/rewards/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

}  // namespace lockstep::rewards
