#include "harness/judge/forced_gradients.h"

#include <gtest/gtest.h>

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
  EXPECT_LT(share_used({1, 1}, {1 + 7e-8, 1}, {1 + 1e-8, 1}), 1);
  EXPECT_GT(share_used({1, 1}, {1 + 9e-8, 1}, {1 + 1e-8, 1}), 1);
}

TEST(JudgeGradients, ASingleElementWhoseRepeatsLieCloseByChanceIsNoAlarm) {
  EXPECT_LT(share_used({1}, {1 + 60e-8}, {1 + 1e-8}), 1);
}

TEST(JudgeGradients, ASingleElementScaledByAThousandthIsFound) {
  EXPECT_GT(share_used({1}, {1.001}, {1 + 1e-6}), 1);
}

}  // namespace
}  // namespace lockstep
