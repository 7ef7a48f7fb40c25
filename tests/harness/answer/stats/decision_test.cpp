#include <boost/math/distributions/students_t.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/answer/questions/sentences.h"
#include "harness/answer/results/words.h"
#include "harness/answer/stats/controls.h"
#include "harness/answer/stats/estimates.h"
#include "harness/answer/stats/outcome.h"
#include "harness/answer/stats/spending.h"
#include "harness/base/numbers.h"
#include "harness/plan/config/canonical.h"
#include "tests/support/synthetic_matrix.h"

// The sign test beside t: what it decides, its power and its looks, on differences of any shape.

namespace lockstep {
namespace {

using support::certain_bounds;
using support::NormalDraws;
using support::Proportion;
using testing::HasSubstr;
using testing::Not;

constexpr Primary kSign{.metric = {}, .margin = 0.03, .alpha = 0.05, .target = 0, .test = OutcomeTest::sign};

TEST(SignTest, TailsAreBinomial) {
  EXPECT_EQ(sign_tail(5, 5), 1.0 / 32);
  EXPECT_NEAR(sign_tail(10, 9), 11.0 / 1024, 1e-15);
  EXPECT_EQ(sign_tail(10, 0), 1);
  EXPECT_EQ(sign_tail(10, 11), 0);
  EXPECT_EQ(sign_count(5, 0.05), 5);
  EXPECT_EQ(sign_count(4, 0.05), 5) << "four pairs decide nothing";
  EXPECT_EQ(sign_count(10, 0.05), 9);
}

TEST(SignTest, NeedsFivePairsForEquivalentAndSixForDivergent) {
  const std::vector<double> small(6, 0.001), large(6, -0.2);
  const auto first = [](const std::vector<double>& values, std::size_t n) { return std::span(values).first(n); };
  EXPECT_EQ(decide(first(small, 4), kSign), VerdictKind::inconclusive);
  EXPECT_EQ(decide(first(small, 5), kSign), VerdictKind::equivalent);
  EXPECT_EQ(decide(first(large, 5), kSign), VerdictKind::inconclusive);
  EXPECT_EQ(decide(first(large, 6), kSign), VerdictKind::divergent);
  EXPECT_TRUE(std::isinf(decide_fully(first(small, 4), kSign).interval.high)) << "no interval of four reaches the "
                                                                                 "level";
}

TEST(SignTest, DecidesAsItsIntervalsDo) {
  NormalDraws draws(1);
  int equivalent = 0, divergent = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<double> values(12);
    const double middle = 0.06 * draws.normal();
    for (double& value : values) value = middle + 0.02 * draws.normal();
    const Decision d = decide_fully(values, kSign);
    const bool inside = d.equivalence.low > -0.03 && d.equivalence.high < 0.03;
    const bool beyond = d.interval.low > 0.03 || d.interval.high < -0.03;
    ASSERT_EQ(d.verdict == VerdictKind::equivalent, inside) << i;
    ASSERT_EQ(d.verdict == VerdictKind::divergent, beyond) << i;
    ASSERT_EQ(d.p.equivalent <= 0.05, inside) << i;
    equivalent += inside;
    divergent += beyond;
  }
  EXPECT_GT(equivalent, 200);
  EXPECT_GT(divergent, 200);
}

TEST(SignTest, ADifferenceAtTheMarginCountsAgainstBoth) {
  EXPECT_EQ(decide(std::vector<double>(20, 0.03), kSign), VerdictKind::inconclusive);
  EXPECT_EQ(decide_fully(std::vector<double>(20, 0.0), kSign).p.different, 1);
}

/// Share of comparisons called `verdict`, of n differences that `draw` gives.
template <typename F>
Proportion share_of(VerdictKind verdict, int n, const Primary& primary, F draw) {
  Proportion share;
  std::vector<double> values(static_cast<std::size_t>(n));
  for (share.trials = 0; share.trials < 10'000; ++share.trials) {
    for (double& value : values) value = draw();
    share.hits += decide(values, primary) == verdict;
  }
  return share;
}

TEST(SignTest, HoldsAtTheMarginWhateverTheShapeWhereTDoesNot) {
  NormalDraws draws(2);
  // Log-normal with its tail beyond the margin: the median at the margin, and the mean there.
  const auto median_there = [&] { return 0.03 + 0.004 * (std::exp(draws.normal()) - 1); };
  const auto mean_there = [&] { return 0.03 + 0.004 * (std::exp(draws.normal()) - std::sqrt(std::exp(1.0))); };
  Primary by_t = kSign;
  by_t.test = OutcomeTest::t;
  for (const int n : {5, 10, 20}) {
    EXPECT_LE(certain_bounds(share_of(VerdictKind::equivalent, n, kSign, median_there)).low, 0.05) << n;
    EXPECT_LE(certain_bounds(share_of(VerdictKind::divergent, n, kSign, median_there)).low, 0.025) << n;
    EXPECT_GT(certain_bounds(share_of(VerdictKind::equivalent, n, by_t, mean_there)).low, 0.1) << n;
  }
}

TEST(SignTest, PowerAgreesWithSimulation) {
  NormalDraws draws(3);
  for (const PowerQuestion& q : {PowerQuestion{10, 0.02, 0.03, 0.05, 0.01, OutcomeTest::sign},
                                 PowerQuestion{20, 0.04, 0.03, 0.05, 0, OutcomeTest::sign},
                                 PowerQuestion{20, 0.03, 0.03, 0.05, -0.06, OutcomeTest::sign}}) {
    const auto draw = [&] { return q.true_difference + q.sd * draws.normal(); };
    const Interval equivalent = certain_bounds(share_of(VerdictKind::equivalent, q.n, kSign, draw));
    EXPECT_GE(equivalence_power(q), equivalent.low) << q.n;
    EXPECT_LE(equivalence_power(q), equivalent.high) << q.n;
    const Interval divergent = certain_bounds(share_of(VerdictKind::divergent, q.n, kSign, draw));
    EXPECT_GE(divergence_power(q), divergent.low) << q.n;
    EXPECT_LE(divergence_power(q), divergent.high) << q.n;
  }
  EXPECT_EQ(equivalence_power({4, 0.0, 0.03, 0.05, 0, OutcomeTest::sign}), 0);
  EXPECT_EQ(equivalence_power({5, 0.0, 0.03, 0.05, 0, OutcomeTest::sign}), 1);
  EXPECT_EQ(divergence_power({5, 0.0, 0.03, 0.05, 1, OutcomeTest::sign}), 0);
}

TEST(SignTest, SeedsNeededHaveThePower) {
  for (const double sd : {0.01, 0.03, 0.1}) {
    PowerQuestion q{2, sd, 0.03, 0.05, 0, OutcomeTest::sign};
    q.n = seeds_needed(q);
    EXPECT_GE(equivalence_power(q), kWantedPower) << sd;
    q.test = OutcomeTest::t;
    EXPECT_GT(q.n, seeds_needed(q)) << "what assumes less takes more seeds";
  }
}

TEST(SignTest, LooksSpendNoMoreThanAlpha) {
  const SeedsAuto looks{.on = true, .first = 5, .step = 5, .most = 40, .budget_s = 0};
  const std::vector<SpendingAnalysis> planned = spending_analyses(looks, 0.05, OutcomeTest::sign);
  NormalDraws draws(4);
  Proportion equivalent;
  std::vector<double> values(40);
  for (equivalent.trials = 0; equivalent.trials < 20'000; ++equivalent.trials) {
    for (double& value : values) value = 0.03 + 0.01 * (std::exp(draws.normal()) - 1);
    equivalent.hits += take_interim_analyses(values, planned, kSign).back().verdict == VerdictKind::equivalent;
  }
  EXPECT_LE(certain_bounds(equivalent).low, 0.05);
  EXPECT_GT(certain_bounds(equivalent).high, 0.005) << "a level that nothing reaches would keep any promise";
  // At the full level at each look it would lie.
  Proportion unspent;
  std::vector<SpendingAnalysis> full = planned;
  for (SpendingAnalysis& look : full) look.nominal = 0.05;
  for (unspent.trials = 0; unspent.trials < 5'000; ++unspent.trials) {
    for (double& value : values) value = 0.03 + 0.01 * draws.normal();
    unspent.hits += take_interim_analyses(values, full, kSign).back().verdict == VerdictKind::equivalent;
  }
  EXPECT_GT(certain_bounds(unspent).low, 0.05);
}

TEST(DetectableDifference, IsWhereTheDivergencePowerReachesFourFifths) {
  for (const OutcomeTest test : {OutcomeTest::t, OutcomeTest::sign}) {
    PowerQuestion q{10, 0.02, 0.03, 0.05, 0, test};
    q.true_difference = detectable_difference(q);
    EXPECT_GT(q.true_difference, q.margin);
    EXPECT_NEAR(divergence_power(q), kWantedPower, 1e-6);
  }
  EXPECT_EQ(detectable_difference({1, 0.02, 0.03, 0.05, 0}), kInfinity);
  EXPECT_EQ(detectable_difference({5, 0.02, 0.03, 0.05, 0, OutcomeTest::sign}), kInfinity)
      << "five pairs never diverge by sign";
  EXPECT_EQ(detectable_difference({5, 0.0, 0.03, 0.05, 0}), 0) << "copies say nothing of runs that differ";
  EXPECT_EQ(detectable_difference({2, kInfinity, 0.03, 0.05, 0}), kInfinity);
}

/// Ten seeds of which one collapses: in the mean undecided, in the median the same.
TEST(SignTest, AnOutcomeSaysMedianAndHowManyPairsLieBeyond) {
  MetricsBySeed cell, reference;
  for (int64_t seed = 0; seed < 10; ++seed) {
    reference[seed]["accuracy_24"] = 0.7;
    cell[seed]["accuracy_24"] = 0.7 + (seed == 4 ? -0.5 : 0.002 * static_cast<double>(seed - 5));
  }
  Primary primary{"accuracy_24", 0.03, 0.05};
  const Outcome by_t = judge_outcome({"8x3", "1x24", cell, reference, primary});
  EXPECT_EQ(by_t.verdict, VerdictKind::inconclusive);
  EXPECT_THAT(by_t.sentence, HasSubstr("the paired differences are skewed or have outliers (skewness -2."));
  EXPECT_THAT(by_t.sentence, HasSubstr("primary.test: sign tests the median, but is less reliable for the mean."));
  primary.test = OutcomeTest::sign;
  const Outcome by_sign = judge_outcome({"8x3", "1x24", cell, reference, primary});
  EXPECT_EQ(by_sign.verdict, VerdictKind::equivalent);
  EXPECT_EQ(by_sign.test, OutcomeTest::sign);
  EXPECT_NEAR(by_sign.primary.mean, -0.002, 1e-12);
  EXPECT_THAT(by_sign.sentence, HasSubstr(" in the median, inside the margin of 0.03 (10 paired seeds, of which 1 "
                                          "lies beyond it)."));
  EXPECT_THAT(by_sign.sentence, Not(HasSubstr("skewed")));
}

// Which of several arms is shown to be worse, by simulated families: the promise is about the whole family.

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

using support::scatter;

const SeedsAuto kTo40{.on = true, .first = 5, .step = 5, .most = 40, .budget_s = 0};

struct Arms {
  MetricsBySeed cell, reference;
  OutcomeInputs inputs() const { return {"8x3", "1x24", cell, reference, {"accuracy_24", 0.03, 0.05, 0}}; }
};

Arms arms(int seeds, double effect, double sd) {
  Arms arms;
  for (int64_t seed = 0; seed < seeds; ++seed) {
    arms.reference[seed]["accuracy_24"] = 0.7;
    arms.cell[seed]["accuracy_24"] = 0.7 + effect + sd * scatter(seed);
  }
  return arms;
}

TEST(Sequential, StopsAtTheFirstLookThatDecides) {
  const Arms both = arms(40, 0, 0.004);
  const Outcome outcome = judge_sequentially(both.inputs(), kTo40);
  EXPECT_EQ(outcome.verdict, VerdictKind::equivalent);
  EXPECT_EQ(outcome.n, 5) << "later pairs are not looked at";
  ASSERT_TRUE(outcome.sequential);
  EXPECT_EQ(outcome.sequential->ended, InterimEnd::decided);
  ASSERT_EQ(outcome.sequential->looks.size(), 1u);
  EXPECT_EQ(outcome.alpha, 0.05);
  EXPECT_LE(outcome.p_equivalent, outcome.alpha);
  EXPECT_NEAR(outcome.equivalence.level, 1 - 2 * outcome.sequential->looks[0].alpha_here, 1e-12);
  EXPECT_NEAR(outcome.primary.interval.level, 1 - outcome.sequential->looks[0].alpha_here, 1e-12);
  EXPECT_THAT(outcome.sentence, HasSubstr("Interim analysis 1 of 8 at the nominal level"));
}

TEST(Sequential, FindsALargeDifferenceDivergent) {
  const Outcome outcome = judge_sequentially(arms(40, -0.2, 0.01).inputs(), kTo40);
  EXPECT_EQ(outcome.verdict, VerdictKind::divergent);
  EXPECT_EQ(outcome.n, 5);
}

TEST(Sequential, AVerdictAtTheFullLevelIsNoneAtALook) {
  // Five pairs that a single look at alpha would call equivalent.
  const Arms five = arms(5, 0.002, 0.018);
  ASSERT_EQ(judge_outcome(five.inputs()).verdict, VerdictKind::equivalent);
  const Outcome outcome = judge_sequentially(five.inputs(), kTo40);
  EXPECT_EQ(outcome.verdict, VerdictKind::inconclusive);
  EXPECT_GT(outcome.p_equivalent, outcome.alpha) << "the level of the look is in p as well";
  EXPECT_EQ(outcome.sequential->ended, InterimEnd::budget);
  EXPECT_THAT(outcome.sentence, HasSubstr("the budget ended before 40 seeds"));
  EXPECT_GT(outcome.seeds_needed, 5);
}

TEST(Sequential, SaysThatNoMoreSeedsWereAllowed) {
  const Outcome outcome = judge_sequentially(arms(40, 0.03, 0.05).inputs(), kTo40);
  EXPECT_EQ(outcome.verdict, VerdictKind::inconclusive);
  EXPECT_EQ(outcome.sequential->ended, InterimEnd::most_seeds);
  EXPECT_EQ(outcome.sequential->looks.size(), 8u);
  EXPECT_EQ(outcome.n, 40);
}

TEST(Sequential, RefusesWhatAComparisonRefuses) {
  Arms both = arms(10, 0, 0.01);
  both.reference.erase(3);
  EXPECT_THROW(judge_sequentially(both.inputs(), kTo40), OutcomeError);
}

TEST(Sequential, AMatrixIsJudgedByItsLooks) {
  support::SyntheticMatrix matrix(10);
  matrix.plan.matrix.seeds_auto = kTo40;
  matrix.add_cell({"near", 0.0, 0.004});
  matrix.add_cell({"wide", 0.01, 0.05});
  matrix.add_cell({"control", -0.2, 0.01, 0, true});
  matrix.options.outcomes_only = true;
  const Results results = matrix.judge();
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::equivalent);
  EXPECT_EQ(results.cells[0].outcome->n, 5);
  EXPECT_FALSE(wants_more_seeds(results.cells[0], kTo40));
  EXPECT_EQ(results.cells[1].verdict, VerdictKind::inconclusive);
  EXPECT_TRUE(wants_more_seeds(results.cells[1], kTo40));
  EXPECT_FALSE(wants_more_seeds(results.cells[2], kTo40)) << "a control that is caught stops as any cell";
  EXPECT_FALSE(results.cells[0].mechanism) << "outcomes alone";
}

