#include "harness/verdict/stats/tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/verdict/stats/decision.h"
#include "tests/support/normal_draws.h"
#include "tests/support/proportion.h"
#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

using support::certain_bounds;
using support::NormalDraws;
using support::Proportion;
using support::SyntheticMatrix;
using testing::HasSubstr;
using testing::Not;

template <typename F>
Proportion warned(std::size_t n, int trials, F draw) {
  Proportion share;
  std::vector<double> values(n);
  for (share.trials = 0; share.trials < trials; ++share.trials) {
    for (double& value : values) value = draw();
    share.hits += skewness_p(values) <= kSkewLevel;
  }
  return share;
}

TEST(Skewness, IsTheThirdMoment) {
  // scipy 1.17: stats.skew([1, 2, 3, 10])
  EXPECT_NEAR(skewness_of(std::vector{1.0, 2.0, 3.0, 10.0}), 1.0182337649086284, 1e-12);
  EXPECT_EQ(skewness_of(std::vector{2.0, 2.0, 2.0}), 0);
  EXPECT_NEAR(skewness_of(std::vector{-1.0, 0.0, 1.0}), 0, 1e-15);
}

TEST(Skewness, WarnsOfNormalDifferencesNoMoreOftenThanItsLevel) {
  NormalDraws draws(1);
  for (const std::size_t n : {3, 4, 5, 8, 10, 20, 40, 101, 150}) {
    const auto normal = [&] { return 3 + 0.1 * draws.normal(); };
    const Interval bounds = certain_bounds(warned(n, n > 100 ? 4'000 : 10'000, normal));
    EXPECT_LE(bounds.low, kSkewLevel) << n;
    EXPECT_GE(bounds.high, 0.8 * kSkewLevel) << n << ": a test that never warns would pass too";
  }
}

TEST(Skewness, WarnsOfTheMoreSkewedMoreOftenWithMorePairs) {
  NormalDraws draws(2);
  const auto skewed = [&] { return std::exp(draws.normal()); };
  const double few = certain_bounds(warned(5, 4'000, skewed)).high,
               some = certain_bounds(warned(10, 4'000, skewed)).low,
               many = certain_bounds(warned(20, 4'000, skewed)).low;
  EXPECT_LT(few, 0.4) << "five pairs show little of their shape, which docs/report.md says";
  EXPECT_GT(some, 0.45);
  EXPECT_GT(many, 0.8);
}

TEST(Skewness, FewOrEqualValuesAreNotSkewed) {
  EXPECT_EQ(skewness_p(std::vector{0.0, 9.0}), 1) << "two values never are";
  EXPECT_LT(skewness_p(std::vector{0.0, 0.0, 9.0}), 0.01) << "no three normal values are more";
  EXPECT_GT(skewness_p(std::vector{0.0, 1.0, 2.0}), 0.99);
  EXPECT_EQ(skewness_p(std::vector{1.0, 1.0, 1.0, 1.0, 1.0}), 1);
  EXPECT_EQ(skewness_p(std::vector{0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.0}), 1e-4) << "no normal sample is that skewed";
}

TEST(UnseenShare, IsTheUpperBoundOfNone) {
  EXPECT_NEAR(unseen_share(10, 0.95), 0.2588655508, 1e-9);
  EXPECT_NEAR(std::pow(1 - unseen_share(10, 0.95), 10), 0.05, 1e-12);
}

/// A matrix whose one cell loses 0.2 in one of its ten seeds.
SyntheticMatrix collapsing(double loss) {
  SyntheticMatrix matrix;
  matrix.plan.matrix.primary.margin = 0.3;
  matrix.add_cell({"8x3", 0.001, 0.004});
  matrix.add_cell({"control", -0.9, 0.004, 0, true});
  matrix.result("8x3 seed 4").metrics["accuracy_24"] -= loss;
  return matrix;
}

TEST(Skewness, AVerdictByTSaysThatItsDifferencesAreSkewed) {
  const Results results = collapsing(0.2).judge();
  ASSERT_EQ(results.cells[0].verdict, VerdictKind::equivalent);
  EXPECT_LE(results.cells[0].outcome->p_skewed, 0.001);
  EXPECT_THAT(results.cells[0].outcome->sentence, HasSubstr("; the paired differences are skewed or have outliers"));
  EXPECT_THAT(results.summary.sentence, HasSubstr("In 8x3, the paired differences are skewed or have outliers "
                                                  "(skewness -2."));
  EXPECT_THAT(collapsing(0).judge().summary.sentence, Not(HasSubstr("skewed")));
}

TEST(Skewness, TheSignTestHasNothingToWarnOf) {
  SyntheticMatrix matrix = collapsing(0.2);
  matrix.plan.matrix.primary.test = OutcomeTest::sign;
  const Results results = matrix.judge();
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::equivalent);
  EXPECT_THAT(results.summary.sentence, Not(HasSubstr("skewed")));
  EXPECT_THAT(results.summary.sentence, HasSubstr(" in the median, margin 0.3"));
}

/// How often n log-normal differences whose mean lies at the margin are called equivalent.
Proportion wrongly_equivalent(OutcomeTest test, std::size_t n) {
  NormalDraws draws(4 + n);
  Primary primary{"accuracy_24", 0.03, 0.05};
  primary.test = test;
  Proportion share;
  std::vector<double> values(n);
  for (share.trials = 0; share.trials < 10'000; ++share.trials) {
    // exp(z) has the mean exp(1/2).
    for (double& value : values) value = 0.03 + 0.01 * (std::exp(draws.normal()) - std::exp(0.5));
    share.hits += decide(values, primary) == VerdictKind::equivalent;
  }
  return share;
}

TEST(Skewness, TheWarningAdvisesWhatErrsLess) {
  const Proportion t = wrongly_equivalent(OutcomeTest::t, 20), sign = wrongly_equivalent(OutcomeTest::sign, 20),
                   more = wrongly_equivalent(OutcomeTest::t, 160);
  EXPECT_GT(certain_bounds(sign).low, certain_bounds(t).high) << "the sign test asks of the median";
  EXPECT_LT(certain_bounds(more).high, certain_bounds(t).low) << "more seeds help";
  RecordProperty("t_20", std::to_string(t.hits / 10'000.0));
  RecordProperty("sign_20", std::to_string(sign.hits / 10'000.0));
  RecordProperty("t_160", std::to_string(more.hits / 10'000.0));
  const std::string words = skew_in_words(*collapsing(0.2).judge().cells[0].outcome);
  EXPECT_THAT(words, HasSubstr("less so with more seeds; primary.test: sign tests the median, but is less reliable for the mean"));
}

}  // namespace
}  // namespace lockstep
