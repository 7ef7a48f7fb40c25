#include <boost/math/distributions/beta.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/answer/results/words.h"
#include "harness/answer/stats/estimates.h"
#include "harness/answer/stats/outcome.h"
#include "harness/base/numbers.h"
#include "tests/support/said.h"
#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

using support::certain_bounds;
using support::Proportion;

TEST(SummarizeDifferences, GivesMeanAndUnbiasedSpread) {
  const PairedSummary s = summarize_differences(std::vector{1.0, 2.0, 3.0, 4.0, 5.0});
  EXPECT_EQ(s.n, 5);
  EXPECT_DOUBLE_EQ(s.mean, 3.0);
  EXPECT_DOUBLE_EQ(s.sd, std::sqrt(2.5));
}

TEST(SummarizeDifferences, KeepsASmallSpreadOnALargeMean) {
  // E[x^2] - E[x]^2 would give 0 or a negative number here.
  const PairedSummary s = summarize_differences(std::vector{1e9 + 1, 1e9 + 2, 1e9 + 3});
  EXPECT_DOUBLE_EQ(s.sd, 1.0);
}

TEST(SummarizeDifferences, SpreadOfEqualValuesIsExactlyZero) {
  for (int n : {1, 3, 7, 10}) {
    const PairedSummary s = summarize_differences(std::vector(n, 0.1));
    EXPECT_EQ(s.sd, 0.0) << n;
    EXPECT_EQ(s.mean, 0.1) << n;
  }
}

TEST(SummarizeDifferences, RefusesWhatIsNotFiniteByPlace) {
  for (double bad : {kNaN, kInfinity, -kInfinity}) {
    EXPECT_THAT([&] { summarize_differences(std::vector{0.1, bad, 0.2}); },
                testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr("difference 2 of 3")))
        << bad;
  }
  EXPECT_THROW(summarize_differences({}), std::invalid_argument);
}

TEST(StudentInterval, AgreesWithTables) {
  const PairedSummary s = summarize_differences(std::vector{1.0, 2.0, 3.0, 4.0, 5.0});
  const auto wide = student_interval(s, 0.95), narrow = student_interval(s, 0.90);
  ASSERT_TRUE(wide && narrow);
  // t(0.975, 4) = 2.7764451052, t(0.95, 4) = 2.1318467863.
  EXPECT_NEAR(wide->high - 3.0, 2.7764451051977987 * std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(3.0 - narrow->low, 2.1318467863266504 * std::sqrt(0.5), 1e-12);
  EXPECT_EQ(wide->level, 0.95);
}

TEST(StudentInterval, HasNoneForOneValueAndAPointForNoSpread) {
  EXPECT_FALSE(student_interval({1, 0.5, 0.0}, 0.95));
  const auto point = student_interval({4, 0.5, 0.0}, 0.95);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->low, 0.5);
  EXPECT_EQ(point->high, 0.5);
}

TEST(DecideOutcome, FollowsTheTwoIntervals) {
  const Primary primary{"accuracy_24", 0.03, 0.05};
  EXPECT_EQ(decide_outcome({10, 0.0, 0.01}, primary), VerdictKind::equivalent);
  EXPECT_EQ(decide_outcome({10, -0.094, 0.02}, primary), VerdictKind::divergent);
  EXPECT_EQ(decide_outcome({10, 0.094, 0.02}, primary), VerdictKind::divergent);
  EXPECT_EQ(decide_outcome({10, 0.0, 0.2}, primary), VerdictKind::inconclusive);
  EXPECT_EQ(decide_outcome({10, 0.035, 0.02}, primary), VerdictKind::inconclusive);
  EXPECT_EQ(decide_outcome({1, 0.0, 0.0}, primary), VerdictKind::inconclusive);
}

