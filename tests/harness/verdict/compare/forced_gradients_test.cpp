#include "harness/verdict/compare/forced/gradients.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

ForcedValues values(std::vector<double> gradient) {
  ForcedValues made;
  made.gradients = {{"head.weight", {static_cast<int64_t>(gradient.size())}, std::move(gradient)}};
  return made;
}

double share_used(const std::vector<double>& reference, const std::vector<double>& cell,
                  const std::vector<double>& repeat) {
  const ForcedValues one = values(repeat);
  return judge_gradients(values(reference), values(cell), {one, one, one, one}, {}).tensors.at(0).use.used();
}

TEST(JudgeGradients, TheBandOfManyElementsIsTheFactorTimesTheRepeats) {
  EXPECT_LT(share_used({1, 1}, {1 + 7e-6, 1}, {1 + 1e-6, 1}), 1);
  EXPECT_GT(share_used({1, 1}, {1 + 9e-6, 1}, {1 + 1e-6, 1}), 1);
}

TEST(JudgeGradients, RepeatsThatCoincideLeaveAFloorWithoutTermSumsToo) {
  EXPECT_LT(share_used({1, 1}, {1 + 1e-7, 1}, {1, 1}), 1);
  EXPECT_GT(share_used({1, 1}, {1 + 1e-5, 1}, {1, 1}), 1);
}

TEST(JudgeGradients, WithoutTermSumsAnElementThatNearlyCancelsRoundsAsUsualOnesDo) {
  // One element of 1e-7 beside a hundred of 1; its repeats coincide.
  const auto gradient = [](double small) {
    ForcedValues made = values(std::vector<double>(100, 1.0));
    made.gradients.push_back({"head.bias", {1}, {small}});
    return made;
  };
  const auto used = [&](double small) {
    const ForcedValues one = gradient(1e-7);
    return judge_gradients(one, gradient(small), {one, one, one, one}, {}).tensors.at(1).use.used();
  };
  EXPECT_LT(used(2e-7), 1);
  EXPECT_GT(used(1e-6), 1);
}

TEST(JudgeGradients, RanksThatCancelEachOtherStandForTheTermsThatNobodyRecorded) {
  ForcedValues reference = values({1e-6, 1e-6}), cell = values({1e-6 + 1e-7, 1e-6});
  const auto used = [&] {
    return judge_gradients(reference, cell, {reference, reference, reference, reference}, {})
        .tensors.at(0)
        .use.used();
  };
  EXPECT_GT(used(), 1);
  reference.local = {values({1, 1}).gradients, values({-1 + 2e-6, -1 + 2e-6}).gradients};
  EXPECT_LT(used(), 1);
}

TEST(JudgeGradients, ASingleElementWhoseRepeatsLieCloseByChanceIsNoAlarm) {
  EXPECT_LT(share_used({1}, {1 + 60e-8}, {1 + 1e-8}), 1);
}

/// Five tensors of two elements whose terms sum to 1 each; what one of them has is added to `value`.
ForcedValues five(double others, double fifth) {
  ForcedValues made;
  for (int i = 0; i < 5; ++i) {
    const std::string name = "head.tensor" + std::to_string(i);
    made.gradients.push_back({name, {2}, {0.5 + (i < 4 ? others : fifth), 0.5}});
    made.term_sums.push_back({name, {2}, {1, 1}});
  }
  return made;
}

double fifth_used(double difference) {
  // Four tensors round by 1e-6; the fifth's repeats lie close by chance.
  const ForcedValues one = five(1e-6, 2e-7);
  return judge_gradients(five(0, 0), five(0, difference), {one, one, one, one}, {}).tensors.at(4).use.used();
}

TEST(JudgeGradients, ATensorWhoseRepeatsLieCloseByChanceRoundsAsTheOthersDo) {
  EXPECT_LT(fifth_used(5e-6), 1);
  EXPECT_GT(fifth_used(1e-5), 1);
}

TEST(JudgeGradients, ATensorThatRoundsFarLessThanTheOthersIsJudgedByItsOwnRepeats) {
  const ForcedValues one = five(1e-3, 1e-9);
  const auto used = [&](double difference) {
    const ForcedValues cell = five(0, difference);
    return judge_gradients(five(0, 0), cell, {one, one, one, one}, {}).tensors.at(4).use.used();
  };
  EXPECT_GT(used(1e-3), 1) << "what rounds a millionth of the others has no band of theirs";
}

TEST(JudgeGradients, TheFloorKnowsInWhichPrecisionTermsWereComputed) {
  RunConfig config;
  const auto used = [&config](double difference) {
    ForcedValues reference = five(0, 0);
    reference.working_epsilon = working_epsilon(training_facts(config), reference.epsilon);
    const ForcedValues same = five(0, 0);  // bits that four repeats do not move
    const ForcedValues cell = five(0, difference);
    return judge_gradients(reference, cell, {same, same, same, same}, {}).tensors.at(4).use.used();
  };
  EXPECT_GT(used(0.01), 1) << "float32 does not round by a hundredth";
  config.precision = Precision::bfloat16;
  EXPECT_LT(used(0.01), 1);
  EXPECT_GT(used(0.03), 1);
  EXPECT_EQ(working_epsilon(TrainingFacts{}, 1e-7), 1e-7) << "nothing is known without a config";
}

TEST(JudgeGradients, ASingleElementScaledByAThousandthIsFound) {
  EXPECT_GT(share_used({1}, {1.001}, {1 + 1e-6}), 1);
}

/// Where numbers are so small that they have no digits left, a mean is rounded by whole steps.
TEST(JudgeReduction, AMeanOfTheSmallestNumbersIsRoundedByTheirSteps) {
  for (const auto& [epsilon, least] : {std::pair<double, double>{std::numeric_limits<double>::epsilon(), std::numeric_limits<double>::denorm_min()},
                                       {std::numeric_limits<float>::epsilon(), std::numeric_limits<float>::denorm_min()}}) {
    const auto used = [&](double mean) {
      ForcedValues cell = values({mean, 1});
      cell.gradients.front().epsilon = cell.epsilon = epsilon;
      for (const double own : {3 * least, 2 * least, 3 * least}) cell.local.push_back(values({own, 1}).gradients);
      return judge_reduction(cell).at(0).used;
    };
    EXPECT_LE(used(2 * least), 1) << epsilon;
    EXPECT_LE(used(3 * least), 1) << epsilon;
    EXPECT_GT(used(12 * least), 1) << epsilon;
  }
}

}  // namespace
}  // namespace lockstep
