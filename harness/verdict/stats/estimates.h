#pragma once
// Where the middle of paired differences lies, by estimates that do not all hang on one seed: beside the mean
// with Student's t, which decides, a median, a mean of the middle half, and intervals that assume no normal
// shape.

#include <span>
#include <vector>

#include "harness/verdict/results/results.h"

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

}  // namespace lockstep
