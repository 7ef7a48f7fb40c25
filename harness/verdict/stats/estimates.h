#pragma once

#include <optional>
#include <span>
#include <vector>

#include "harness/verdict/results/results.h"

// Where the middle of paired differences lies, by estimates that do not all hang on one seed: beside the mean
// with Student's t, which decides, a median, a mean of the middle half, and intervals that assume no normal
// shape.

namespace lockstep {

/// Resamples of every bootstrap here, and the number of pairs from which the BCa interval is used: below it
/// the studentised one (Efron and Tibshirani 1993, chapters 12 and 14).
inline constexpr int kResamples = 2000;
inline constexpr int kBcaPairs = 20;
/// Fewest pairs with a middle half: one value is cut off at each end, three are left.
inline constexpr int kIqmPairs = 5;

/// Mean of what is left when floor(n / 4) values are cut off at each end.
double interquartile_mean(std::span<const double> values);

/// Between the k-th smallest and k-th largest value, k the largest whose exact binomial level 1 - 2 P(X < k),
/// X ~ Bin(n, 1/2), is `level` or more. Of too few values for that (n < 6 at 0.95): all of them, with the
/// lower level that they have.
Interval median_interval(std::span<const double> values, double level);

enum class Middle { mean, interquartile_mean };

/// Bias-corrected and accelerated bootstrap interval: the percentiles of kResamples resampled estimates,
/// moved by the median bias z0 and the acceleration a of the jackknife (Efron 1987; Efron and Tibshirani
/// 1993, eq. 14.9 to 14.15).
Interval bca_interval(std::span<const double> values, Middle middle, double level);

/// Bootstrap-t interval (Efron and Tibshirani 1993, eq. 12.22): percentiles of (estimate* - estimate) / se*.
/// The standard error of the interquartile mean is that of a trimmed mean, from the winsorised sum of squares
/// (Tukey and McLaughlin 1963; Yuen 1974). May have infinite ends where resamples without spread are many.
Interval studentised_interval(std::span<const double> values, Middle middle, double level);

/// Mean, median and interquartile mean with intervals at 1 - alpha. Nothing for n < 2; the interquartile mean
/// from kIqmPairs pairs on; the mean by BCa too from kBcaPairs on. An estimate whose interval has no finite
/// ends is left out. Draws are keyed: the same differences give the same bits.
std::vector<Estimate> estimate_middle(std::span<const double> differences, double alpha);

// The arithmetic of paired comparisons by Student's t: intervals, the equivalence decision, p values.

/// Number, mean and standard deviation (n - 1 in the denominator, two passes) of paired differences.
struct PairedSummary {
  int n = 0;
  double mean = 0;
  double sd = 0;  ///< exactly 0 if all values are equal, and for n < 2
};

/// Throws std::invalid_argument if there is no value or one is not finite, naming its position.
PairedSummary summarize_differences(std::span<const double> differences);

/// Quantile of Student's t of n values, so with n - 1 degrees of freedom.
double student_quantile(double probability, int n);

/// Two-sided Student-t interval of the mean at `level` in (0, 1). Nothing for n < 2; for sd 0 the mean
/// itself, without a t.
std::optional<Interval> student_interval(const PairedSummary& summary, double level);

/// `equivalent` if the (1 - 2 alpha) interval lies strictly inside +- margin (two one-sided tests, each at
/// alpha), `divergent` if the (1 - alpha) interval lies strictly beyond the margin on one side, else
/// `inconclusive`.
VerdictKind decide_outcome(const PairedSummary& summary, const Primary& primary);

/// Level of the upper bound of a standard deviation with which power is asked for: a design that is planned
/// with the sd as measured has less than its power in more than half of all cases (Browne 1995).
inline constexpr double kSdLevel = 0.8;

/// Upper confidence bound of the true standard deviation of normal differences, one-sided at `level`:
/// sqrt((n - 1) s^2 / q), q the (1 - level) quantile of chi-square with n - 1 degrees of freedom. Infinite
/// for n < 2, 0 for sd 0.
double sd_upper_bound(const PairedSummary& summary, double level = kSdLevel);

/// p values of the two questions; 1 for n < 2. Without spread the mean decides: 0 or 1.
struct PValues {
  double equivalent = 1;  ///< larger p of the two one-sided t tests against +- margin (Schuirmann 1987)
  double different = 1;   ///< two-sided t test of a difference of 0
};
PValues p_values_of(const PairedSummary& summary, double margin);

/// Holm's adjusted p values (Holm 1979), in the order given: claims picked from among all of them whose
/// adjusted p is at most alpha are all true with probability 1 - alpha at least, whatever their dependence.
std::vector<double> holm_adjusted(std::span<const double> p);

}  // namespace lockstep
