// Statistics, conventions and advantages of rewards, and the names of mistakes in them.

#include "harness/lib/rewards/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "harness/base/json.h"
#include "harness/base/numbers.h"

namespace lockstep::rewards {
namespace {

std::vector<double> draws(uint64_t key, std::size_t count, double mean, double spread) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(mean + spread * (unit_interval(keyed(key, i)) - 0.5));
  return values;
}

double ulps(double found, double expected) { return std::abs(found - expected) / (std::abs(expected) * 0x1p-52); }

/// The plain formula in the processor's 64-bit significand.
std::pair<double, double> reference(const std::vector<double>& values) {
  long double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const long double mean = sum / static_cast<long double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {static_cast<double>(mean), static_cast<double>(std::sqrt(squares / static_cast<long double>(values.size())))};
}

TEST(Moments, LieWithinFourUlpOfALongerSum) {
  for (const double mean : {0.5, 1e4, -1e8}) {
    for (uint64_t key = 0; key < 50; ++key) {
      const std::vector<double> values = draws(key, 2 + key * 11, mean, 1);
      const auto [expected_mean, expected_deviation] = reference(values);
      const Statistics found = statistics_of(moments_of(values), {});
      EXPECT_LE(ulps(found.mean, expected_mean), 4) << mean << " " << key;
      EXPECT_LE(ulps(found.deviation, expected_deviation), 4) << mean << " " << key;
    }
  }
}

TEST(Moments, OfEqualValuesHaveNoSpread) {
  for (const double value : {0.1, 1e4 + 0.1, -3e-7}) {
    const Moments found = moments_of(std::vector<double>(37, value));
    EXPECT_EQ(found.mean, value);
    EXPECT_EQ(found.m2, 0);
    EXPECT_EQ(statistics_of(found, {}).deviation, 1e-4);
  }
}

TEST(Merge, EqualsTheMomentsOfAllRows) {
  const std::vector<double> all = draws(3, 97, 1e4, 2);
  for (const std::size_t cut : {1, 40, 96}) {
    const Moments merged = merge(moments_of({all.data(), cut}), moments_of({all.data() + cut, all.size() - cut}));
    const Moments at_once = moments_of(all);
    EXPECT_EQ(merged.count, at_once.count);
    EXPECT_LE(ulps(merged.mean, at_once.mean), 4);
    EXPECT_NEAR(merged.m2 / at_once.m2, 1, 1e-11);
  }
}

TEST(Merge, WithAnEmptyOneChangesNoBit) {
  const Moments some = moments_of(draws(1, 9, 5, 1));
  EXPECT_EQ(merge(some, {}), some);
  EXPECT_EQ(merge({}, some), some);
  EXPECT_EQ(merge({}, {}), Moments{});
}

TEST(Screen, RefusesTheFirstRowThatIsNotFinite) {
  for (const double bad : {kNaN, kInfinity, -kInfinity, 1e200}) {
    const Screened screened = screen(std::vector{1.0, bad, kNaN}, {}, {});
    EXPECT_THAT(screened.problem, testing::HasSubstr("element 1 is "));
  }
}

TEST(Screen, MasksWhatIsNotFiniteAndMindsNoPaddedRow) {
  const Screened masked = screen(std::vector{1.0, kNaN, 2.0}, {}, {.non_finite = NonFinite::mask});
  EXPECT_EQ(masked.problem, "");
  EXPECT_EQ(masked.count, 2);
  EXPECT_THAT(masked.counted, testing::ElementsAre(1, 0, 1));
  const Screened padded = screen(std::vector{1.0, kNaN}, std::vector<uint8_t>{1, 0}, {});
  EXPECT_EQ(padded.problem, "");
  EXPECT_EQ(padded.count, 1);
}

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

/// Rewards of five groups, the last a short one; and ids under which groups cross the ranks' borders.
struct Rows {
  std::vector<double> rewards{0.25, 1, -0.5, 2, 0, 1, 0.3, 0.7, -1, 0.1, 0.9, 0.4, 3, 2.5, 0.2, -0.4, 1.5, 0.8};
  std::vector<int64_t> groups{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4};
};

AuditedStep step_of(const Rows& rows, const AdvantageWay& way) {
  AuditedStep step;
  step.band = 1e-9;
  step.ranks = 3;
  const std::vector<double> advantages = advantages_of({rows.rewards, rows.groups, {}}, way.estimator, way.convention).values;
  for (std::size_t i = 0; i < advantages.size(); ++i) {
    AuditedRow row;
    row.id = static_cast<int64_t>(i);
    row.group = rows.groups[i];
    row.rank = static_cast<int>(i % 3);
    row.expected_reward = row.reward = rows.rewards[i];
    row.expected_advantage = row.advantage = advantages[i];
    row.expected_ratio = row.ratio = 1;
    step.rows.push_back(row);
  }
  step.way = fitted_way({rows.rewards, rows.groups, {}}, advantages, 1e-9);
  return step;
}

TEST(Convention, IsFittedAndARightStepIsSilent) {
  const Rows rows;
  for (const KnownConvention& known : known_conventions()) {
    for (const Estimator estimator : {Estimator::leave_one_out, Estimator::global, Estimator::group, Estimator::group_mean}) {
      const AuditedStep step = step_of(rows, {estimator, known.convention});
      ASSERT_TRUE(step.way.has_value()) << known.project;
      EXPECT_EQ(step.way->estimator, estimator) << known.project;
      const auto found = audit(step);
      EXPECT_FALSE(found.has_value()) << known.project << ": " << found->code;
    }
  }
}

TEST(Convention, OfAnotherProjectIsNamed) {
  const Rows rows;
  AuditedStep step = step_of(rows, {Estimator::group, known_conventions()[0].convention});
  const AdvantageWay bessel{Estimator::group, {.ddof = 1}};
  const std::vector<double> other = advantages_of({rows.rewards, rows.groups, {}}, bessel.estimator, bessel.convention).values;
  for (std::size_t i = 0; i < other.size(); ++i) step.rows[i].advantage = other[i];
  EXPECT_EQ(audit(step)->code, "advantage-other-ddof");
}

TEST(FirstRatio, ThatIsNotOneIsNamedWithItsRank) {
  AuditedStep step = step_of(Rows{}, {});
  step.rows[4].ratio = 1.01;
  const auto found = audit(step);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->code, "first-ratio-not-1");
  EXPECT_EQ(found->ranks, std::set<int>{1});
}

