#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/verdict/results/results.h"
#include "harness/verdict/stats/estimates.h"

// The sign test: decides on the median of paired differences, whatever their shape.

namespace lockstep {

/// P(X >= count), X ~ Bin(n, 1/2): the exact one-sided p of `count` of n differences on one side (Arbuthnott
/// 1710; Conover 1999, section 3.4).
double sign_tail(int n, int count);

/// Smallest count of n whose tail is alpha at most; n + 1 where even all n are not enough.
int sign_count(int n, double alpha);

/// `equivalent` if so many differences lie strictly below the margin, and so many strictly above minus the
/// margin, that either one-sided sign test rejects at alpha; `divergent` if so many lie strictly beyond the
/// margin on one side that it rejects at alpha / 2; else `inconclusive`, as with fewer than 5 pairs (divergent:
/// 6) at 0.05. A difference at the margin itself counts against either.
///
/// It holds for the median of independent differences of any distribution: fewer than half of the seeds may do
/// anything. The mean may lie elsewhere.
VerdictKind decide_by_sign(std::span<const double> differences, const Primary& primary);

/// Its p values; differences of exactly 0 count against a difference.
PValues sign_p_values(std::span<const double> differences, double margin);

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

}  // namespace lockstep
