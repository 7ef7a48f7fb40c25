#pragma once
// The arithmetic of paired comparisons: intervals, the equivalence decision, its power, and how many seeds it
// takes.

#include <optional>
#include <span>

#include "harness/judge/results.h"

namespace lockstep {

/// Number, mean and standard deviation (n - 1 in the denominator, two passes) of paired differences.
struct PairedSummary {
  int n = 0;
  double mean = 0;
  double sd = 0;  ///< exactly 0 if all values are equal, and for n < 2
};

/// Throws std::invalid_argument if there is no value or one is not finite, naming its position.
PairedSummary summarize_differences(std::span<const double> differences);

/// Two-sided Student-t interval of the mean at `level` in (0, 1). Nothing for n < 2; for sd 0 the mean
/// itself, without a t.
std::optional<Interval> student_interval(const PairedSummary& summary, double level);

/// `equivalent` if the (1 - 2 alpha) interval lies strictly inside +- margin (two one-sided tests, each at
/// alpha), `divergent` if the (1 - alpha) interval lies strictly beyond the margin on one side, else
/// `inconclusive`.
VerdictKind decide_outcome(const PairedSummary& summary, const Primary& primary);

/// A design whose chance of a decision is asked for: n pairs whose differences are normal with this mean and
/// sd.
struct PowerQuestion {
  int n = 2;
  double sd = 0;
  double margin = 0;
  double alpha = 0.05;
  double true_difference = 0;
};

/// Probability that decide_outcome says `equivalent`. Exact for normal differences: the mean and the standard
/// deviation s of a sample are independent, so P = integral over the distribution of s of Phi((m - d - t s /
/// sqrt(n)) sqrt(n) / sd) - Phi((-m - d + t s / sqrt(n)) sqrt(n) / sd), taken where t s / sqrt(n) < m.
/// (Owen's Q writes the same integral; Diletti, Hauschke and Steinijans 1991.) 0 for n < 2.
double equivalence_power(const PowerQuestion& question);

/// Probability that decide_outcome says `divergent`, by the same integral.
double divergence_power(const PowerQuestion& question);

inline constexpr int kMostSeeds = 10'000;
inline constexpr double kWantedPower = 0.8;

/// Smallest n (question.n is ignored) with which the decision that the true difference calls for -
/// `equivalent` inside the margin, `divergent` beyond it - is reached with probability kWantedPower;
/// kMostSeeds if that many do not suffice.
int seeds_needed(const PowerQuestion& question);

}  // namespace lockstep