const SeedsAuto kUsual{.on = true, .first = 5, .step = 5, .most = 40, .budget_s = 0};

/// The share of experiments of normal values around 0 whose one-sided t test rejects at any look.
double rate_of_rejection(const std::vector<SpendingAnalysis>& looks, double part, int experiments) {
  std::vector<double> bounds;
  for (const SpendingAnalysis& look : looks) {
    const boost::math::students_t t(look.n - 1);
    bounds.push_back(boost::math::quantile(boost::math::complement(t, look.nominal * part)));
  }
  uint64_t next = 1;
  const auto uniform = [&next] { return (static_cast<double>(mix_key(next++) >> 11) + 1) * 0x1p-53; };
  int rejected = 0;
  for (int e = 0; e < experiments; ++e) {
    double mean = 0, squares = 0;  // Welford's
    int n = 0;
    for (std::size_t k = 0; k < looks.size(); ++k) {
      while (n < looks[k].n) {
        const double x = std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
        const double before = x - mean;
        mean += before / ++n;
        squares += before * (x - mean);
      }
      if (mean * std::sqrt(n * (n - 1.0) / squares) <= bounds[k]) continue;
      ++rejected;
      break;
    }
  }
  return static_cast<double>(rejected) / experiments;
}

TEST(Spending, SpendsAllOfAlphaAndNeverMore) {
  const std::vector<SpendingAnalysis> looks = spending_analyses(kUsual, 0.05);
  ASSERT_EQ(looks.size(), 8u);
  EXPECT_EQ(looks.front().n, 5);
  EXPECT_EQ(looks.back().n, 40);
  EXPECT_EQ(looks.back().spent, 0.05);
  EXPECT_EQ(looks.back().information, 1.0);
  double before = 0;
  for (const SpendingAnalysis& look : looks) {
    EXPECT_GT(look.spent, before);
    EXPECT_GT(look.nominal, 0);
    EXPECT_LT(look.nominal, 0.05);
    // What a look alone would reject is no less than what it adds to the looks before.
    EXPECT_GE(look.nominal, (look.spent - before) * 0.99);
    before = look.spent;
  }
}

