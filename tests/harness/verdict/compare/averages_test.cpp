#include "harness/verdict/compare/averages.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

using Values = std::vector<float>;

Record tensor(Phase phase, const std::string& name, const Values& values) {
  Record record;
  record.phase = phase;
  record.name = name;
  record.shape = {static_cast<int64_t>(values.size())};
  record.payload.resize(values.size() * sizeof(float));
  std::memcpy(record.payload.data(), values.data(), record.payload.size());
  return record;
}

StepOfRun step_of(int64_t step, const Values& parameter, const Values& average) {
  StepOfRun made;
  made.step = step;
  made.ranks.push_back({step, {tensor(Phase::parameters, "w", parameter)}});
  if (!average.empty()) made.ranks[0].records.push_back(tensor(Phase::averaged_weights, "w", average));
  return made;
}

Values mixed(const Values& average, const Values& parameter, double decay) {
  Values made;
  for (std::size_t i = 0; i < average.size(); ++i) made.push_back(static_cast<float>(decay * average[i] + (1 - decay) * parameter[i]));
  return made;
}

/// As a run has it: a step and the one before.
std::optional<AverageStep> fitted(const StepOfRun& before, const StepOfRun& step, std::optional<double> decay = std::nullopt) {
  return average_step({step, &before}, decay);
}

std::optional<Difference> difference(const std::optional<StepOfRun>& before_a, const StepOfRun& a, const std::optional<StepOfRun>& before_b, const StepOfRun& b) {
  return averages_difference({a, before_a ? &*before_a : nullptr}, {b, before_b ? &*before_b : nullptr});
}

const Values kOld{0.3F, -0.7F, 1.1F}, kBefore{0.5F, -0.5F, 0.9F}, kNow{0.8F, 0.1F, 0.7F};

TEST(AverageStep, TellsTheDecayThatFits) {
  for (const double decay : {0.0, 0.9, 0.99}) {
    const auto found = fitted(step_of(3, kBefore, kOld), step_of(4, kNow, mixed(kOld, kNow, decay)));
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->decay, decay, 1e-6);
    EXPECT_LE(found->residual, 1);
    EXPECT_FALSE(found->before);
  }
}

TEST(AverageStep, TellsParametersBeforeTheUpdateFromThoseAfterIt) {
  const auto found = fitted(step_of(3, kBefore, kOld), step_of(4, kNow, mixed(kOld, kBefore, 0.9)));
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->before);
  EXPECT_NEAR(found->decay, 0.9, 1e-6);
}

TEST(AverageStep, SaysHowFarAGivenDecayIsOff) {
  const auto found = fitted(step_of(3, kBefore, kOld), step_of(4, kNow, mixed(kOld, kNow, 0.9)), 0.8);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->worst, "w");
  EXPECT_GT(found->residual, 1000);
}

TEST(AverageStep, BeginsWithACopyOfTheParametersWhereNobodyRecordedAnother) {
  const auto first = fitted(step_of(-1, kBefore, {}), step_of(0, kNow, mixed(kBefore, kNow, 0.9)));
  ASSERT_TRUE(first);
  EXPECT_NEAR(first->decay, 0.9, 1e-6);
  EXPECT_FALSE(fitted(step_of(2, kBefore, {}), step_of(3, kNow, mixed(kBefore, kNow, 0.9)))) << "a later one is not known";
}

TEST(AverageStep, IsNothingWhereNothingMovedOrNoAverageWasKept) {
  EXPECT_FALSE(fitted(step_of(3, kNow, kNow), step_of(4, kNow, kNow)));
  EXPECT_FALSE(fitted(step_of(3, kBefore, kOld), step_of(4, kNow, {})));
}

TEST(AveragesDifference, IsNoneWhereBothFollowTheirOwnParametersAlike) {
  const Values other{2.5F, -1.5F, 0.25F};  // of run B, whose parameters rounding has taken elsewhere
  const StepOfRun before_a = step_of(3, kBefore, kOld), a = step_of(4, kNow, mixed(kOld, kNow, 0.9)),
                  b = step_of(4, other, mixed(kOld, other, 0.9));
  EXPECT_FALSE(difference(before_a, a, before_a, b));
}

TEST(AveragesDifference, AnotherDecayIsTold) {
  const StepOfRun before = step_of(3, kBefore, kOld), a = step_of(4, kNow, mixed(kOld, kNow, 0.9)), b = step_of(4, kNow, mixed(kOld, kNow, 0.8));
  const auto found = difference(before, a, before, b);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->phase, Phase::averaged_weights);
  EXPECT_EQ(found->divergence.where, "w");
  EXPECT_EQ(found->divergence.kind, DivergenceKind::update);
  EXPECT_THAT(found->divergence.expected, HasSubstr("0.9 times the old average"));
  EXPECT_THAT(found->divergence.actual, HasSubstr("0.8 times the old average"));
}

TEST(AveragesDifference, ParametersOfBeforeTheUpdateAreTold) {
  const StepOfRun before = step_of(3, kBefore, kOld), a = step_of(4, kNow, mixed(kOld, kNow, 0.9)), b = step_of(4, kNow, mixed(kOld, kBefore, 0.9));
  const auto found = difference(before, a, before, b);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->divergence.actual, HasSubstr("made of the parameters before the update"));
}

TEST(AveragesDifference, WhatIsNoAverageOfTheParametersIsFarFromOne) {
  const StepOfRun before = step_of(3, kBefore, kOld), a = step_of(4, kNow, mixed(kOld, kNow, 0.9)), b = step_of(4, kNow, {9, 8, -7});
  const auto found = difference(before, a, before, b);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->divergence.actual, HasSubstr("times as far from that as rounding goes"));
}

TEST(AveragesDifference, IsNoneWhereTheReferencesFollowNoRuleOrAStepLiesBetween) {
  const StepOfRun before = step_of(3, kBefore, kOld), odd = step_of(4, kNow, {9, 8, -7}), b = step_of(4, kNow, mixed(kOld, kNow, 0.8)),
                  a = step_of(4, kNow, mixed(kOld, kNow, 0.9)), earlier = step_of(2, kBefore, kOld);
  EXPECT_FALSE(difference(before, odd, before, b));
  EXPECT_FALSE(difference(earlier, a, before, b));
  EXPECT_FALSE(difference(before, a, earlier, b));
  EXPECT_FALSE(difference(std::nullopt, a, before, b));
}

}  // namespace
}  // namespace lockstep
