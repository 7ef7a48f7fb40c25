#pragma once
// Advantages of a whole batch in its order: every rank computes them from the same gathered rewards, so that they have
// the same bits everywhere, however the rows were partitioned.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/rewards/statistics.h"

namespace lockstep::rewards {

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
