#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/answer/results/results.h"

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

// The sign test: decides on the median of paired differences, whatever their shape.

/// P(X >= count), X ~ Bin(n, 1/2): the exact one-sided p of `count` of n differences on one side (Arbuthnott
/// 1710; Conover 1999, section 3.4).
double sign_tail(int n, int count);

/// Smallest count of n whose tail is alpha at most; n + 1 where even all n are not enough.
int sign_count(int n, double alpha);

// Are paired differences skewed, or pulled by single seeds? Student's t takes them for normal.

/// Level at which a verdict by t warns of skewed differences.
inline constexpr double kSkewLevel = 0.05;
/// Fewest pairs of which a verdict warns: of three, skewness says next to nothing.
inline constexpr int kSkewPairs = 4;

/// Third central moment over the second to the power 3/2, both with n in the denominator; 0 for values without
/// spread.
double skewness_of(std::span<const double> values);

/// Two-sided p of such a skewness among normal values of any mean and spread; 1 for fewer than three, whose skewness is always 0, or
/// without spread.
///
/// Up to 100 values by simulation from keyed draws (Dwass 1957; Barnard 1963): with 9,999 normal samples of the
/// same size, (1 + those at least as skewed) / 10,000, which is at most alpha with a chance of at most alpha at
/// any size. Beyond, by D'Agostino's transformation to a normal value (D'Agostino 1970), which holds from 8
/// values on.
double skewness_p(std::span<const double> values);

/// Does the outcome's test assume a shape that its differences do not have?
bool is_skewed(const Outcome& outcome);

/// "its pairs' differences are skewed (skewness -2.1, p 0.0004 over 10 pairs), ...": what that means for t, and
/// what to do. Of an outcome that is_skewed.
std::string skew_in_words(const Outcome& outcome);

/// The largest share of seeds that may do what none of `pairs` seeds did, at this level: 1 - (1 - level)^(1 /
/// pairs), the upper bound of Clopper and Pearson (1934) for none.
double unseen_share(int pairs, double level);

/// "A failure in fewer than 26 % of seeds may simply not be among these 10 (probability above 5 %)": of what
/// no test can see, with as many pairs as the cell with the most has that was called equivalent. Empty where
/// none was.
std::string unseen_in_words(const std::vector<CellResult>& cells);

// What the test that the matrix names says of paired differences.

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

// What a design can show: the power of either test, the seeds that it takes, the differences that it can see.

/// A design whose chance of a decision is asked for: n pairs whose differences are normal with this mean and
/// sd.
struct PowerQuestion {
  int n = 2;
  double sd = 0;
  double margin = 0;
  double alpha = 0.05;
  double true_difference = 0;
  OutcomeTest test = OutcomeTest::t;
};

/// Probability that the test says `equivalent`, exact for normal differences; 0 for n < 2.
///
/// By t: the mean and the standard deviation s of a sample are independent, so P = integral over the
/// distribution of s of Phi((m - d - t s / sqrt(n)) sqrt(n) / sd) - Phi((-m - d + t s / sqrt(n)) sqrt(n) / sd),
/// taken where t s / sqrt(n) < m. (Owen's Q writes the same integral; Diletti, Hauschke and Steinijans 1991.) By
/// sign: of n trinomial counts no more lie at or beyond either margin than the test allows.
double equivalence_power(const PowerQuestion& question);

/// Probability that the test says `divergent`, likewise.
double divergence_power(const PowerQuestion& question);

inline constexpr int kMostSeeds = 10'000;
inline constexpr double kWantedPower = 0.8;

/// An n (question.n is ignored) with which the decision that the true difference calls for - `equivalent` inside
/// the margin, `divergent` beyond it - is reached with probability kWantedPower: by t the smallest; by sign,
/// whose power rises in saw teeth, maybe a few more. kMostSeeds if that many do not suffice.
int seeds_needed(const PowerQuestion& question);

/// Smallest true difference, beyond the margin, that n pairs call `divergent` with probability kWantedPower
/// (question.true_difference is ignored); infinite where no difference does, as with one pair. 0, not known, where sd is 0:
/// differences that do not scatter are of copies, and say nothing of runs that differ.
double detectable_difference(PowerQuestion question);

}  // namespace lockstep
