#include "harness/lib/rewards/denominators.h"

#include <gtest/gtest.h>

namespace lockstep::rewards {
namespace {

/// Two ranks: one with two micro-batches of 3 and 1 rows, one that a filter left a single row.
Partitioned uneven() { return {{{{3, 12, 2}, {1, 2, 1}}, {{1, 6, 1}}}, 0, 8}; }

/// Gradient of sum(terms) / D with terms of 1, as ranks compute it: summed over micro-batches, averaged over ranks.
double gradient(Denominator denominator, Scope scope, const Partitioned& partitioned, int64_t Counts::* terms) {
  double sum = 0;
  for (std::size_t rank = 0; rank < partitioned.by_rank.size(); ++rank) {
    for (std::size_t micro = 0; micro < partitioned.by_rank[rank].size(); ++micro) {
      sum += static_cast<double>(partitioned.by_rank[rank][micro].*terms) *
             weight_of(denominator, scope, partitioned, static_cast<int>(rank), static_cast<int>(micro));
    }
  }
  return sum / static_cast<double>(partitioned.by_rank.size());
}

TEST(Denominators, OfTheWholeBatchDoNotDependOnTheLayout) {
  for (int which = 0; which < 4; ++which)
    EXPECT_TRUE(independent_of_layout(static_cast<Denominator>(which), Scope::global, uneven())) << which;
  EXPECT_DOUBLE_EQ(gradient(Denominator::rows, Scope::global, uneven(), &Counts::rows), 1);
  EXPECT_DOUBLE_EQ(gradient(Denominator::valid_steps, Scope::global, uneven(), &Counts::valid_steps), 1);
  EXPECT_DOUBLE_EQ(gradient(Denominator::constant, Scope::global, uneven(), &Counts::rows), 5.0 / 8);
}

TEST(Denominators, OfRanksWeighRowsByTheRanksShare) {
  EXPECT_FALSE(independent_of_layout(Denominator::rows, Scope::local, uneven()));
  // N / (ranks * n_r): 5 / (2 * 4) and 5 / (2 * 1).
  EXPECT_DOUBLE_EQ(factor_of(Denominator::rows, Scope::local, uneven(), 0, 0), 0.625);
  EXPECT_DOUBLE_EQ(factor_of(Denominator::rows, Scope::local, uneven(), 1, 0), 2.5);
  EXPECT_TRUE(independent_of_layout(Denominator::rows, Scope::local, {{{{4, 9, 1}}, {{4, 5, 1}}}}));
  EXPECT_FALSE(independent_of_layout(Denominator::valid_steps, Scope::local, {{{{4, 9, 1}}, {{4, 5, 1}}}}));
}

TEST(Denominators, OfMicroBatchesWeighThemAlike) {
  EXPECT_DOUBLE_EQ(factor_of(Denominator::rows, Scope::micro, uneven(), 0, 0), 5.0 / (2 * 2 * 3));
  EXPECT_DOUBLE_EQ(factor_of(Denominator::rows, Scope::micro, uneven(), 0, 1), 5.0 / (2 * 2 * 1));
  EXPECT_DOUBLE_EQ(factor_of(Denominator::constant, Scope::local, uneven(), 0, 0), 0.5);
  EXPECT_DOUBLE_EQ(factor_of(Denominator::constant, Scope::micro, uneven(), 0, 0), 0.25);
}

TEST(Denominators, CountSplitGroupsOnce) {
  Partitioned split{{{{1, 1, 1}}, {{1, 1, 1}}}};
  split.groups = 1;
  EXPECT_EQ(whole(Denominator::groups, split), 1);
  EXPECT_DOUBLE_EQ(weight_of(Denominator::groups, Scope::global, split, 0, 0), 2);
  Partitioned within{{{{1, 1, 1}, {1, 1, 1}}}};
  EXPECT_DOUBLE_EQ(weight_of(Denominator::groups, Scope::local, within, 0, 0), 0.5);
  within.rank_groups = {1};
  EXPECT_DOUBLE_EQ(weight_of(Denominator::groups, Scope::local, within, 0, 0), 1);
}

TEST(Denominators, GiveNoWeightWhereThereIsNothing) {
  const Partitioned empty{{{{0, 0, 0}}, {}}};
  EXPECT_EQ(weight_of(Denominator::rows, Scope::global, empty, 0, 0), 0);
  EXPECT_EQ(weight_of(Denominator::rows, Scope::local, empty, 0, 0), 0);
  EXPECT_EQ(weight_of(Denominator::rows, Scope::micro, empty, 0, 0), 0);
}

TEST(Factor, IsToldAsPeopleSayIt) {
  EXPECT_EQ(factor_in_words(8), "8.00");
  EXPECT_EQ(factor_in_words(0.125), "1/8");
  EXPECT_EQ(factor_in_words(0.625), "0.625");
  EXPECT_EQ(factor_in_words(0), "0");
}

}  // namespace
}  // namespace lockstep::rewards