TEST(Spending, OneLookHasAllOfAlpha) {
  const std::vector<SpendingAnalysis> looks = spending_analyses({true, 7, 3, 7, 0}, 0.05);
  ASSERT_EQ(looks.size(), 1u);
  EXPECT_NEAR(looks[0].nominal, 0.05, 1e-4);
}

TEST(Spending, KeepsItsPromiseOverTwentyThousandExperiments) {
  constexpr int kExperiments = 20000;
  for (const SeedsAuto& seeds : {kUsual, SeedsAuto{true, 2, 1, 12, 0}, SeedsAuto{true, 5, 5, 20, 0}}) {
    const std::vector<SpendingAnalysis> looks = spending_analyses(seeds, 0.05);
    // Four standard deviations of the share that was drawn.
    const double luck = 4 * std::sqrt(0.05 * 0.95 / kExperiments);
    const double side = rate_of_rejection(looks, 1, kExperiments);
    EXPECT_LT(side, 0.05 + luck) << seeds.first;
    EXPECT_GT(side, 0.04) << "a level that is too careful costs seeds";
    EXPECT_LT(rate_of_rejection(looks, 0.5, kExperiments), 0.025 + luck) << seeds.first;
  }
}

TEST(Spending, LookingAtTheFullLevelEachTimeWouldLie) {
  std::vector<SpendingAnalysis> looks = spending_analyses(kUsual, 0.05);
  for (SpendingAnalysis& look : looks) look.nominal = 0.05;
  EXPECT_GT(rate_of_rejection(looks, 1, 20000), 0.12);
}

