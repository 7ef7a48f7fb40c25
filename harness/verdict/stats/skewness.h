#pragma once
// Are paired differences skewed, or pulled by single seeds? Student's t takes them for normal.

#include <span>
#include <string>
#include <vector>

#include "harness/verdict/results/results.h"

namespace lockstep {

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
