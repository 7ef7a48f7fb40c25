#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "harness/plan/matrix/matrix.h"

// How much of alpha each look of a sequential comparison may use, so that looking often does not lie.

namespace lockstep {

struct SpendingAnalysis {
  int n = 0;
  double information = 0;  ///< n over the most seeds
  double spent = 0;        ///< of alpha, up to this look
  double nominal = 0;      ///< level at which each one-sided test is made at this look
};

/// Lan and DeMets (1983) with the spending function that resembles Pocock's boundary, alpha * ln(1 + (e - 1) *
/// information): looks of few seeds get a level at which few seeds can decide.
///
/// The nominal level of a look is that at which the chance to reject at this look and at none before, the true
/// difference being exactly at the margin, is what this look may spend. The chance is taken by the recursion of
/// Armitage, McPherson and Rowe (1969), not over normal values, which spends too much where seeds are few, but
/// over Student's t itself: of normal values around 0, the share u = sum / sqrt(n * sum of squares) is
/// independent of the sum of squares, so from look to look it is a Markov chain in one number, whatever their
/// standard deviation. One level serves all tests of a look: it is the smaller of those for alpha (equivalence,
/// each side) and for alpha / 2 (divergence, each side), the latter doubled.
///
/// Of the sign test the recursion runs over the number of differences on one side, a binomial walk: it is exact,
/// and spends less than it may where one difference more or less spends too much. A look at which even all
/// differences on one side would spend too much has a level below their tail.
std::vector<SpendingAnalysis> spending_analyses(const SeedsAuto& seeds, double alpha, OutcomeTest test = OutcomeTest::t);

// Of several arms that share one reference: which are shown to be worse than another one?

/// Differences of an arm from the reference that all arms share, by seed.
using DifferenceBySeed = std::map<int64_t, double>;

struct BestOf {
  int sense = 1;      ///< +1 if more of the metric is better, -1 if less is
  Primary primary;    ///< its alpha and its test
  SeedsAuto looks{};  ///< where on: pairs were added look by look, and each look has its nominal level
};

/// For each arm: is another one shown to be better? The chance that any arm is called worse that is as good as
/// all others is at most alpha, whatever truly holds of the rest and however arms depend on each other: every
/// ordered pair of arms has a one-sided paired test over the seeds that both have, and Holm's procedure (1979)
/// goes over all of them. An arm that looks best is no reference that was fixed before: tests against it alone,
/// adjusted for their own number, call one of four equal arms worse with a chance of 0.135 at alpha 0.05.
std::vector<bool> shown_worse(const std::vector<const DifferenceBySeed*>& arms, const BestOf& how);

}  // namespace lockstep