// Each question needs a power control of its own: another column's shows nothing of it.

using support::SyntheticMatrix;
using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;

/// The usual matrix, whose second question is compared with `reference` with `rows` of its own.
Results with_second_question(const std::string& reference, std::vector<std::pair<std::string, std::string>> rows) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.add_cell({"8x3 layer", 0.001, 0.008});
  Results results = matrix.judge();
  results.cells.back().reference = reference;
  ReferenceResult second = results.references.front();
  second.name = reference;
  for (auto& [key, value] : second.config) {
    for (const auto& [changed, to] : rows) {
      if (key == changed) value = to;
    }
  }
  results.references.push_back(second);
  note_controls(results);
  results.summary = summarize_results(results);
  return results;
}

TEST(Controls, AnotherObjectiveIsNotCoveredByAControlOfTheFirst) {
  const Results results = with_second_question("1x24 layer", {{"negatives", "layer"}});
  EXPECT_EQ(results.cells.back().verdict, VerdictKind::equivalent);
  EXPECT_THAT(results.summary.uncontrolled, ElementsAre("1x24 layer"));
  EXPECT_TRUE(results.summary.can_tell) << "no control was missed";
  const std::string said =
      "no power control and no other cell was found to differ from 1x24 layer, so nothing shows that a difference would "
      "be noticed in this comparison.";
  EXPECT_THAT(results.cells.back().outcome->sentence, HasSubstr("; " + said));
  EXPECT_THAT(results.summary.sentence,
              AllOf(HasSubstr("8x3 layer came out equivalent to 1x24 layer: 24-way accuracy differs by +0.001 "
                              "(90 % interval -0.004 to +0.006), "
                              "margin 0.03, 10 paired seeds; but " +
                              said),
                    Not(HasSubstr("8x3 layer trains the same")), HasSubstr("8x3 global trains the same as 1x24 "
                                                                           "global")));
  // What was read again says the same.
  const Results again = results_from_json(results_to_json(results), "results.json");
  EXPECT_EQ(again.summary.uncontrolled, results.summary.uncontrolled);
}

