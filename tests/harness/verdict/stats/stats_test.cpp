#include "harness/base/numbers.h"
#include "harness/verdict/stats/estimates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/math/distributions/beta.hpp>
#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/verdict/stats/power.h"

namespace lockstep {
namespace {

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
    try {
      summarize_differences(std::vector{0.1, bad, 0.2});
      FAIL() << bad;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("difference 2 of 3"));
    }
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

struct Proportion {
  int hits = 0, trials = 0;
};

/// Clopper-Pearson bounds that hold but once in a million.
Interval clopper_pearson(const Proportion& p) {
  using boost::math::beta_distribution;
  constexpr double kMiss = 5e-7;
  const double k = p.hits, n = p.trials;
  return {p.hits == 0 ? 0.0 : quantile(beta_distribution<>(k, n - k + 1), kMiss),
          p.hits == p.trials ? 1.0 : quantile(complement(beta_distribution<>(k + 1, n - k), kMiss)),
          1 - 2 * kMiss};
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
    const Interval bounds = clopper_pearson(simulate(q, VerdictKind::equivalent, ++seed));
    EXPECT_GE(equivalence_power(q), bounds.low) << q.n;
    EXPECT_LE(equivalence_power(q), bounds.high) << q.n;
  }
}

TEST(DivergencePower, AgreesWithSimulation) {
  const PowerQuestion q{10, 0.036, 0.03, 0.05, -0.05};
  const Interval bounds = clopper_pearson(simulate(q, VerdictKind::divergent, 7));
  EXPECT_GE(divergence_power(q), bounds.low);
  EXPECT_LE(divergence_power(q), bounds.high);
}

TEST(Calibration, AFalseEquivalentAtTheMarginIsNoLikelierThanAlpha) {
  uint64_t seed = 40;
  for (double alpha : {0.05, 0.1}) {
    for (const PowerQuestion& q :
         {PowerQuestion{5, 0.01, 0.03, alpha, 0.03}, PowerQuestion{10, 0.036, 0.03, alpha, -0.03}}) {
      EXPECT_LE(clopper_pearson(simulate(q, VerdictKind::equivalent, ++seed)).low, alpha);
      EXPECT_LE(equivalence_power(q), alpha + 1e-9);
    }
  }
}

TEST(Calibration, AFalseDivergentAtTheMarginIsNoLikelierThanHalfOfAlpha) {
  const PowerQuestion q{10, 0.02, 0.03, 0.05, 0.03};
  const Interval bounds = clopper_pearson(simulate(q, VerdictKind::divergent, 60));
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
  const Interval bounds = clopper_pearson(holds);
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

}  // namespace
}  // namespace lockstep
