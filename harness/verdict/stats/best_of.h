#pragma once
// Of several arms that share one reference: which are shown to be worse than another one?

#include <cstdint>
#include <map>
#include <vector>

#include "harness/verdict/plan/matrix.h"

namespace lockstep {

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
