// Where runs are chaotic, seeds are not the only noise: A/A pairs show it, and verdicts say it.

#include "harness/verdict/stats/rounding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/verdict/results/document.h"
#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

using support::SyntheticMatrix;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

TEST(Rounding, AVerdictThatRoundingAloneMayTurnSaysSo) {
  const Results results = judged(0.009, 0.028, 0.028);
  const CellResult& cell = results.cells[0];
  ASSERT_EQ(cell.verdict, VerdictKind::equivalent);
  ASSERT_TRUE(cell.outcome->rounding);
  EXPECT_NEAR(cell.outcome->rounding->sd, 0.028, 1e-12);
  EXPECT_EQ(cell.outcome->rounding->n, 10);
  EXPECT_NEAR(cell.outcome->rounding->shift, 2.262157162798205 * 0.028 * std::sqrt(0.2), 1e-9);
  const std::string said =
      "rounding alone changes it: where only rounding differs (A-A pair), runs of one seed differ with "
      "a standard deviation "
      "of 0.028 (10 seeds), so on another machine the difference may be 0.028 or more higher or lower, "
      "and the verdict "
      "may change.";
  EXPECT_THAT(cell.outcome->sentence, HasSubstr("; " + said));
  EXPECT_THAT(results.summary.sentence, HasSubstr("In 8x3 lr=8, " + said));
  EXPECT_FALSE(results.cells[2].outcome->rounding) << "an A/A pair is judged by nothing";
}

TEST(Rounding, SoDoesAnUndecidedCellThatItMayDecide) {
  const Results results = judged(0.027, 0.028, 0.028);
  ASSERT_EQ(results.cells[0].verdict, VerdictKind::inconclusive);
  EXPECT_TRUE(may_turn(*results.cells[0].outcome));
  EXPECT_THAT(results.cells[0].outcome->sentence, HasSubstr("and the verdict may change"));
}

TEST(Rounding, ASteadyPairSaysNothing) {
  const Results results = judged(0.001, 0.008, 0.002);
  ASSERT_TRUE(results.cells[0].outcome->rounding);
  EXPECT_FALSE(is_unsteady(*results.cells[0].outcome));
  EXPECT_THAT(results.summary.sentence, Not(HasSubstr("another machine")));
}

TEST(Rounding, ALargeShiftIsSaidOfAVerdictThatHoldsAllTheSame) {
  const Results results = judged(-0.3, 0.02, 0.03);
  const Outcome& outcome = *results.cells[0].outcome;
  ASSERT_EQ(outcome.verdict, VerdictKind::divergent);
  EXPECT_FALSE(may_turn(outcome));
  EXPECT_TRUE(is_unsteady(outcome));
  EXPECT_THAT(rounding_in_words(outcome), AllOf(HasSubstr("on another machine"), Not(HasSubstr("verdict"))));
}

TEST(Rounding, OtherRandomDrawsAreNoRounding) {
  EXPECT_FALSE(judged(0.009, 0.028, 0.028, "random_draws").cells[0].outcome->rounding);
  EXPECT_TRUE(judged(0.009, 0.028, 0.028, "row_order").cells[0].outcome->rounding);
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

TEST(Rounding, ComesBackFromResultsJson) {
  const Results results = judged(0.009, 0.028, 0.028);
  const Results again = results_from_json(results_to_json(results), "results.json");
  ASSERT_TRUE(again.cells[0].outcome->rounding);
  EXPECT_EQ(again.cells[0].outcome->rounding->shift, results.cells[0].outcome->rounding->shift);
  EXPECT_EQ(again.cells[0].outcome->detectable, results.cells[0].outcome->detectable);
  EXPECT_EQ(again.cells[0].outcome->p_skewed, results.cells[0].outcome->p_skewed);
}

}  // namespace
}  // namespace lockstep
