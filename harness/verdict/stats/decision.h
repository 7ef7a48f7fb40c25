#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "harness/verdict/results/results.h"
#include "harness/verdict/stats/estimates.h"

// What the test that the matrix names says of paired differences.

namespace lockstep {

struct Decision {
  VerdictKind verdict = VerdictKind::inconclusive;
  double middle = 0;     ///< the mean; of the sign test the median
  Interval interval;     ///< of the middle at 1 - alpha, two-sided; infinite for one pair
  Interval equivalence;  ///< at 1 - 2 alpha
  PValues p;
};

/// By primary.test. Intervals of the sign test lie between order statistics: their level is the exact one, no
/// less than was asked; they are infinite where so few pairs have no such interval. Throws std::invalid_argument
/// as summarize_differences does.
Decision decide_fully(std::span<const double> differences, const Primary& primary);

/// The verdict alone.
VerdictKind decide(std::span<const double> differences, const Primary& primary);

/// One-sided p of the middle being above 0, by that test; 1 for one value.
double p_above_zero(std::span<const double> values, OutcomeTest test);

// Shares of trials with exact intervals.

/// The `asked` of a rate from which nothing is required.
inline constexpr double kNothingAsked = -1;

/// Hits among trials with the exact two-sided interval of Clopper and Pearson (1934).
DetectionRate detection_rate(std::string what, int64_t hits, int64_t of, double level = 0.95);

}  // namespace lockstep
