#include "reports/plots/curves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/results_fixture.h"

namespace lockstep {
namespace {

TEST(PushApart, LeavesLabelsThatHaveRoomWhereTheyAre) {
  EXPECT_EQ(push_apart({20, 60, 100}, {14, 14, 14}, 0, 200), (std::vector<double>{20, 60, 100}));
}

TEST(PushApart, SeparatesEqualLabelsAroundTheirPlace) {
  EXPECT_EQ(push_apart({50, 50, 50}, {10, 10, 10}, 0, 200), (std::vector<double>{40, 50, 60}));
}

TEST(PushApart, NeverOverlapsAndStaysInside) {
  const std::vector<double> wanted{1, 2, 3, 95, 96, 97, 98}, heights{14, 28, 14, 14, 14, 14, 14};
  const std::vector<double> placed = push_apart(wanted, heights, 0, 120);
  ASSERT_EQ(placed.size(), wanted.size());
  EXPECT_GE(placed.front() - heights.front() / 2, -1e-9);
  EXPECT_LE(placed.back() + heights.back() / 2, 120 + 1e-9);
  for (std::size_t i = 1; i < placed.size(); ++i) {
    EXPECT_GE(placed[i] - placed[i - 1], (heights[i] + heights[i - 1]) / 2 - 1e-9) << i;
  }
}

TEST(Thin, KeepsEndsAndExtremes) {
  std::vector<CurvePoint> points;
  for (int i = 0; i < 5000; ++i)
    points.push_back({double(i), i == 1234 ? 9.0 : i == 4321 ? -9.0 : 0.0, -1, 1});
  points[777].low = -50;
  const std::vector<CurvePoint> kept = thin(points, 100);
  EXPECT_LE(kept.size(), 300u);
  EXPECT_EQ(kept.front().step, 0);
  EXPECT_EQ(kept.back().step, 4999);
  const auto median = [](const CurvePoint& a, const CurvePoint& b) { return a.median < b.median; };
  EXPECT_EQ(std::max_element(kept.begin(), kept.end(), median)->median, 9);
  EXPECT_EQ(std::min_element(kept.begin(), kept.end(), median)->median, -9);
  EXPECT_TRUE(std::any_of(kept.begin(), kept.end(), [](const auto& p) { return p.low == -50; }));
  EXPECT_TRUE(
      std::is_sorted(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.step < b.step; }));
}

TEST(CurvesOf, LeavesOutWhatIsNoNumber) {
  Results r = outcome_results();
  r.cells.resize(1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  r.cells[0].curves = {{"loss_over_log_n", {0, 1, 2, 3}, {1, nan, 0.5, INFINITY}, {1, 1}, {}}};
  const std::vector<Curve> curves = curves_of(r, "loss_over_log_n");
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_TRUE(curves[0].is_reference());
  ASSERT_EQ(curves[1].points.size(), 2u);
  EXPECT_EQ(curves[1].points[1].step, 2);
  EXPECT_EQ(curves[1].points[1].low, 0.5);
}

TEST(FrameOf, ACellThatBlowsUpDoesNotFlattenTheOthers) {
  Results r = outcome_results();
  r.cells[1].curves[0].high.back() = 1e6;
  const CurveFrame frame = frame_of(curves_of(r, "loss_over_log_n"), "loss_over_log_n", 600);
  EXPECT_LT(frame.high, 3);
  ASSERT_TRUE(frame.off_high.has_value());
  EXPECT_EQ(*frame.off_high, 1e6);
}

TEST(FrameOf, ChanceIsOfTheRunsDataWhereTheseSayIt) {
  Results r = outcome_results();
  EXPECT_DOUBLE_EQ(frame_of(curves_of(r, "accuracy_24"), "accuracy_24", 600).chance, 1.0 / 24);
  for (CurveBand& band : r.references[0].curves) band.chance = 1.0 / 9;
  EXPECT_DOUBLE_EQ(frame_of(curves_of(r, "accuracy_24"), "accuracy_24", 600).chance, 1.0 / 9);
}

TEST(FrameOf, NothingIsOffScaleInAnOrdinaryMatrix) {
  const CurveFrame frame = frame_of(curves_of(outcome_results(), "accuracy_24"), "accuracy_24", 600);
  EXPECT_FALSE(frame.off_high.has_value());
  EXPECT_FALSE(frame.off_low.has_value());
  EXPECT_EQ(frame.low, 0);
}

}  // namespace
}  // namespace lockstep