TEST(MistakePages, NameEveryCodeOnce) {
  std::set<std::string_view> codes;
  for (const MistakePage& page : mistake_pages()) EXPECT_TRUE(codes.insert(page.code).second) << page.code;
}

TEST(Deviation, HasItsFloorBeforeItsEpsilon) {
  EXPECT_EQ(deviation_of(0, {}), 1e-4);
  EXPECT_EQ(deviation_of(0, {.epsilon = 1, .floor = 2}), 3);
  EXPECT_EQ(deviation_of(0, {.epsilon = 5, .epsilon_place = EpsilonPlace::inside, .floor = 4,
                             .floor_place = FloorPlace::variance}),
            3);
  EXPECT_EQ(deviation_of(9, {.floor = 4, .floor_place = FloorPlace::variance}), 3);
}

using testing::ElementsAre;
using testing::HasSubstr;

Advantages advantages(const std::vector<double>& rewards, const std::vector<int64_t>& groups, Estimator estimator,
                      const Convention& convention = {}, const std::vector<uint8_t>& counted = {}) {
  return advantages_of({rewards, groups, counted}, estimator, convention);
}

TEST(Advantages, LeaveOneOutSubtractsTheMeanOfTheOthers) {
  const Advantages done = advantages({1, 0, 5, 0, 1, 7}, {0, 0, 4, 0, 4, 9}, Estimator::leave_one_out);
  EXPECT_THAT(done.values, ElementsAre(1, -0.5, 4, -0.5, -4, 0));
  EXPECT_THAT(done.group_ids, ElementsAre(0, 4, 9));
}

TEST(Advantages, OfOneRowAreZeroOrRaw) {
  for (const Estimator estimator : {Estimator::leave_one_out, Estimator::group}) {
    EXPECT_THAT(advantages({7}, {3}, estimator).values, ElementsAre(0));
    EXPECT_THAT(advantages({7}, {3}, estimator, {.group_of_one = GroupOfOne::raw}).values, ElementsAre(7));
  }
}

TEST(Advantages, TellBesselFromPopulationByGroupsOfTwo) {
  const double population = advantages({0, 1}, {0, 0}, Estimator::group).values[1];
  const double bessel = advantages({0, 1}, {0, 0}, Estimator::group, {.ddof = 1}).values[1];
  EXPECT_DOUBLE_EQ(population / bessel, std::sqrt(2.0));
}

TEST(Advantages, OfEqualRewardsAreZero) {
  const std::vector<double> rewards(6, 0.3);
  for (int which = 0; which < 4; ++which) {
    for (const double floor : {1e-4, 0.0}) {
      const Advantages done = advantages(rewards, {0, 0, 1, 1, 2, 2}, static_cast<Estimator>(which), {.floor = floor});
      EXPECT_THAT(done.values, testing::Each(0)) << which;
    }
  }
}

TEST(Advantages, DoNotDependOnThePlaceOfRows) {
  const Advantages a = advantages({1, 4, 2, 8}, {0, 1, 0, 1}, Estimator::group);
  const Advantages b = advantages({8, 2, 4, 1}, {1, 0, 1, 0}, Estimator::group);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(a.values[i], b.values[3 - i]);
}

TEST(Advantages, CountNoMaskedRow) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> rewards{1, nan, 3, 100};
  const std::vector<int64_t> groups(4, 0);
  const std::vector<uint8_t> counted{1, 1, 1, 0};
  const Advantages masked = advantages(rewards, groups, Estimator::global, {.non_finite = NonFinite::mask}, counted);
  EXPECT_THAT(masked.values, ElementsAre(-1, 0, 1, 0));
  EXPECT_EQ(masked.batch.count, 2);
  const Advantages refused = advantages(rewards, groups, Estimator::global, {}, counted);
  EXPECT_EQ(refused.problem, "element 1 is nan");
  EXPECT_THAT(refused.values, testing::IsEmpty());
}

TEST(Advantages, OfNoRowAreNone) {
  const Advantages done = advantages_of({}, Estimator::global, {});
  EXPECT_EQ(done.problem, "");
  EXPECT_EQ(done.batch.count, 0);
  EXPECT_THAT(done.values, testing::IsEmpty());
}

TEST(Advantages, RefuseSpansOfOtherSizes) {
  EXPECT_THROW(advantages({1, 2}, {0}, Estimator::group), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::rewards