TEST(DecideOutcome, UsesOneMinusTwoAlphaForEquivalenceAndOneMinusAlphaForDivergence) {
  const Primary primary{"accuracy_24", 0.03, 0.05};
  const double t90 = 1.8331129326562374, t95 = 2.262157162798205;  // 9 degrees of freedom
  const double sd = 0.01, half90 = t90 * sd / std::sqrt(10.0), half95 = t95 * sd / std::sqrt(10.0);
  EXPECT_EQ(decide_outcome({10, 0.03 - half90 - 1e-9, sd}, primary), VerdictKind::equivalent);
  EXPECT_EQ(decide_outcome({10, 0.03 - half90 + 1e-9, sd}, primary), VerdictKind::inconclusive);
  EXPECT_EQ(decide_outcome({10, -0.03 - half95 + 1e-9, sd}, primary), VerdictKind::inconclusive);
  EXPECT_EQ(decide_outcome({10, -0.03 - half95 - 1e-9, sd}, primary), VerdictKind::divergent);
}

TEST(DecideOutcome, WithoutSpreadTheMeanDecides) {
  const Primary primary{"accuracy_24", 0.03, 0.05};
  EXPECT_EQ(decide_outcome({3, 0.0299, 0.0}, primary), VerdictKind::equivalent);
  EXPECT_EQ(decide_outcome({3, -0.0301, 0.0}, primary), VerdictKind::divergent);
  EXPECT_EQ(decide_outcome({3, 0.03, 0.0}, primary), VerdictKind::inconclusive);
}

struct KnownPower {
  PowerQuestion question;
  double power;
};

TEST(EquivalencePower, AgreesWithTheIntegralOverTheMean) {
  // The same probability integrated the other way round: over the sample mean, the chi-squared distribution
  // function of the spread inside (scipy 1.17 quad, tolerance 1e-12).
  const KnownPower known[] = {
      {{2, 0.01, 0.03, 0.05, 0}, 0.41302958044245336},     {{5, 0.02, 0.03, 0.05, 0}, 0.7350094348685164},
      {{10, 0.036, 0.03, 0.05, 0}, 0.5718418737406497},    {{10, 0.02, 0.03, 0.05, 0.01}, 0.8974995352728509},
      {{10, 0.02, 0.03, 0.05, 0.03}, 0.04999999999847192}, {{30, 0.07, 0.03, 0.05, 0}, 0.4826275754914572},
      {{500, 0.3, 0.03, 0.05, 0}, 0.4435895858346204}};
  for (const auto& [question, power] : known)
    EXPECT_NEAR(equivalence_power(question), power, 1e-9) << question.n;
}

TEST(DivergencePower, AgreesWithTheNoncentralT) {
  const KnownPower known[] = {{{10, 0.02, 0.03, 0.05, -0.094}, 0.9999999999958701},
                              {{10, 0.036, 0.03, 0.05, 0.05}, 0.3486401040678244},
                              {{5, 0.02, 0.03, 0.05, 0.03}, 0.02500000000000277},
                              {{200, 0.1, 0.03, 0.05, 0.05}, 0.803665761344712}};
  for (const auto& [question, power] : known)
    EXPECT_NEAR(divergence_power(question), power, 1e-9) << question.n;
}

