#include "harness/base/numbers.h"
#include "reports/numbers.h"

#include <gtest/gtest.h>

#include <limits>

#include "reports/plots/chart.h"

namespace lockstep {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(SignedNumber, GivesZeroOneSign) {
  EXPECT_EQ(signed_number(-0.0001, 3), "+0.000");
  EXPECT_EQ(signed_number(-0.0, 1), "+0.0");
  EXPECT_EQ(signed_number(-0.0941, 3), "−0.094");
  EXPECT_EQ(signed_number(0.5, 3), "+0.500");
}

TEST(SignedNumber, NamesWhatIsNoNumber) {
  EXPECT_EQ(signed_number(kNaN, 3), "not a number");
  EXPECT_EQ(signed_number(-kInfinite, 3), "−infinite");
  EXPECT_EQ(signed_number(1e300, 3), "+1.00e+300");
}

TEST(CompactNumber, KeepsAboutFourDigits) {
  EXPECT_EQ(compact_number(0), "0");
  EXPECT_EQ(compact_number(0.43312), "0.433");
  EXPECT_EQ(compact_number(12.3456), "12.35");
  EXPECT_EQ(compact_number(-1234.5), "−1234");
  EXPECT_EQ(compact_number(1.2e-7), "1.20e-07");
  EXPECT_EQ(compact_number(kNaN), "not a number");
}

TEST(DecimalsFor, ShowATenthOfTheUnit) {
  EXPECT_EQ(decimals_for(0.03), 3);
  EXPECT_EQ(decimals_for(0.5), 2);
  EXPECT_EQ(decimals_for(20), 0);
  EXPECT_EQ(decimals_for(0), 3);
  EXPECT_EQ(decimals_for(kNaN), 3);
}

TEST(BandWords, SayShareInsideAndMultipleOutside) {
  EXPECT_EQ(band_words(0), "0 % of tolerance");
  EXPECT_EQ(band_words(0.19), "19 % of tolerance");
  EXPECT_EQ(band_words(0.001), "< 1 % of tolerance");
  EXPECT_EQ(band_words(12.4), "12 × tolerance");
  EXPECT_EQ(band_share(86000), "8.6e+04 ×");
  EXPECT_EQ(band_share(kInfinite), "infinite ×");
}

TEST(BandShare, NeverRoundsAnExcessDownToTheEdge) { EXPECT_EQ(band_share(1.0001), "1.0 ×"); }

TEST(ShareOfBand, IsInfiniteOnlyWhereAnEmptyBandIsLeft) {
  GradientSignature s;
  EXPECT_EQ(share_of_band(s), 0);
  s.difference = 1e-9;
  EXPECT_EQ(share_of_band(s), kInfinite);
  s.band = 2e-9;
  EXPECT_DOUBLE_EQ(share_of_band(s), 0.5);
}

TEST(SeedsWords, JoinRuns) {
  EXPECT_EQ(seeds_words({0, 1, 2, 3}), "0–3");
  EXPECT_EQ(seeds_words({0, 1, 5, 7, 8, 9}), "0, 1, 5, 7–9");
  EXPECT_EQ(seeds_words({}), "");
}

TEST(NiceTicks, AreRoundAndInside) {
  const Ticks ticks = nice_ticks(-0.41, 0.13, 7);
  EXPECT_EQ(ticks.decimals, 1);
  ASSERT_EQ(ticks.values.size(), 6u);
  EXPECT_DOUBLE_EQ(ticks.values.front(), -0.4);
  EXPECT_EQ(ticks.values[4], 0);
}

TEST(NiceTicks, GiveNoneWithoutARange) {
  EXPECT_TRUE(nice_ticks(1, 1, 5).values.empty());
  EXPECT_TRUE(nice_ticks(kNaN, 1, 5).values.empty());
}

TEST(StepTicks, AreWholeNumbers) {
  for (const double high : {1.0, 3.0, 29.0, 600.0, 1e6}) {
    const Ticks ticks = step_ticks(high, 7);
    ASSERT_GE(ticks.values.size(), 2u) << high;
    for (const double tick : ticks.values) EXPECT_EQ(tick, static_cast<int64_t>(tick));
    EXPECT_LE(ticks.values.back(), high);
  }
}

}  // namespace
}  // namespace lockstep
