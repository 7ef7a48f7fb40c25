#include "harness/lib/rewards/convention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/lib/rewards/advantages.h"

namespace lockstep::rewards {
namespace {

using Problems = std::vector<std::pair<std::string, std::string>>;

/// A convention that a project uses, and the advantage of the last row of three groups: {0.25, 1, -0.5, 2}, {0, 1} and
/// {3, 3.00005}, computed with 60 decimal digits from the formula that stands in its code.
struct Golden {
  const char* project;
  Convention convention;
  double last[3];
};

const std::vector<Golden>& goldens() {
  using enum EpsilonPlace;
  using enum FloorPlace;
  static const std::vector<Golden> kGoldens{
      // trl, GRPOTrainer: (r - mean) / (nanstd + 1e-4)
      {"TRL GRPO", {1, 1e-4, outside, 0, deviation}, {1.2288169878394102, 0.70700679532668342, 0.18469903125874662}},
      // verl, core_algos.compute_grpo_outcome_advantage: torch.std, + 1e-6
      {"verl GRPO", {1, 1e-6, outside, 0, deviation}, {1.2289308948755169, 0.70710578118796175, 0.68765690671187296}},
      // verl, torch_functional.masked_whiten: rsqrt(var + 1e-8)
      {"verl whiten", {1, 1e-8, inside, 0, deviation}, {1.2289320401722716, 0.70710677411547984, 0.23570226039502756}},
      // OpenRLHF, group_norm: / (std + 1e-9)
      {"OpenRLHF group", {1, 1e-9, outside, 0, deviation}, {1.228932044408686, 0.70710678018654749, 0.70708678175221695}},
      // OpenRLHF, over all: var of a population, clamp(min=1e-8).rsqrt()
      {"OpenRLHF global", {0, 0, outside, 1e-8, variance}, {1.4190484946389206, 1, 0.24999999999941735}},
      // slime: Bessel's, epsilon 1e-8 under the root
      {"slime", {1, 1e-8, inside, 0, deviation}, {1.2289320401722716, 0.70710677411547984, 0.23570226039502756}},
      // DDPO: population, + 1e-8
      {"DDPO", {0, 1e-8, outside, 0, deviation}, {1.4190484792964548, 0.99999998000000045, 0.99960015993602469}},
      // flow_grpo: population, + 1e-4
      {"flow_grpo", {0, 1e-4, outside, 0, deviation}, {1.4188950865675571, 0.99980003999200162, 0.19999999999962709}},
      // lockstep's own: population, clamped at 1e-4
      {"lockstep", {}, {1.4190484946389206, 1, 0.24999999999941735}},
  };
  return kGoldens;
}

TEST(Convention, GivesTheAdvantagesOfTheProjectsThatUseIt) {
  const std::vector<std::vector<double>> groups{{0.25, 1, -0.5, 2}, {0, 1}, {3, 3.00005}};
  for (const Golden& golden : goldens()) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::vector<int64_t> same(groups[i].size(), 0);
      const Advantages done = advantages_of({groups[i], same, {}}, Estimator::group, golden.convention);
      ASSERT_EQ(done.problem, "");
      const double ulp = 0x1p-52 * 3.00005 / done.by_group[0].deviation;
      EXPECT_NEAR(done.values.back(), golden.last[i], 4 * ulp) << golden.project << ", group " << i;
    }
  }
}

TEST(Convention, IsReadBackFromWhatItWrote) {
  for (const Golden& golden : goldens()) {
    Problems problems;
    EXPECT_EQ(convention_from_json(to_json(golden.convention), problems), golden.convention);
    EXPECT_THAT(problems, testing::IsEmpty());
  }
}

TEST(Convention, TellsEveryProblemAtOnce) {
  Problems problems;
  convention_from_json({{"ddof", 2}, {"epsilom", 1}, {"floor", -1}, {"epsilon_place", "within"}}, problems);
  EXPECT_THAT(problems,
              testing::UnorderedElementsAre(testing::Pair("ddof", testing::HasSubstr("0 (of a population)")),
                                            testing::Pair("epsilom", "unknown key; did you mean epsilon?"),
                                            testing::Pair("floor", testing::HasSubstr("at least 0")),
                                            testing::Pair("epsilon_place", "'within' is not outside or inside")));
}

TEST(Convention, NamesWhereTwoDiffer) {
  EXPECT_THAT(differences({.ddof = 1}, {}), testing::ElementsAre("ddof is 1 and should be 0"));
  EXPECT_THAT(differences({}, {}), testing::IsEmpty());
}

TEST(Deviation, HasItsFloorBeforeItsEpsilon) {
  EXPECT_EQ(deviation_of(0, {}), 1e-4);
  EXPECT_EQ(deviation_of(0, {.epsilon = 1, .floor = 2}), 3);
  EXPECT_EQ(deviation_of(0, {.epsilon = 5, .epsilon_place = EpsilonPlace::inside, .floor = 4,
                             .floor_place = FloorPlace::variance}),
            3);
  EXPECT_EQ(deviation_of(9, {.floor = 4, .floor_place = FloorPlace::variance}), 3);
}

}  // namespace
}  // namespace lockstep::rewards
