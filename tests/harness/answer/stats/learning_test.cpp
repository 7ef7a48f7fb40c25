#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/answer/results/words.h"
#include "harness/base/numbers.h"
#include "tests/support/synthetic_matrix.h"

// What a whole matrix says of learning: families of cells, curves, metrics that are not finite, one seed.

namespace lockstep {
namespace {

using support::SyntheticMatrix;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// One cell that differs from 0 by a little and four that do not, at a margin that hides nothing.
SyntheticMatrix family(int others) {
  SyntheticMatrix matrix;
  matrix.plan.matrix.primary.margin = 1e-6;
  matrix.add_cell({"picked", 0.0061, 0.008});
  for (int i = 0; i < others; ++i) matrix.add_cell({"other " + std::to_string(i), 0.0001, 0.008});
  return matrix;
}

TEST(Family, ACellPickedOutOfManySaysThatItMayBeChance) {
  const Results results = family(4).judge();
  const Outcome& picked = *results.cells[0].outcome;
  EXPECT_EQ(picked.verdict, VerdictKind::divergent);
  EXPECT_LT(picked.p_different, 0.05);
  EXPECT_NEAR(picked.p_holm, 5 * picked.p_different, 1e-12);
  EXPECT_THAT(picked.sentence, HasSubstr("; with so many cells it may be chance (Holm-adjusted p 0."));
  EXPECT_THAT(results.summary.sentence, HasSubstr("with so many cells it may be chance"));
}

TEST(Family, ACellAloneNeedsNoCorrection) {
  const Results results = family(0).judge();
  const Outcome& picked = *results.cells[0].outcome;
  EXPECT_EQ(picked.p_holm, picked.p_different);
  EXPECT_THAT(results.summary.sentence, Not(HasSubstr("chance")));
}

TEST(Family, LeavesOutPowerControlsAndPairsThatDifferInNoise) {
  SyntheticMatrix matrix = family(2);
  matrix.add_cell({"control", -0.4, 0.01, 0.0, true, {}});
  matrix.add_cell({"noise", 0.0001, 0.008});
  matrix.plan.matrix.cells.back().noise = true;
  const Results results = matrix.judge();
  EXPECT_NEAR(results.cells[0].outcome->p_holm, 3 * results.cells[0].outcome->p_different, 1e-12);
  EXPECT_EQ(results.cells[3].outcome->p_holm, results.cells[3].outcome->p_different);
  EXPECT_EQ(results.cells[4].outcome->p_holm, results.cells[4].outcome->p_different);
}

TEST(OneSeed, IsUndecidedWithTheSeedsNeededAndDoesNotEndWellByItself) {
  SyntheticMatrix matrix(1);
  matrix.add_cell({"8x3 global"});
  const Results results = matrix.judge();
  const CellResult& cell = results.cells[0];
  EXPECT_EQ(cell.verdict, VerdictKind::inconclusive);
  EXPECT_EQ(cell.outcome->seeds_needed, 2);
  EXPECT_EQ(cell.outcome->seeds_needed_half, 2);
  EXPECT_TRUE(std::isinf(cell.outcome->sd_upper));
  EXPECT_THAT(cell.outcome->estimates, IsEmpty());
  EXPECT_THAT(cell.outcome->curves, IsEmpty());
  EXPECT_FALSE(cell.failure);
  EXPECT_EQ(results.summary.exit_code, 5);
}

TEST(OneSeed, IsAsExpectedWhereThatIsExpected) {
  SyntheticMatrix matrix(1);
  matrix.add_cell({"8x3 global", 0.0, 0.0, 0.0, false, {VerdictKind::inconclusive}});
  EXPECT_EQ(matrix.judge().summary.exit_code, 0);
}

TEST(CurvesOfAMatrix, AreJudgedBesideTheEnd) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.plan.matrix.primary.target = 0.6;
  const Results results = matrix.judge();
  const Outcome &same = *results.cells[0].outcome, &worse = *results.cells[1].outcome;
  ASSERT_EQ(worse.curves.size(), 1u);
  EXPECT_THAT(worse.curves[0].steps, ElementsAre(0, 25, 50, 75, 100));
  EXPECT_EQ(same.curves[0].first_leaves, -1);
  EXPECT_EQ(worse.curves[0].first_leaves, 50)
      << "-0.0235 at step 25, with what a band of ten seeds adds, is inside";
  EXPECT_EQ(worse.curves[0].first_beyond, 50);
  ASSERT_TRUE(worse.target);
  EXPECT_EQ(worse.target->reference_reached, 10);
  EXPECT_LT(worse.target->cell_reached, 10);
  EXPECT_GT(worse.target->later, 0);
  const auto area = std::ranges::find(worse.others, "auc_accuracy_24", &MetricDifference::metric);
  ASSERT_NE(area, worse.others.end());
  EXPECT_NEAR(area->mean, -0.094 / 2, 1e-12);
  EXPECT_TRUE(area->higher_is_better);
}

TEST(NotFinite, AMetricThatDoesNotDecideIsNamedAndLeftOut) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.result("8x3 global seed 6").metrics["cross_entropy_24"] = kNaN;
  const Results results = matrix.judge();
  const CellResult& cell = results.cells[0];
  EXPECT_EQ(cell.verdict, VerdictKind::equivalent);
  EXPECT_THAT(cell.outcome->notes, ElementsAre("8x3 global, seed 6: cross_entropy_24 is nan"));
  EXPECT_EQ(std::ranges::count(cell.outcome->others, "cross_entropy_24", &MetricDifference::metric), 0);
  EXPECT_THAT(results.summary.sentence,
              HasSubstr("Not compared in 8x3 global: 8x3 global, seed 6: cross_entropy_24 is nan."));
  EXPECT_THAT(results.cells[1].outcome->notes, IsEmpty());
}

TEST(NotFinite, AMetricOfTheReferenceIsNamedInAllItsCells) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.result("1x24 global seed 2").metrics["temperature"] = std::numeric_limits<double>::infinity();
  const Results results = matrix.judge();
  for (const CellResult& cell : results.cells) {
    EXPECT_THAT(cell.outcome->notes, ElementsAre("1x24 global, seed 2: temperature is inf"));
  }
  EXPECT_FALSE(results.references[0].metric_means.contains("temperature"));
}

TEST(NotFinite, TheCurveOfThePrimaryMetricFailsTheCellByRunSeedAndStep) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.result("8x3 global seed 6").curves["accuracy_24"].values[2] = kNaN;
  const CellResult cell = matrix.judge().cells[0];
  EXPECT_EQ(cell.verdict, VerdictKind::failed);
  EXPECT_EQ(cell.failure->kind, FailureKind::nonfinite);
  EXPECT_EQ(cell.failure->run, "8x3 global seed 6");
  EXPECT_EQ(cell.failure->message, "accuracy_24 is nan on rank 0 at step 50, seed 6");
}

}  // namespace
}  // namespace lockstep
