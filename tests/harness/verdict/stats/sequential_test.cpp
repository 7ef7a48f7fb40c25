#include "harness/verdict/stats/sequential.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

using support::scatter;
using testing::HasSubstr;

const SeedsAuto kTo40{.on = true, .first = 5, .step = 5, .most = 40, .budget_s = 0};

struct Arms {
  MetricsBySeed cell, reference;
  OutcomeInputs inputs() const { return {"8x3", "1x24", cell, reference, {"accuracy_24", 0.03, 0.05, 0}}; }
};

Arms arms(int seeds, double effect, double sd) {
  Arms arms;
  for (int64_t seed = 0; seed < seeds; ++seed) {
    arms.reference[seed]["accuracy_24"] = 0.7;
    arms.cell[seed]["accuracy_24"] = 0.7 + effect + sd * scatter(seed);
  }
  return arms;
}

TEST(Sequential, StopsAtTheFirstLookThatDecides) {
  const Arms both = arms(40, 0, 0.004);
  const Outcome outcome = judge_sequentially(both.inputs(), kTo40);
  EXPECT_EQ(outcome.verdict, VerdictKind::equivalent);
  EXPECT_EQ(outcome.n, 5) << "later pairs are not looked at";
  ASSERT_TRUE(outcome.sequential);
  EXPECT_EQ(outcome.sequential->ended, InterimEnd::decided);
  ASSERT_EQ(outcome.sequential->looks.size(), 1u);
  EXPECT_EQ(outcome.alpha, 0.05);
  EXPECT_LE(outcome.p_equivalent, outcome.alpha);
  EXPECT_NEAR(outcome.equivalence.level, 1 - 2 * outcome.sequential->looks[0].alpha_here, 1e-12);
  EXPECT_NEAR(outcome.primary.interval.level, 1 - outcome.sequential->looks[0].alpha_here, 1e-12);
  EXPECT_THAT(outcome.sentence, HasSubstr("Interim analysis 1 of 8 at the nominal level"));
}

TEST(Sequential, FindsALargeDifferenceDivergent) {
  const Outcome outcome = judge_sequentially(arms(40, -0.2, 0.01).inputs(), kTo40);
  EXPECT_EQ(outcome.verdict, VerdictKind::divergent);
  EXPECT_EQ(outcome.n, 5);
}

TEST(Sequential, AVerdictAtTheFullLevelIsNoneAtALook) {
  // Five pairs that a single look at alpha would call equivalent.
  const Arms five = arms(5, 0.002, 0.018);
  ASSERT_EQ(judge_outcome(five.inputs()).verdict, VerdictKind::equivalent);
  const Outcome outcome = judge_sequentially(five.inputs(), kTo40);
  EXPECT_EQ(outcome.verdict, VerdictKind::inconclusive);
  EXPECT_GT(outcome.p_equivalent, outcome.alpha) << "the level of the look is in p as well";
  EXPECT_EQ(outcome.sequential->ended, InterimEnd::budget);
  EXPECT_THAT(outcome.sentence, HasSubstr("the budget ended before 40 seeds"));
  EXPECT_GT(outcome.seeds_needed, 5);
}

TEST(Sequential, SaysThatNoMoreSeedsWereAllowed) {
  const Outcome outcome = judge_sequentially(arms(40, 0.03, 0.05).inputs(), kTo40);
  EXPECT_EQ(outcome.verdict, VerdictKind::inconclusive);
  EXPECT_EQ(outcome.sequential->ended, InterimEnd::most_seeds);
  EXPECT_EQ(outcome.sequential->looks.size(), 8u);
  EXPECT_EQ(outcome.n, 40);
}

TEST(Sequential, RefusesWhatAComparisonRefuses) {
  Arms both = arms(10, 0, 0.01);
  both.reference.erase(3);
  EXPECT_THROW(judge_sequentially(both.inputs(), kTo40), OutcomeError);
}

TEST(Sequential, AMatrixIsJudgedByItsLooks) {
  support::SyntheticMatrix matrix(10);
  matrix.plan.matrix.seeds_auto = kTo40;
  matrix.add_cell({"near", 0.0, 0.004});
  matrix.add_cell({"wide", 0.01, 0.05});
  matrix.add_cell({"control", -0.2, 0.01, 0, true});
  matrix.options.outcomes_only = true;
  const Results results = matrix.judge();
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::equivalent);
  EXPECT_EQ(results.cells[0].outcome->n, 5);
  EXPECT_FALSE(wants_more_seeds(results.cells[0], kTo40));
  EXPECT_EQ(results.cells[1].verdict, VerdictKind::inconclusive);
  EXPECT_TRUE(wants_more_seeds(results.cells[1], kTo40));
  EXPECT_FALSE(wants_more_seeds(results.cells[2], kTo40)) << "a control that is caught stops as any cell";
  EXPECT_FALSE(results.cells[0].mechanism) << "outcomes alone";
}

}  // namespace
}  // namespace lockstep
