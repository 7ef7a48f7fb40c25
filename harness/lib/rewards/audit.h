#pragma once
// Are a step's rewards, advantages and first ratios the reference's, and if not, which known mistake gives these? What each
// would give is computed from the rows of all ranks, and compared with what was recorded.

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/rewards/advantages.h"

namespace lockstep::rewards {

/// A row in both runs; where there is no cost, both are 0, and no advantage, both are 0; no ratio: NaN.
struct AuditedRow {
  int64_t id = 0, group = 0, micro_step = 0;
  int rank = 0;  ///< that has it
  double expected_reward = 0, reward = 0, cost = 0, found_cost = 0;
  double expected_advantage = 0, advantage = 0;
  double expected_ratio = std::numeric_limits<double>::quiet_NaN(), ratio = expected_ratio;
};

/// A step's rows of all ranks, by ascending id.
struct AuditedStep {
  std::vector<AuditedRow> rows;
  double band = 0;                  ///< what rounding may make of a value
  int ranks = 1;
  double penalty = 0;               ///< what a cost takes off a reward
  std::optional<AdvantageWay> way;  ///< in which the reference's advantages are made; nothing: not known
  std::vector<double> before;       ///< rewards of the step before, by ascending id; empty: not recorded

  bool differ(double a, double b) const;
  bool reward_right(const AuditedRow& row) const {
    return !differ(row.expected_reward, row.reward) && !differ(row.cost, row.found_cost);
  }
  std::vector<double> all(double AuditedRow::* member) const;
  std::vector<int64_t> groups() const;
};

struct Finding {
  std::string code;
  double confidence = 0;
  std::string evidence;
  std::set<int> ranks;  ///< whose mistake it is; empty: that of all
};

/// What is wrong; nothing if nothing is, or if no known mistake fits.
std::optional<Finding> audit(const AuditedStep& step);

/// A known mistake at length, in the words of a page of causes.
struct MistakePage {
  std::string_view code, what, recognised, wrong, right, remedy;
};
std::span<const MistakePage> mistake_pages();

}  // namespace lockstep::rewards