TEST(Controls, AnotherLossOrOptimizerIsAnotherQuestion) {
  for (const char* key : {"loss", "optimizer", "model.width", "data.source", "lr"}) {
    const Results results = with_second_question("1x24 other", {{key, "other"}});
    EXPECT_THAT(results.summary.uncontrolled, ElementsAre("1x24 other")) << key;
  }
}

TEST(Controls, WhatDecidesNothingOfLearningIsTheSameQuestion) {
  const Results results = with_second_question(
      "1x24 traced",
      {{"trace", "full"}, {"seed", "7"}, {"bucket_cap_bytes", "4096"}, {"eval_every", "7"}, {"timeout_s", "9"}});
  EXPECT_THAT(results.summary.uncontrolled, IsEmpty());
  EXPECT_THAT(results.summary.sentence, Not(HasSubstr("came out equivalent to")));
}

TEST(Controls, OfItsOwnQuestionOneControlIsEnough) {
  Results results = with_second_question("1x24 layer", {{"negatives", "layer"}});
  CellResult control = results.cells[2];
  control.scenario = "8x3 layer lr_scale=0.125";
  control.reference = "1x24 layer";
  results.cells.push_back(control);
  EXPECT_THAT(uncontrolled_references(results), IsEmpty());
  EXPECT_THAT(summarize_results(results).sentence, HasSubstr("8x3 global and 8x3 layer train the same as 1x24 "
                                                             "global and 1x24 layer"));
  // A control that was missed shows nothing either.
  results.cells.back().outcome->verdict = results.cells.back().verdict = VerdictKind::equivalent;
  EXPECT_THAT(uncontrolled_references(results), ElementsAre("1x24 layer"));
}

