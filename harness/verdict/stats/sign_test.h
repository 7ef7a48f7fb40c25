#pragma once
// The sign test: decides on the median of paired differences, whatever their shape.

#include <span>

#include "harness/verdict/results/results.h"
#include "harness/verdict/stats/stats.h"

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

}  // namespace lockstep
