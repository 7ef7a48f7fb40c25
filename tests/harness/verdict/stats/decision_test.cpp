// The sign test beside t: what it decides, its power and its looks, on differences of any shape.

#include "harness/base/numbers.h"
#include "harness/verdict/stats/decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/verdict/stats/outcome.h"
#include "harness/verdict/stats/power.h"
#include "harness/verdict/stats/sequential.h"
#include "harness/verdict/stats/tests.h"
#include "tests/support/normal_draws.h"
#include "tests/support/proportion.h"

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

}  // namespace
}  // namespace lockstep
