// The sampler's rule, and the audit that tells what is wrong with a partition from the partition alone.

#include "harness/lib/data/sharding/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::sharding {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr PartitionOptions kPadded{10, 4, false, true, 0}, kDropped{10, 4, true, true, 0};

Partitions good(const PartitionOptions& options, int64_t epochs = 3) {
  Partitions partitions;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) partitions.push_back(torch_partition(options, epoch));
  return partitions;
}

TEST(TorchPartition, RepeatsTheHeadOrCutsTheTail) {
  EXPECT_THAT(torch_list({5, 3, false, false}, 0), ElementsAre(0, 1, 2, 3, 4, 0));
  EXPECT_THAT(torch_list({5, 3, true, false}, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(torch_list({2, 5, false, false}, 0), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(torch_list({2, 5, true, false}, 0), ElementsAre());
  EXPECT_THAT(torch_list({0, 5, false, true}, 0), ElementsAre());
  EXPECT_THAT(torch_partition({5, 3, false, false}, 0),
              ElementsAre(ElementsAre(0, 3), ElementsAre(1, 4), ElementsAre(2, 0)));
}

TEST(TorchPartition, ReadsEachSampleAsOftenAsItMust) {
  for (int64_t samples = 1; samples < 40; ++samples) {
    for (int ranks = 1; ranks <= 7; ++ranks) {
      const auto most = (samples + ranks - 1) / ranks * ranks / samples + 1;
      std::vector<int64_t> times(static_cast<std::size_t>(samples)), once(times);
      for (const int64_t id : torch_list({samples, ranks, false, true, 5}, 2)) ++times.at(static_cast<std::size_t>(id));
      EXPECT_THAT(times, testing::Each(testing::AllOf(testing::Ge(1), testing::Le(most))));
      for (const int64_t id : torch_list({samples, ranks, true, true, 5}, 2)) ++once.at(static_cast<std::size_t>(id));
      EXPECT_EQ(std::ranges::count(once, 1), samples - samples % ranks);
      EXPECT_EQ(std::ranges::count(once, 0), samples % ranks);
    }
  }
}

TEST(AuditPartitions, IsSilentOnPyTorchsRule) {
  for (int64_t samples = 0; samples < 40; ++samples) {
    for (int ranks = 1; ranks <= 7; ++ranks) {
      for (const bool drop_last : {false, true}) {
        const PartitionOptions options{samples, ranks, drop_last, true, 5};
        EXPECT_EQ(audit_partitions(options, good(options)).sentence, "");
      }
    }
  }
}

TEST(AuditPartitions, NamesAnOrderThatRepeats) {
  const Finding finding = audit_partitions(kPadded, Partitions(3, torch_partition(kPadded, 0)));
  EXPECT_EQ(finding.code, "order_repeats");
  EXPECT_THAT(finding.sentence,
              HasSubstr("epoch 1 has the order of epoch 0, as if set_epoch had not been called"));
}

TEST(AuditPartitions, NamesOneShardForAll) {
  Partitions partitions = good(kPadded);
  partitions[1] = {partitions[1][2], partitions[1][2], partitions[1][2], partitions[1][2]};
  EXPECT_EQ(audit_partitions(kPadded, partitions).code, "same_shard");
}

TEST(AuditPartitions, TellsLossFromOverlap) {
  Partitions partitions = good(kDropped);
  for (auto& shard : partitions[2]) shard.pop_back();
  const Finding lost = audit_partitions(kDropped, partitions);
  EXPECT_EQ(lost.code, "samples_lost");
  EXPECT_THAT(lost.sentence, HasSubstr("in epoch 2 6 samples are read by nobody, 2 may be"));
  partitions = good(kDropped);
  partitions[0][1][0] = partitions[0][0][0];
  EXPECT_EQ(audit_partitions(kDropped, partitions).code, "shards_overlap");
}

TEST(AuditPartitions, NamesUnequalLengthsAndASecondPadding) {
  Partitions partitions = good(kPadded);
  partitions[0][3].pop_back();
  EXPECT_THAT(audit_partitions(kPadded, partitions).sentence,
              HasSubstr("in epoch 0 rank 0 has 3 rows and rank 3 has 2"));
  partitions = good(kPadded);
  for (auto& shard : partitions[0]) shard.push_back(shard[0]);
  EXPECT_EQ(audit_partitions(kPadded, partitions).code, "padded_twice");
}

TEST(AuditPartitions, NamesAnOrderThatIsNotPyTorchs) {
  Partitions partitions = good(kDropped);
  std::swap(partitions[1][0], partitions[1][1]);
  const Finding finding = audit_partitions(kDropped, partitions);
  EXPECT_EQ(finding.code, "other_order");
  EXPECT_THAT(finding.sentence, HasSubstr("in epoch 1 rank 0"));
}

TEST(AuditPartitions, NamesASampleThatDoesNotExist) {
  Partitions partitions = good(kPadded);
  partitions[1][2][0] = 10;
  EXPECT_THAT(audit_partitions(kPadded, partitions).sentence, HasSubstr("epoch 1 reads sample 10, which does not exist"));
}

/// 300,001 samples on 4,096 ranks, a rank's rows at a time; `change` may change them.
Finding audit_many(const EpochSpan& epochs,
                   const std::function<void(int64_t epoch, int rank, std::vector<int64_t>& rows)>& change) {
  const PartitionOptions options{300'001, 4096, false, true, 7};
  std::vector<std::vector<int64_t>> shards;
  int64_t of_epoch = -1;
  return audit_partitions(options, epochs, [&](int64_t epoch, int rank) {
    if (epoch != of_epoch) shards = torch_partition(options, epoch);
    of_epoch = epoch;
    std::vector<int64_t>& rows = shards[static_cast<std::size_t>(rank)];
    change(epoch, rank, rows);
    return std::span<const int64_t>(rows);
  });
}

TEST(AuditPartitions, IsSilentOnManyRanksWhoseEpochsAreSeenOneByOne) {
  EXPECT_EQ(audit_many({0, 2}, [](int64_t, int, auto&) {}).sentence, "");
  EXPECT_EQ(audit_many({99, 1}, [](int64_t, int, auto&) {}).sentence, "");
}

TEST(AuditPartitions, NamesTheOneOfManyRanksThatIsWrong) {
  const Finding lost = audit_many({0, 2}, [](int64_t epoch, int rank, auto& rows) {
    if (epoch == 1 && rank == 4095) rows.pop_back();
  });
  EXPECT_EQ(lost.code, "unequal_lengths");
  EXPECT_THAT(lost.sentence, HasSubstr("in epoch 1 rank 0 has 74 rows and rank 4095 has 73"));
  const Finding overlap = audit_many({0, 1}, [](int64_t, int rank, auto& rows) {
    if (rank == 4094) rows[0] = rows[1];
  });
  EXPECT_EQ(overlap.code, "shards_overlap");
  const Finding order = audit_many({98, 2}, [](int64_t epoch, int rank, auto& rows) {
    if (epoch == 99 && rank == 3000) std::swap(rows[0], rows[1]);
  });
  EXPECT_EQ(order.code, "other_order");
  EXPECT_THAT(order.sentence, HasSubstr("in epoch 99 rank 3000"));
}

TEST(AuditPartitions, HoldsALaterEpochAgainstTheOrderThatTheFirstMustHave) {
  const PartitionOptions options{1000, 64, false, true, 7};
  const std::vector<std::vector<int64_t>> first = torch_partition(options, 0);
  const auto rows_of = [&](int64_t, int rank) {
    return std::span<const int64_t>(first[static_cast<std::size_t>(rank)]);
  };
  EXPECT_EQ(audit_partitions(options, {0, 1}, rows_of).sentence, "");
  EXPECT_THAT(audit_partitions(options, {98, 2}, rows_of).sentence, HasSubstr("epoch 98 has the order of epoch 0"));
}

TEST(AuditEvaluation, CountsEachSampleOnce) {
  std::vector<int64_t> rows;
  for (int rank = 0; rank < 4; ++rank) rows.push_back(counted_rows(kPadded, rank));
  EXPECT_THAT(rows, ElementsAre(3, 3, 2, 2));
  EXPECT_EQ(audit_evaluation(kPadded, torch_partition(kPadded, 0), rows).sentence, "");
  EXPECT_EQ(audit_evaluation(kPadded, torch_partition(kPadded, 0), {3, 3, 3, 3}).code, "padding_counted");
  EXPECT_EQ(audit_evaluation(kPadded, torch_partition(kPadded, 0), {3, 3, 2, 1}).code, "samples_lost");
}

}  // namespace
}  // namespace lockstep::sharding
