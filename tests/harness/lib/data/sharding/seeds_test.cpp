// Which streams share a seed.

#include "harness/lib/data/sharding/seeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::sharding {
namespace {

constexpr StreamRanges kFew{3, 5, 2, 7};

TEST(StreamRanges, NameEveryStreamOnce) {
  EXPECT_EQ(StreamRanges{}.count(), 1'000'000);
  const StreamOwner last = kFew.owner(kFew.count() - 1);
  EXPECT_EQ(in_words(last), "run 2, rank 4, worker 1, epoch 6");
  EXPECT_EQ(in_words(kFew.owner(1)), "run 0, rank 1, worker 0, epoch 0");
}

TEST(ScanSeeds, FindsTheFirstPair) {
  const Collisions found = scan_seeds(*find_seed_formula("plus_rank"), kFew);
  EXPECT_EQ(found.streams, 210);
  EXPECT_EQ(found.distinct, 7);  // 0 to 6.
  EXPECT_EQ(found.distinct_low, 7);
  EXPECT_EQ(found.seed, find_seed_formula("plus_rank")->seed(found.first, kFew));
  EXPECT_EQ(found.seed, find_seed_formula("plus_rank")->seed(found.second, kFew));
  EXPECT_NE(in_words(found.first), in_words(found.second));
}

TEST(ScanSeeds, FindsNoneAmongKeyedOnes) {
  const Collisions found = scan_seeds(*find_seed_formula("keyed"), kFew);
  EXPECT_EQ(found.distinct, found.streams);
}

TEST(ScanSeeds, AFormulaMayCollideInItsLowerBitsAlone) {
  // Lightning's workers: the epoch's base stands in the upper half alone.
  const Collisions found = scan_seeds(*find_seed_formula("lightning"), kFew);
  EXPECT_EQ(found.distinct, found.streams);
  EXPECT_EQ(found.distinct_low, kFew.ranks * kFew.workers);
}

TEST(ScanSeeds, MegatronsOffsetsMeet) {
  const SeedFormula& megatron = *find_seed_formula("megatron");
  // Ten data-parallel ranks are as far as one stage.
  EXPECT_EQ(megatron.seed({.rank = 10}, {}), megatron.seed({.rank = 25}, {}));
}

TEST(CrossSeeds, PlusRankMeetsPlusEpoch) {
  const CrossCollisions found =
      cross_seeds(*find_seed_formula("plus_rank"), *find_seed_formula("plus_epoch"), kFew);
  EXPECT_EQ(found.shared, found.streams);
  EXPECT_EQ(in_words(found.stream), "run 0, rank 1, worker 0, epoch 0");
  EXPECT_EQ(found.permutation.run + found.permutation.epoch, 1);
  EXPECT_EQ(cross_seeds(*find_seed_formula("keyed"), *find_seed_formula("keyed"), kFew).shared, 0);
}

}  // namespace
}  // namespace lockstep::sharding