TEST(EquivalencePower, KnowsTheEdges) {
  EXPECT_EQ(equivalence_power({1, 0.01, 0.03, 0.05, 0}), 0.0);
  EXPECT_EQ(equivalence_power({3, 0.0, 0.03, 0.05, 0.029}), 1.0);
  EXPECT_EQ(equivalence_power({3, 0.0, 0.03, 0.05, 0.031}), 0.0);
  EXPECT_EQ(divergence_power({3, 0.0, 0.03, 0.05, 0.031}), 1.0);
  EXPECT_NEAR(equivalence_power({10'000, 0.001, 0.03, 0.05, 0}), 1.0, 1e-9);
  EXPECT_NEAR(equivalence_power({2, 1e6, 0.03, 0.05, 0}), 0.0, 1e-9);
  EXPECT_THROW(equivalence_power({10, kNaN, 0.03, 0.05, 0}), std::invalid_argument);
  EXPECT_THROW(equivalence_power({10, 0.01, 0.0, 0.05, 0}), std::invalid_argument);
  EXPECT_THROW(equivalence_power({10, 0.01, 0.03, 0.5, 0}), std::invalid_argument);
  EXPECT_THROW(divergence_power({10, 0.01, 0.03, 0.05, kInfinity}), std::invalid_argument);
}

Proportion simulate(const PowerQuestion& q, VerdictKind wanted, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal(q.true_difference, q.sd);
  const Primary primary{"accuracy_24", q.margin, q.alpha};
  Proportion result;
  std::vector<double> sample(static_cast<std::size_t>(q.n));
  for (result.trials = 0; result.trials < 20'000; ++result.trials) {
    for (double& value : sample) value = normal(generator);
    result.hits += decide_outcome(summarize_differences(sample), primary) == wanted ? 1 : 0;
  }
  return result;
}

TEST(EquivalencePower, AgreesWithSimulation) {
  uint64_t seed = 20;
  for (const PowerQuestion& q :
       {PowerQuestion{3, 0.01, 0.03, 0.05, 0}, PowerQuestion{10, 0.036, 0.03, 0.05, 0},
        PowerQuestion{10, 0.02, 0.03, 0.1, 0.01}, PowerQuestion{25, 0.07, 0.03, 0.05, 0}}) {
    const Interval bounds = certain_bounds(simulate(q, VerdictKind::equivalent, ++seed));
    EXPECT_GE(equivalence_power(q), bounds.low) << q.n;
    EXPECT_LE(equivalence_power(q), bounds.high) << q.n;
  }
}

TEST(DivergencePower, AgreesWithSimulation) {
  const PowerQuestion q{10, 0.036, 0.03, 0.05, -0.05};
  const Interval bounds = certain_bounds(simulate(q, VerdictKind::divergent, 7));
  EXPECT_GE(divergence_power(q), bounds.low);
  EXPECT_LE(divergence_power(q), bounds.high);
}

TEST(Calibration, AFalseEquivalentAtTheMarginIsNoLikelierThanAlpha) {
  uint64_t seed = 40;
  for (double alpha : {0.05, 0.1}) {
    for (const PowerQuestion& q :
         {PowerQuestion{5, 0.01, 0.03, alpha, 0.03}, PowerQuestion{10, 0.036, 0.03, alpha, -0.03}}) {
      EXPECT_LE(certain_bounds(simulate(q, VerdictKind::equivalent, ++seed)).low, alpha);
      EXPECT_LE(equivalence_power(q), alpha + 1e-9);
    }
  }
}

TEST(Calibration, AFalseDivergentAtTheMarginIsNoLikelierThanHalfOfAlpha) {
  const PowerQuestion q{10, 0.02, 0.03, 0.05, 0.03};
  const Interval bounds = certain_bounds(simulate(q, VerdictKind::divergent, 60));
  EXPECT_LE(bounds.low, 0.025);
  EXPECT_GE(bounds.high, 0.025);
}

TEST(SeedsNeeded, AgreesWithASearchOneByOne) {
  // By the integral over the mean, as above.
  const std::pair<double, int> known[] = {{0.01, 3}, {0.02, 6}, {0.036, 14}, {0.07, 49}, {0.2, 382}};
  for (const auto& [sd, n] : known) EXPECT_EQ(seeds_needed({2, sd, 0.03, 0.05, 0}), n) << sd;
}

TEST(SeedsNeeded, IsTheSmallestThatSuffices) {
  for (double sd : {0.004, 0.015, 0.05, 0.11, 0.3}) {
    for (double difference : {0.0, 0.01, -0.06}) {
      PowerQuestion q{2, sd, 0.03, 0.05, difference};
      q.n = seeds_needed(q);
      auto power = [](const PowerQuestion& p) {
        return std::abs(p.true_difference) < p.margin ? equivalence_power(p) : divergence_power(p);
      };
      EXPECT_GE(power(q), 0.8);
      --q.n;
      EXPECT_LT(power(q), 0.8) << "sd " << sd << " difference " << difference;
    }
  }
}

TEST(SeedsNeeded, StopsAtTheCap) {
  EXPECT_EQ(seeds_needed({2, 100.0, 0.03, 0.05, 0}), kMostSeeds);
  EXPECT_EQ(seeds_needed({2, 0.01, 0.03, 0.05, 0.03}), kMostSeeds);
  EXPECT_EQ(seeds_needed({2, 0.0, 0.03, 0.05, 0}), 2);
}

TEST(SdUpperBound, AgreesWithChiSquare) {
  // scipy 1.17: sqrt((n - 1) / stats.chi2.ppf(0.2, n - 1))
  EXPECT_NEAR(sd_upper_bound({10, 0.0, 1.0}), 1.2933854444729525, 1e-9);
  EXPECT_NEAR(sd_upper_bound({2, 0.0, 2.0}), 2 * 3.9471538755427455, 1e-8);
  EXPECT_EQ(sd_upper_bound({10, 0.5, 0.0}), 0.0);
  EXPECT_TRUE(std::isinf(sd_upper_bound({1, 0.5, 0.0})));
}

TEST(SdUpperBound, HoldsAsOftenAsItsLevel) {
  std::mt19937_64 generator(11);
  std::normal_distribution<double> normal;
  Proportion holds;
  std::vector<double> sample(5);
  for (holds.trials = 0; holds.trials < 20'000; ++holds.trials) {
    for (double& value : sample) value = normal(generator);
    holds.hits += sd_upper_bound(summarize_differences(sample)) >= 1.0 ? 1 : 0;
  }
  const Interval bounds = certain_bounds(holds);
  EXPECT_LE(bounds.low, kSdLevel);
  EXPECT_GE(bounds.high, kSdLevel);
}

TEST(PValues, AgreeWithSciPy) {
  // scipy 1.17: stats.ttest_1samp(x, -0.03, alternative='greater'), (x, 0.03, alternative='less'), (x, 0).
  const PValues p = p_values_of(summarize_differences(std::vector{0.012, -0.004, 0.021, 0.008, -0.011, 0.003,
                                                                  0.017, -0.002, 0.009, 0.005}),
                                0.03);
  EXPECT_NEAR(p.equivalent, 1.300644957398893e-05, 1e-12);
  EXPECT_NEAR(p.different, 0.09296731786222344, 1e-10);
}

TEST(PValues, DecideAsTheIntervalsDo) {
  for (double mean : {0.0, 0.02, 0.0255, 0.03, -0.024}) {
    const PairedSummary s{10, mean, 0.01};
    const bool equivalent = decide_outcome(s, {"accuracy_24", 0.03, 0.05}) == VerdictKind::equivalent;
    EXPECT_EQ(p_values_of(s, 0.03).equivalent < 0.05, equivalent) << mean;
  }
}

TEST(PValues, WithoutSpreadTheMeanDecides) {
  EXPECT_EQ(p_values_of({3, 0.0, 0.0}, 0.03).different, 1.0);
  EXPECT_EQ(p_values_of({3, 0.01, 0.0}, 0.03).different, 0.0);
  EXPECT_EQ(p_values_of({3, 0.01, 0.0}, 0.03).equivalent, 0.0);
  EXPECT_EQ(p_values_of({3, 0.03, 0.0}, 0.03).equivalent, 1.0);
  EXPECT_EQ(p_values_of({1, 0.01, 0.0}, 0.03).equivalent, 1.0);
  EXPECT_EQ(p_values_of({1, 0.01, 0.0}, 0.03).different, 1.0);
}

TEST(Holm, AgreesWithR) {
  // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
  EXPECT_THAT(holm_adjusted(std::vector{0.01, 0.04, 0.03, 0.005}),
              testing::ElementsAre(testing::DoubleEq(0.03), testing::DoubleEq(0.06), testing::DoubleEq(0.06),
                                   testing::DoubleEq(0.02)));
  EXPECT_THAT(holm_adjusted(std::vector{0.7, 0.6}), testing::ElementsAre(1.0, 1.0));
  EXPECT_THAT(holm_adjusted({}), testing::IsEmpty());
}

const std::vector<double> kTen{0.012, -0.004, 0.021, 0.008, -0.011, 0.003, 0.017, -0.002, 0.009, 0.005};

/// Skewed: exponential-like.
const std::vector<double> kTwenty{0.31, 1.92, 0.05, 0.77, 2.61, 0.44, 0.18, 1.05, 0.63, 3.90,
                                  0.27, 0.52, 1.41, 0.09, 0.86, 0.36, 5.20, 0.71, 0.23, 1.17};

const Estimate* find(const std::vector<Estimate>& estimates, const std::string& what,
                     const std::string& method) {
  const auto found = std::ranges::find_if(
      estimates, [&](const Estimate& e) { return e.what == what && e.method.starts_with(method); });
  return found == estimates.end() ? nullptr : &*found;
}

TEST(InterquartileMean, AgreesWithATrimmedMean) {
  // scipy 1.17: stats.trim_mean(x, 0.25)
  EXPECT_NEAR(interquartile_mean(kTen), 0.005833333333333334, 1e-15);
  EXPECT_NEAR(interquartile_mean(kTwenty), 0.682, 1e-12);
}

TEST(MedianInterval, HasItsExactBinomialLevel) {
  // scipy 1.17: 1 - 2 * stats.binom.cdf(k - 1, n, 0.5); n = 10: k = 2, n = 20: k = 6, n = 5: k = 1.
  std::vector<double> sorted = kTen;
  std::ranges::sort(sorted);
  const Interval ten = median_interval(kTen, 0.95);
  EXPECT_EQ(ten.low, sorted[1]);
  EXPECT_EQ(ten.high, sorted[8]);
  EXPECT_NEAR(ten.level, 0.978515625, 1e-12);
  EXPECT_NEAR(median_interval(kTwenty, 0.95).level, 0.9586105346679688, 1e-12);
}

TEST(MedianInterval, OfFewValuesSaysThatItsLevelIsLower) {
  const std::vector<double> five(kTen.begin(), kTen.begin() + 5);
  const Interval interval = median_interval(five, 0.95);
  EXPECT_EQ(interval.low, -0.011);
  EXPECT_EQ(interval.high, 0.021);
  EXPECT_NEAR(interval.level, 0.9375, 1e-12);
  EXPECT_NEAR(median_interval(std::vector{1.0, 2.0}, 0.95).level, 0.5, 1e-12);
}

TEST(BcaInterval, AgreesWithSciPy) {
  // scipy 1.17: stats.bootstrap((y,), f, n_resamples=40000, method='BCa', random_state=1), f = mean: (0.6965,
  // 1.9515); f = trim_mean(·, 0.25): (0.3984, 1.2180). The tolerance is the noise of 2,000 resamples.
  const Interval mean = bca_interval(kTwenty, Middle::mean, 0.95);
  EXPECT_NEAR(mean.low, 0.6965, 0.03);
  EXPECT_NEAR(mean.high, 1.9515, 0.12);
  const Interval iqm = bca_interval(kTwenty, Middle::interquartile_mean, 0.95);
  EXPECT_NEAR(iqm.low, 0.3984, 0.02);
  EXPECT_NEAR(iqm.high, 1.2180, 0.08);
}

TEST(StudentisedInterval, AgreesWithALargerBootstrap) {
  // 200,000 resamples in numpy, t* = (iqm* - iqm) / se* with the winsorised standard error.
  const Interval interval = studentised_interval(kTen, Middle::interquartile_mean, 0.95);
  EXPECT_NEAR(interval.low, -0.003928, 0.001);
  EXPECT_NEAR(interval.high, 0.013722, 0.001);
}

TEST(StudentisedInterval, HasNoEndsWhereTheMiddleHasNoSpread) {
  const std::vector<double> flat{-5, 0, 0, 0, 0, 0, 0, 4};
  EXPECT_TRUE(std::isinf(studentised_interval(flat, Middle::interquartile_mean, 0.95).low));
  EXPECT_FALSE(find(estimate_middle(flat, 0.05), "interquartile mean", ""));
}

TEST(EstimateMiddle, GivesWhatTheNumberOfPairsAllows) {
  EXPECT_TRUE(estimate_middle(std::vector{0.1}, 0.05).empty());
  const auto two = estimate_middle(std::vector{0.1, 0.3}, 0.05);
  EXPECT_EQ(two.size(), 2u);
  const auto ten = estimate_middle(kTen, 0.05);
  EXPECT_TRUE(find(ten, "mean", "Student t"));
  EXPECT_FALSE(find(ten, "mean", "BCa"));
  EXPECT_NEAR(find(ten, "median", "order")->value, 0.0065, 1e-12);
  EXPECT_TRUE(find(ten, "interquartile mean", "studentised"));
  const auto twenty = estimate_middle(kTwenty, 0.05);
  EXPECT_TRUE(find(twenty, "mean", "Student t"));
  EXPECT_TRUE(find(twenty, "mean", "BCa"));
  EXPECT_TRUE(find(twenty, "interquartile mean", "BCa"));
  EXPECT_FALSE(find(twenty, "interquartile mean", "studentised"));
}

TEST(EstimateMiddle, GivesTheSameBitsEachTime) {
  for (const auto& values : {kTen, kTwenty}) {
    const auto once = estimate_middle(values, 0.05), again = estimate_middle(values, 0.05);
    for (std::size_t i = 0; i < once.size(); ++i) {
      EXPECT_EQ(once[i].interval.low, again[i].interval.low);
      EXPECT_EQ(once[i].interval.high, again[i].interval.high);
    }
  }
}

TEST(EstimateMiddle, OfEqualDifferencesIsThatDifference) {
  for (std::size_t n : {2u, 7u, 25u}) {
    for (const Estimate& e : estimate_middle(std::vector<double>(n, 0.1), 0.05)) {
      EXPECT_EQ(e.value, 0.1) << e.what << n;
      EXPECT_EQ(e.interval.low, 0.1) << e.what << n;
      EXPECT_EQ(e.interval.high, 0.1) << e.what << n;
    }
  }
}

TEST(EstimateMiddle, OneWildSeedMovesTheMeanAndNotTheMiddle) {
  std::vector<double> values = kTen;
  values[2] = 5.0;
  const auto estimates = estimate_middle(values, 0.05);
  EXPECT_GT(find(estimates, "mean", "Student t")->value, 0.4);
  EXPECT_LT(find(estimates, "median", "order")->interval.high, 0.1);
  EXPECT_NEAR(find(estimates, "interquartile mean", "")->value, interquartile_mean(kTen), 1e-15);
}

/// How often each estimate's interval holds the true middle, 0, of n draws from a normal distribution.
std::map<std::string, Proportion> coverage(std::size_t n) {
  std::mt19937_64 generator(n);
  std::normal_distribution<double> normal;
  std::map<std::string, Proportion> holds;
  std::vector<double> sample(n);
  for (int trial = 0; trial < 300; ++trial) {
    for (double& value : sample) value = normal(generator);
    for (const Estimate& e : estimate_middle(sample, 0.05)) {
      Proportion& of_method = holds[e.what + " by " + e.method];
      ++of_method.trials;
      of_method.hits += e.interval.low <= 0 && e.interval.high >= 0 ? 1 : 0;
    }
  }
  return holds;
}

TEST(EstimateMiddle, CoversTheTruthAsOftenAsItSays) {
  for (std::size_t n : {10u, 20u}) {
    const auto holds = coverage(n);
    EXPECT_EQ(holds.size(), n == 10 ? 3u : 4u);
    for (const auto& [method, share] : holds) {
      EXPECT_EQ(share.trials, 300) << method;
      EXPECT_GE(certain_bounds(share).high, 0.95) << method << n;
    }
  }
}

TEST(CertainBounds, CatchAnIntervalThatIsTooNarrow) {
  // The planted fault: the same trials judged by an interval of half the width.
  std::mt19937_64 generator(3);
  std::normal_distribution<double> normal;
  Proportion holds;
  std::vector<double> sample(10);
  for (holds.trials = 0; holds.trials < 300; ++holds.trials) {
    for (double& value : sample) value = normal(generator);
    const Interval i = studentised_interval(sample, Middle::interquartile_mean, 0.95);
    const double middle = (i.low + i.high) / 2, half = (i.high - i.low) / 4;
    holds.hits += std::abs(middle) <= half ? 1 : 0;
  }
  EXPECT_LT(certain_bounds(holds).high, 0.95);
}

using support::NormalDraws;
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

TEST(Skewness, IsSaidOfAVerdictByTAlone) {
  support::Said said;
  SyntheticMatrix sign = collapsing(0.2);
  sign.plan.matrix.primary.test = OutcomeTest::sign;
  said("by t", collapsing(0.2).judge().summary.sentence);
  said("by the sign test, which has nothing to warn of", sign.judge().summary.sentence);
  said("without a seed that collapses", collapsing(0).judge().summary.sentence);
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

// Where runs are chaotic, seeds are not the only noise: A/A pairs show it, and verdicts say it.

using testing::AllOf;

/// A cell, its control, and an A/A pair of `of` with this spread.
Results judged(double effect, double sd, double pair_sd, const std::string& kind = "epsilon",
               const std::string& of = SyntheticMatrix::kReference) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 lr=8", effect, sd});
  matrix.add_cell({"control", -0.347, 0.01, 0, true});
  matrix.add_cell({"A-A pair", 0, pair_sd});
  Cell& pair = matrix.plan.matrix.cells.back();
  pair.noise = true;
  pair.settings = {{"perturb", kind}};
  pair.reference_name = of;
  return matrix.judge();
}

TEST(Rounding, IsSaidWhereItMayTurnAVerdictOrIsLarge) {
  const Results results = judged(0.009, 0.028, 0.028);
  const RoundingShift& shift = *results.cells[0].outcome->rounding;
  EXPECT_NEAR(shift.sd, 0.028, 1e-12);
  EXPECT_EQ(shift.n, 10);
  EXPECT_NEAR(shift.shift, 2.262157162798205 * 0.028 * std::sqrt(0.2), 1e-9);
  EXPECT_FALSE(results.cells[2].outcome->rounding) << "an A/A pair is judged by nothing";
  support::Said said;
  const auto say = [&said](const char* what, const Results& of) { said(what, of.cells[0].outcome->sentence); };
  said("of a whole matrix", results.summary.sentence);
  say("a verdict that rounding alone may turn", results);
  say("an undecided cell that it may decide", judged(0.027, 0.028, 0.028));
  say("a steady pair", judged(0.001, 0.008, 0.002));
  say("a large shift, of a verdict that holds all the same", judged(-0.3, 0.02, 0.03));
  say("other random draws are no rounding", judged(0.009, 0.028, 0.028, "random_draws"));
  say("another order of the rows is", judged(0.009, 0.028, 0.028, "row_order"));
}

TEST(Rounding, PairsOfTheCellItselfCountBesideThoseOfItsReference) {
  const Results results = judged(0.001, 0.008, 0.04, "epsilon", "8x3 lr=8");
  const RoundingShift& own = *results.cells[0].outcome->rounding;
  EXPECT_TRUE(own.of_cell);
  EXPECT_NEAR(own.sd, 0.04, 1e-12);
  EXPECT_FALSE(results.cells[1].outcome->rounding) << "the control has another config";
  EXPECT_THAT(results.cells[0].outcome->sentence, Not(HasSubstr("or more higher")));
  std::vector<CellResult> both = results.cells;
  both.push_back(both.back());
  both.back().scenario = "that of the reference";
  both.back().reference = SyntheticMatrix::kReference;
  both.back().outcome->primary.sd = 0.03;
  note_rounding(both);
  EXPECT_NEAR(both[0].outcome->rounding->sd, std::sqrt((0.04 * 0.04 + 0.03 * 0.03) / 2), 1e-12);
  EXPECT_EQ(both[0].outcome->rounding->pairs, "A-A pair and that of the reference");
}

}  // namespace
}  // namespace lockstep
