#include "harness/lib/rewards/normalizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/base/hashing.h"

namespace lockstep::rewards {
namespace {

constexpr int kRanks = 3;

std::vector<double> rows_of(int64_t step, int rank) {
  std::vector<double> rows;
  for (int64_t i = 0; i < 3 * rank; ++i)
    rows.push_back(rank + unit_interval(keyed(static_cast<uint64_t>(step), rank, i)));
  return rows;
}

std::vector<double> rows_until(int64_t step) {
  std::vector<double> all;
  for (int64_t at = 0; at < step; ++at) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::vector<double> rows = rows_of(at, rank);
      all.insert(all.end(), rows.begin(), rows.end());
    }
  }
  return all;
}

void merge_all(std::vector<RunningNormalizer>& ranks) {
  std::vector<Moments> deltas;
  for (const RunningNormalizer& rank : ranks) deltas.push_back(rank.delta());
  for (RunningNormalizer& rank : ranks) rank.merge_deltas(deltas);
}

TEST(RunningNormalizer, EqualsOneProcessForEveryInterval) {
  for (const int64_t every : {1, 2, 5}) {
    std::vector<RunningNormalizer> ranks(kRanks, RunningNormalizer(Convention{}));
    for (int64_t step = 0; step < 10; ++step) {
      for (int rank = 0; rank < kRanks; ++rank)
        EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].add(rows_of(step, rank)), "");
      if ((step + 1) % every == 0) merge_all(ranks);
    }
    const Statistics expected = statistics_of(moments_of(rows_until(10)), {});
    for (const RunningNormalizer& rank : ranks) {
      EXPECT_EQ(rank.statistics().count, expected.count);
      EXPECT_NEAR(rank.statistics().mean, expected.mean, 1e-14);
      EXPECT_NEAR(rank.statistics().deviation, expected.deviation, 1e-14);
      EXPECT_EQ(rank.statistics(), ranks[0].statistics());
    }
  }
}

TEST(RunningNormalizer, CountsNothingTwiceWhenNothingWasAdded) {
  std::vector<RunningNormalizer> ranks(kRanks, RunningNormalizer(Convention{}));
  for (int rank = 0; rank < kRanks; ++rank) ranks[static_cast<std::size_t>(rank)].add(rows_of(0, rank));
  merge_all(ranks);
  const Statistics once = ranks[0].statistics();
  merge_all(ranks);
  EXPECT_EQ(ranks[0].statistics(), once);
  EXPECT_EQ(ranks[0].state().merges, 2);
}

TEST(RunningNormalizer, GoesOnFromItsStateBitForBit) {
  std::vector<RunningNormalizer> ranks(kRanks, RunningNormalizer(Convention{})), resumed;
  for (int64_t step = 0; step < 4; ++step) {
    for (int rank = 0; rank < kRanks; ++rank) ranks[static_cast<std::size_t>(rank)].add(rows_of(step, rank));
    if (step == 1) merge_all(ranks);
    if (step != 2) continue;
    for (const RunningNormalizer& rank : ranks) {
      resumed.emplace_back(Convention{});
      resumed.back().restore(rank.state());
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) resumed[static_cast<std::size_t>(rank)].add(rows_of(3, rank));
  merge_all(ranks);
  merge_all(resumed);
  EXPECT_EQ(resumed[2].statistics(), ranks[2].statistics());
}

TEST(RunningNormalizer, AddsNothingOfRowsThatItRefuses) {
  RunningNormalizer normalizer({});
  EXPECT_EQ(normalizer.add(std::vector{1.0, std::numeric_limits<double>::quiet_NaN()}), "element 1 is nan");
  EXPECT_EQ(normalizer.delta(), Moments{});
}

TEST(RunningNormalizer, NormalisesByTheLastMergeAlone) {
  RunningNormalizer normalizer({});
  normalizer.merge_deltas(std::vector{moments_of(std::vector{1.0, 3.0})});
  normalizer.add(std::vector{100.0});
  EXPECT_EQ(normalizer.normalized(4), 2);
}

}  // namespace
}  // namespace lockstep::rewards
