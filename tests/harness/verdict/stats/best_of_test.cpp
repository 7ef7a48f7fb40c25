// Which of several arms is shown to be worse, by simulated families: the promise is about the whole family.

#include "harness/verdict/stats/spending.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/verdict/stats/decision.h"
#include "harness/verdict/stats/estimates.h"
#include "tests/support/normal_draws.h"
#include "tests/support/proportion.h"

namespace lockstep {
namespace {

using support::certain_bounds;
using support::NormalDraws;
using support::Proportion;

constexpr int kFamilies = 2000, kArms = 4, kSeeds = 10;

/// Differences from one reference, which all arms share, and so its noise; `effects` in standard deviations of
/// an arm's own noise.
std::vector<DifferenceBySeed> family(NormalDraws& draws, const std::vector<double>& effects, int seeds = kSeeds) {
  std::vector<DifferenceBySeed> arms(effects.size());
  for (int64_t seed = 0; seed < seeds; ++seed) {
    const double reference = draws.normal();
    for (std::size_t i = 0; i < arms.size(); ++i) arms[i][seed] = effects[i] + draws.normal() - reference;
  }
  return arms;
}

std::vector<bool> judged(const std::vector<DifferenceBySeed>& arms, const BestOf& how) {
  std::vector<const DifferenceBySeed*> pointers;
  for (const DifferenceBySeed& arm : arms) pointers.push_back(&arm);
  return shown_worse(pointers, how);
}

bool any(const std::vector<bool>& shown) { return std::ranges::find(shown, true) != shown.end(); }

double mean_of(const DifferenceBySeed& arm) {
  double sum = 0;
  for (const auto& [seed, value] : arm) sum += value;
  return sum / static_cast<double>(arm.size());
}

/// The fault: the arm that looks best is mistaken for a reference, and Holm goes over the tests against it alone.
bool any_worse_than_the_best_looking(const std::vector<DifferenceBySeed>& arms) {
  const auto& best = *std::ranges::max_element(arms, {}, mean_of);
  std::vector<double> p;
  for (const DifferenceBySeed& arm : arms) {
    if (&arm == &best) continue;
    std::vector<double> lost;
    for (const auto& [seed, value] : arm) lost.push_back(best.at(seed) - value);
    p.push_back(p_above_zero(lost, OutcomeTest::t));
  }
  return std::ranges::min(holm_adjusted(p)) <= 0.05;
}

TEST(ShownWorse, OfEqualArmsNoneIsCalledWorseMoreOftenThanAlpha) {
  for (const OutcomeTest test : {OutcomeTest::t, OutcomeTest::sign}) {
    BestOf how;
    how.primary.test = test;
    NormalDraws draws(1);
    Proportion wrong;
    for (wrong.trials = 0; wrong.trials < kFamilies; ++wrong.trials)
      wrong.hits += any(judged(family(draws, std::vector<double>(kArms, 0)), how));
    EXPECT_LE(certain_bounds(wrong).low, 0.05) << name_of(test) << " " << wrong.hits;
    EXPECT_LE(wrong.hits, 0.05 * kFamilies + 4 * std::sqrt(0.05 * 0.95 * kFamilies)) << name_of(test);
  }
}

TEST(ShownWorse, TheArmThatLooksBestIsNoReferenceThatWasFixedBefore) {
  NormalDraws draws(1);
  Proportion wrong;
  for (wrong.trials = 0; wrong.trials < kFamilies; ++wrong.trials)
    wrong.hits += any_worse_than_the_best_looking(family(draws, std::vector<double>(kArms, 0)));
  EXPECT_GT(certain_bounds(wrong).low, 0.08) << "the promise that was made of these tests is broken";
}

TEST(ShownWorse, BelowOneBetterArmTheEqualOnesAtTheTopAreSpared) {
  BestOf how;
  NormalDraws draws(2);
  Proportion wrong;
  for (wrong.trials = 0; wrong.trials < kFamilies; ++wrong.trials) {
    const std::vector<bool> shown = judged(family(draws, {0, 0, 0, -3}), how);
    wrong.hits += shown[0] || shown[1] || shown[2];
  }
  EXPECT_LE(certain_bounds(wrong).low, 0.05) << wrong.hits;
}

TEST(ShownWorse, FindsAnArmThatIsClearlyWorse) {
  BestOf how;
  NormalDraws draws(3);
  int found = 0;
  for (int i = 0; i < kFamilies; ++i) found += judged(family(draws, {0, 0, 0, -3}), how)[3];
  EXPECT_GT(found, 0.95 * kFamilies);
  how.sense = -1;
  for (int i = 0, wrong = 0; i < 100; ++i) {
    wrong += judged(family(draws, {0, 0, 0, -3}), how)[3];
    EXPECT_LE(wrong, 10) << "less is better: now that arm is the best";
  }
}

TEST(ShownWorse, TwoArmsOfWhichEitherMayLookBestAreTestedBothWays) {
  // One-sided p of 0.033: enough against a reference that was fixed before, not against the one that came out better.
  DifferenceBySeed one, other;
  for (int64_t seed = 0; seed < kSeeds; ++seed) {
    one[seed] = 0;
    other[seed] = -0.66 + (seed % 2 == 0 ? 0.9487 : -0.9487);
  }
  std::vector<double> lost;
  for (const auto& [seed, value] : other) lost.push_back(-value);
  EXPECT_NEAR(p_above_zero(lost, OutcomeTest::t), 0.033, 0.003);
  EXPECT_FALSE(any(shown_worse({&one, &other}, {})));
}

TEST(ShownWorse, ArmsThatStoppedAtLooksKeepAlphaOverAllLooks) {
  BestOf how;
  how.looks = {.on = true, .first = 5, .step = 5, .most = 20, .budget_s = 0};
  NormalDraws draws(4);
  Proportion wrong, unspent;
  for (wrong.trials = unspent.trials = 0; wrong.trials < 1000; ++wrong.trials, ++unspent.trials) {
    const std::vector<DifferenceBySeed> arms = family(draws, std::vector<double>(kArms, 0), 20);
    bool at_nominal = false, at_full = false;
    for (const int n : {5, 10, 15, 20}) {
      std::vector<DifferenceBySeed> seen(arms.size());
      for (std::size_t i = 0; i < arms.size(); ++i) seen[i].insert(arms[i].begin(), arms[i].find(n));
      at_nominal |= any(judged(seen, how));
      at_full |= any(judged(seen, {}));
    }
    wrong.hits += at_nominal;
    unspent.hits += at_full;
  }
  EXPECT_LE(certain_bounds(wrong).low, 0.05) << wrong.hits;
  EXPECT_LT(wrong.hits, unspent.hits);
}

}  // namespace
}  // namespace lockstep
