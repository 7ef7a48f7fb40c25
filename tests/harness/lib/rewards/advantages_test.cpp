#include "harness/lib/rewards/advantages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

namespace lockstep::rewards {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Advantages, LeaveOneOutSubtractsTheMeanOfTheOthers) {
  const std::vector<double> rewards{1, 0, 5, 0, 1, 7};
  const std::vector<int64_t> groups{0, 0, 4, 0, 4, 9};
  const Advantages done = advantages_of({rewards, groups, {}}, Estimator::leave_one_out, {});
  EXPECT_THAT(done.values, ElementsAre(1, -0.5, 4, -0.5, -4, 0));
  EXPECT_THAT(done.group_ids, ElementsAre(0, 4, 9));
}

TEST(Advantages, OfOneRowAreZeroOrRaw) {
  const std::vector<double> rewards{7};
  const std::vector<int64_t> groups{3};
  for (const Estimator estimator : {Estimator::leave_one_out, Estimator::group}) {
    EXPECT_THAT(advantages_of({rewards, groups, {}}, estimator, {}).values, ElementsAre(0));
    EXPECT_THAT(advantages_of({rewards, groups, {}}, estimator, {.group_of_one = GroupOfOne::raw}).values,
                ElementsAre(7));
  }
}

TEST(Advantages, TellBesselFromPopulationByGroupsOfTwo) {
  const std::vector<double> rewards{0, 1};
  const std::vector<int64_t> groups{0, 0};
  const double population = advantages_of({rewards, groups, {}}, Estimator::group, {}).values[1];
  const double bessel = advantages_of({rewards, groups, {}}, Estimator::group, {.ddof = 1}).values[1];
  EXPECT_DOUBLE_EQ(population / bessel, std::sqrt(2.0));
}

TEST(Advantages, OfEqualRewardsAreZero) {
  const std::vector<double> rewards(6, 0.3);
  const std::vector<int64_t> groups{0, 0, 1, 1, 2, 2};
  for (int which = 0; which < 4; ++which) {
    for (const double floor : {1e-4, 0.0}) {
      const Advantages done =
          advantages_of({rewards, groups, {}}, static_cast<Estimator>(which), {.floor = floor});
      EXPECT_THAT(done.values, testing::Each(0)) << which;
    }
  }
}

TEST(Advantages, DoNotDependOnThePlaceOfRows) {
  const std::vector<double> rewards{1, 4, 2, 8}, other{8, 2, 4, 1};
  const std::vector<int64_t> groups{0, 1, 0, 1}, other_groups{1, 0, 1, 0};
  const Advantages a = advantages_of({rewards, groups, {}}, Estimator::group, {});
  const Advantages b = advantages_of({other, other_groups, {}}, Estimator::group, {});
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(a.values[i], b.values[3 - i]);
}

TEST(Advantages, CountNoMaskedRow) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> rewards{1, nan, 3, 100};
  const std::vector<int64_t> groups{0, 0, 0, 0};
  const std::vector<uint8_t> counted{1, 1, 1, 0};
  const Advantages masked = advantages_of({rewards, groups, counted}, Estimator::global, {.non_finite = NonFinite::mask});
  EXPECT_THAT(masked.values, ElementsAre(-1, 0, 1, 0));
  EXPECT_EQ(masked.batch.count, 2);
  const Advantages refused = advantages_of({rewards, groups, counted}, Estimator::global, {});
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
  const std::vector<double> rewards{1, 2};
  const std::vector<int64_t> groups{0};
  EXPECT_THROW(advantages_of({rewards, groups, {}}, Estimator::group, {}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::rewards
