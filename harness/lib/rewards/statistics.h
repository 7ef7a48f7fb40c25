#pragma once
// Moments of rewards: two-pass with compensated sums, merged by Chan's formula, never E[x^2] - E[x]^2.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/lib/rewards/convention.h"

namespace lockstep::rewards {

/// Larger ones count as not finite: their squares would leave float64.
inline constexpr double kLargestReward = 1e150;

/// Count, mean and sum of squared differences from the mean.
struct Moments {
  int64_t count = 0;
  double mean = 0;
  double m2 = 0;
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.count, s.mean, s.m2);
  }
  bool operator==(const Moments&) const = default;
};

/// Two passes, each a sum by Neumaier (1974); the second one is corrected for the rounding of the mean (Chan, Golub and
/// LeVeque 1983, eq. 1.7). All values are finite. Of equal values the mean is that value and m2 is 0, exactly.
Moments moments_of(std::span<const double> values);

/// Of both together (Chan, Golub and LeVeque 1983, eq. 2.1); an empty one changes no bit.
Moments merge(const Moments& a, const Moments& b);

/// What divides and is subtracted, and how well it is known.
struct Statistics {
  int64_t count = 0;
  double mean = 0;
  double deviation = 0;  ///< with floor and epsilon; 0 only where the convention has neither
  /// Of the deviation: relative change per relative change of the values, sqrt(1 + mean^2 / variance); infinite if the
  /// variance is 0.
  double condition = 0;
  bool operator==(const Statistics&) const = default;
};

/// With count <= ddof the variance is 0.
Statistics statistics_of(const Moments& moments, const Convention& convention);

/// sum |x| / |sum x|: condition of the mean; infinite if the sum is 0.
double mean_condition(std::span<const double> values);

/// Which rows count: `counted`, a mask or empty for all, without those that the convention masks.
struct Screened {
  std::vector<uint8_t> counted;  ///< by row, 0 or 1
  int64_t count = 0;
  /// "element 3 is nan": under `refuse`, the first row that counts and is not finite; empty: none.
  std::string problem;
};
/// A row that does not count may hold anything.
Screened screen(std::span<const double> values, std::span<const uint8_t> counted, const Convention& convention);

/// The values whose rows count, in order.
std::vector<double> counted_values(std::span<const double> values, std::span<const uint8_t> counted);

}  // namespace lockstep::rewards
