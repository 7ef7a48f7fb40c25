#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Moments of rewards and the deviation that is made of them: two-pass with compensated sums, merged by Chan's formula, never
// E[x^2] - E[x]^2.

namespace lockstep::rewards {

/// Where the epsilon is added: sqrt(variance) + epsilon, or sqrt(variance + epsilon).
enum class EpsilonPlace { outside, inside };
/// What the floor bounds: max(deviation, floor), or sqrt(max(variance, floor)); before the epsilon in both.
enum class FloorPlace { deviation, variance };
/// What a NaN or an infinity does: the step is refused on all ranks, or the row counts nowhere.
enum class NonFinite { refuse, mask };
/// The advantage of a group of one row, which has no deviation: 0, or its raw reward.
enum class GroupOfOne { zero, raw };

/// How a deviation is made of rewards, and how it divides: at least five ways are in use, and none is the right one.
struct Convention {
  int ddof = 0;  ///< the variance divides by count - ddof; 0: of a population, 1: Bessel's
  double epsilon = 0;
  EpsilonPlace epsilon_place = EpsilonPlace::outside;
  double floor = 1e-4;  ///< 0: none
  FloorPlace floor_place = FloorPlace::deviation;
  NonFinite non_finite = NonFinite::refuse;
  GroupOfOne group_of_one = GroupOfOne::zero;
  bool operator==(const Convention&) const = default;
};

/// What divides an advantage, of a variance >= 0: floor, epsilon and root where the convention has them.
double deviation_of(double variance, const Convention& convention);

/// "population deviation, floor 0.0001 under the deviation".
std::string in_words(const Convention& convention);

/// Larger ones count as not finite: their squares would leave float64.
inline constexpr double kLargestReward = 1e150;

/// Count, mean and sum of squared differences from the mean.
struct Moments {
  int64_t count = 0;
  double mean = 0;
  double m2 = 0;
  bool operator==(const Moments&) const = default;
};

/// Two passes, each a sum by Neumaier (1974); the second one is corrected for the rounding of the mean (Chan, Golub and
/// LeVeque 1983, eq. 1.7). All values are finite. Of equal values the mean is that value and m2 is 0, exactly.
Moments moments_of(std::span<const double> values);

/// Of both together (Chan, Golub and LeVeque 1983, eq. 2.1); an empty one changes no bit.
Moments merge(const Moments& a, const Moments& b);

/// What divides and is subtracted.
struct Statistics {
  int64_t count = 0;
  double mean = 0;
  double deviation = 0;  ///< with floor and epsilon; 0 only where the convention has neither
  bool operator==(const Statistics&) const = default;
};

/// With count <= ddof the variance is 0.
Statistics statistics_of(const Moments& moments, const Convention& convention);

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

// Advantages of a whole batch in its order: every rank computes them from the same gathered rewards, so that they have
// the same bits everywhere, however the rows were partitioned.

enum class Estimator {
  leave_one_out,  ///< reward - mean of the others of its group (RLOO, Kool et al. 2019); no deviation
  global,         ///< (reward - mean of the batch) / deviation of the batch
  group,          ///< (reward - mean of its group) / deviation of its group (GRPO)
  group_mean,     ///< (reward - mean of its group) / deviation of the batch
};
std::string_view name_of(Estimator estimator);

/// Rows of all ranks, in the batch's order.
struct Batch {
  std::span<const double> rewards;
  std::span<const int64_t> groups;   ///< by row; which rows share a prompt; their order and place are free
  std::span<const uint8_t> counted;  ///< by row; empty: all count
};

struct Advantages {
  std::vector<double> values;  ///< by row; 0 for rows that do not count
  Statistics batch;            ///< of all rows that count
  std::vector<int64_t> group_ids;      ///< ascending; groups of at least one row that counts
  std::vector<Statistics> by_group;    ///< of each of them
  std::string problem;                 ///< nothing was computed: which row is why
};

/// A group of one row: leave_one_out and group give 0 or the raw reward as the convention says (raw: mean 0, deviation 1).
/// No row that counts: no advantages and no problem. Throws std::invalid_argument if the spans' sizes differ.
Advantages advantages_of(const Batch& batch, Estimator estimator, const Convention& convention);

/// A way in which rewards become advantages.
struct AdvantageWay {
  Estimator estimator = Estimator::global;
  Convention convention;
};

/// "global, population deviation, floor 0.0001 under the deviation"; "leave_one_out", which does not divide.
std::string in_words(const AdvantageWay& way);

/// A convention that a project uses.
struct KnownConvention {
  std::string_view project;
  Convention convention;
};
std::span<const KnownConvention> known_conventions();

/// The way that gives these advantages of these rewards, each to `tolerance` of the largest: of every estimator the
/// known conventions, in their order; nothing if none does. Several may, on some rows: then it is the first.
std::optional<AdvantageWay> fitted_way(const Batch& batch, std::span<const double> advantages, double tolerance);

}  // namespace lockstep::rewards
