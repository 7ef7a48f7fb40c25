#include "harness/base/numbers.h"
#include "harness/lib/rewards/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/base/hashing.h"

namespace lockstep::rewards {
namespace {

std::vector<double> draws(uint64_t key, std::size_t count, double mean, double spread) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(mean + spread * (unit_interval(keyed(key, i)) - 0.5));
  return values;
}

double ulps(double found, double expected) { return std::abs(found - expected) / (std::abs(expected) * 0x1p-52); }

/// The plain formula in the processor's 64-bit significand.
std::pair<double, double> reference(const std::vector<double>& values) {
  long double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const long double mean = sum / static_cast<long double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {static_cast<double>(mean), static_cast<double>(std::sqrt(squares / static_cast<long double>(values.size())))};
}

TEST(Moments, LieWithinFourUlpOfALongerSum) {
  for (const double mean : {0.5, 1e4, -1e8}) {
    for (uint64_t key = 0; key < 50; ++key) {
      const std::vector<double> values = draws(key, 2 + key * 11, mean, 1);
      const auto [expected_mean, expected_deviation] = reference(values);
      const Statistics found = statistics_of(moments_of(values), {});
      EXPECT_LE(ulps(found.mean, expected_mean), 4) << mean << " " << key;
      EXPECT_LE(ulps(found.deviation, expected_deviation), 4) << mean << " " << key;
    }
  }
}

TEST(Moments, OfEqualValuesHaveNoSpread) {
  for (const double value : {0.1, 1e4 + 0.1, -3e-7}) {
    const Moments found = moments_of(std::vector<double>(37, value));
    EXPECT_EQ(found.mean, value);
    EXPECT_EQ(found.m2, 0);
    EXPECT_EQ(statistics_of(found, {}).deviation, 1e-4);
    EXPECT_EQ(statistics_of(found, {}).condition, kInfinity);
  }
}

TEST(Merge, EqualsTheMomentsOfAllRows) {
  const std::vector<double> all = draws(3, 97, 1e4, 2);
  for (const std::size_t cut : {1, 40, 96}) {
    const Moments merged = merge(moments_of({all.data(), cut}), moments_of({all.data() + cut, all.size() - cut}));
    const Moments at_once = moments_of(all);
    EXPECT_EQ(merged.count, at_once.count);
    EXPECT_LE(ulps(merged.mean, at_once.mean), 4);
    EXPECT_NEAR(merged.m2 / at_once.m2, 1, 1e-11);
  }
}

TEST(Merge, WithAnEmptyOneChangesNoBit) {
  const Moments some = moments_of(draws(1, 9, 5, 1));
  EXPECT_EQ(merge(some, {}), some);
  EXPECT_EQ(merge({}, some), some);
  EXPECT_EQ(merge({}, {}), Moments{});
}

TEST(Statistics, TellTheConditionOfTheDeviation) {
  const Statistics found = statistics_of({4, 1e4, 4}, {});
  EXPECT_DOUBLE_EQ(found.condition, std::sqrt(1 + 1e8));
  EXPECT_EQ(mean_condition(std::vector{1.0, -2.0}), 3);
  EXPECT_EQ(mean_condition(std::vector{1.0, -1.0}), kInfinity);
}

TEST(Screen, RefusesTheFirstRowThatIsNotFinite) {
  for (const double bad : {kNaN, kInfinity, -kInfinity, 1e200}) {
    const Screened screened = screen(std::vector{1.0, bad, kNaN}, {}, {});
    EXPECT_THAT(screened.problem, testing::HasSubstr("element 1 is "));
  }
}

TEST(Screen, MasksWhatIsNotFiniteAndMindsNoPaddedRow) {
  const Screened masked = screen(std::vector{1.0, kNaN, 2.0}, {}, {.non_finite = NonFinite::mask});
  EXPECT_EQ(masked.problem, "");
  EXPECT_EQ(masked.count, 2);
  EXPECT_THAT(masked.counted, testing::ElementsAre(1, 0, 1));
  const Screened padded = screen(std::vector{1.0, kNaN}, std::vector<uint8_t>{1, 0}, {});
  EXPECT_EQ(padded.problem, "");
  EXPECT_EQ(padded.count, 1);
}

}  // namespace
}  // namespace lockstep::rewards