TEST(Controls, AnotherCellThatCameOutDivergentShowsAsMuch) {
  Results results = with_second_question("1x24 layer", {{"negatives", "layer"}});
  CellResult divergent = results.cells[1];
  divergent.scenario = "24x1 layer";
  divergent.reference = "1x24 layer";
  results.cells.push_back(divergent);
  EXPECT_THAT(uncontrolled_references(results), IsEmpty());
}

TEST(Controls, TheCellThatScattersMoreCountsForAll) {
  const Results results = SyntheticMatrix::usual().judge();
  EXPECT_EQ(results.cells[1].outcome->detectable, results.cells[0].outcome->detectable);
  EXPECT_NEAR(results.cells[1].outcome->detectable, 0.056, 0.0005);
}

TEST(Controls, SaysWhereTheMarginIsMuchOfWhatIsLearnt) {
  Results results = SyntheticMatrix::usual().judge();
  const auto sight = [&] { return sight_in_words(controlled_questions(results).front()); };
  EXPECT_THAT(sight(), Not(HasSubstr("over chance")));
  for (CellResult& cell : results.cells) cell.outcome->primary.reference_mean = 1.0 / 24 + 0.15;
  EXPECT_THAT(sight(), HasSubstr("; the margin is 20 % of the improvement of 1x24 global over chance"));
  for (CellResult& cell : results.cells) cell.outcome->primary.reference_mean = 1.0 / 24;
  EXPECT_THAT(sight(), HasSubstr("; the margin is at least the whole improvement of 1x24 global over chance"));
}

