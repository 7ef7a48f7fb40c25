#pragma once
// What a design can show: the power of either test, the seeds that it takes, the differences that it can see.

#include "harness/verdict/results/results.h"

namespace lockstep {

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
