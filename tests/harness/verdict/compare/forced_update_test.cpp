// A parameter that an update left as it was: a finding where nobody can say what its update should have been, none where its own
// gradient gives none.

#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "harness/verdict/compare/forced/step.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {
namespace {

constexpr double kReferenceGradient = 2e-5;

ForcedValues moved_by(double gradient, double after) {
  ForcedValues values;
  values.gradients = {{"head.bias", {1}, {gradient}}};
  values.parameters = {{"head.bias", {1}, {after}}};
  values.learning_rate = 1;
  return values;
}

/// The reference's parameter moves by its gradient, the cell's keeps 0.1 with a gradient of its own.
std::optional<Difference> judged(double cell_gradient, double momentum) {
  static const ScoreSpec kScores;
  static const BandConfig kBand;
  static const std::vector<ForcedValues> kNoRepeats;
  StepOfRun one;
  one.ranks.resize(1);
  TrainingFacts facts;
  facts.update.emplace().momentum = momentum;
  ForcedContext context{one, one, kNoRepeats, kScores, kBand, facts, facts, true, false, nullptr, {}, {}};
  const auto state = std::make_shared<const Snapshot>(Snapshot{{{"head.bias", {1}, {0.1}}}, 3.0});
  context.evidence.state = context.evidence.reference_state = state;
  context.evidence.reference = moved_by(kReferenceGradient, 0.1 - kReferenceGradient);
  context.evidence.cell = moved_by(cell_gradient, 0.1);
  return judge_parameters(context);
}

TEST(JudgeParameters, AGradientOfRoundingAloneMayLeaveAParameterAsItWas) { EXPECT_FALSE(judged(1e-10, 0)); }

TEST(JudgeParameters, AnUpdateThatTheOwnGradientAsksForIsMissed) {
  const auto found = judged(kReferenceGradient, 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->divergence.where, "head.bias");
  EXPECT_EQ(found->divergence.kind, DivergenceKind::update);
}

TEST(JudgeParameters, AParameterOfWhichNoStateIsKnownMustMoveWhereTheReferencesDoes) {
  const auto found = judged(kReferenceGradient, 0.9);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->divergence.where, "head.bias");
}

TEST(Distance, TwoThatAreNoNumbersAreAlike) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(distance(nan, -nan), 0);
  EXPECT_EQ(distance(infinite, infinite), 0);
  EXPECT_EQ(distance(infinite, -infinite), infinite);
  EXPECT_EQ(distance(nan, 1.0), infinite);
}

}  // namespace
}  // namespace lockstep