TEST(Controls, ACopyOfTheReferenceDoesNotSayHowADifferenceScatters) {
  // The margin is 0.03. A cell that is as good as a copy would be said to see 0.030: what lies at the margin comes out divergent
  // with a probability of 0.025 alone.
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 global", 1e-9, 1e-9});
  matrix.add_cell({"8x3 global lr_scale=0.125", -0.347, 0.018, 0.2, true});
  const Results results = matrix.judge();
  EXPECT_THAT(results.summary.sentence, HasSubstr("10 paired seeds with the spread of 8x3 global lr_scale=0.125, at its upper bound"));
  EXPECT_THAT(results.summary.sentence, Not(HasSubstr("of 0.030 or more")));
  EXPECT_GT(results.cells[0].outcome->detectable, 0.045);
  SyntheticMatrix copies;
  copies.add_cell({"8x3 global", 0, 0});
  EXPECT_THAT(copies.judge().summary.sentence, Not(HasSubstr("is found with probability")));
  EXPECT_EQ(copies.judge().cells[0].outcome->detectable, 0);
}

/// A cell whose differences were drawn.
CellResult drawn_cell(const std::string& name, bool control, const std::vector<double>& differences, const Primary& primary) {
  const PairedSummary summary = summarize_differences(differences);
  CellResult cell;
  cell.scenario = name;
  cell.reference = "1x24";
  cell.power_control = control;
  cell.outcome.emplace();
  cell.outcome->verdict = decide(differences, primary);
  cell.outcome->metric = primary.metric;
  cell.outcome->margin = primary.margin;
  cell.outcome->n = summary.n;
  cell.outcome->primary.mean = summary.mean;
  cell.outcome->sd_upper = sd_upper_bound(summary);
  return cell;
}

TEST(Controls, WhatIsSaidToBeSeenIsSeen) {
  // Matrices of a copy and a control whose runs scatter with 0.02; then a cell that differs by as much as was told, or by the margin.
  NormalDraws draws(30);
  const Primary primary{"accuracy_24", 0.03, 0.05};
  const auto sample = [&draws](double mean, double sd, std::size_t n) {
    std::vector<double> values(n);
    for (double& value : values) value = mean + sd * draws.normal();
    return values;
  };
  for (const std::size_t n : {3, 5, 10}) {
    Proportion seen, at_margin, of_copy_alone;
    for (int trial = 0; trial < 40; ++trial) {
      Results results;
      results.cells = {drawn_cell("copy", false, sample(0, 1e-6, n), primary),
                       drawn_cell("control", true, sample(0.4, 0.02, n), primary)};
      const double by_copy = detectable_difference({static_cast<int>(n), results.cells[0].outcome->sd_upper, 0.03, 0.05, 0});
      note_controls(results);
      const auto is_divergent = [&](double difference) {
        return decide(sample(difference, 0.02, n), primary) == VerdictKind::divergent;
      };
      for (int cell = 0; cell < 100; ++cell) {
        for (Proportion* share : {&seen, &at_margin, &of_copy_alone}) ++share->trials;
        seen.hits += is_divergent(results.cells[0].outcome->detectable);
        at_margin.hits += is_divergent(primary.margin);
        of_copy_alone.hits += is_divergent(by_copy);
      }
    }
    EXPECT_GE(certain_bounds(seen).high, kWantedPower) << n;
    EXPECT_LE(certain_bounds(at_margin).low, 0.025) << n;
    EXPECT_GE(certain_bounds(at_margin).high, 0.025) << n;
    EXPECT_LT(certain_bounds(of_copy_alone).high, 0.05) << n << ": by the copy's spread, nothing of that size is seen";
    RecordProperty("seen_of_" + std::to_string(n), std::to_string(seen.hits / 4'000.0));
  }
}

}  // namespace
}  // namespace lockstep
