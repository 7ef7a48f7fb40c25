#include "harness/verdict/stats/estimates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "tests/support/proportion.h"

namespace lockstep {
namespace {

using support::certain_bounds;
using support::Proportion;

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

}  // namespace
}  // namespace lockstep
