// The sampler's rule, and the audit that tells what is wrong with a deal from the deal alone.

#include "harness/sharding/deal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::sharding {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr DealOptions kPadded{10, 4, false, true, 0}, kDropped{10, 4, true, true, 0};

Deals good(const DealOptions& options, int64_t epochs = 3) {
  Deals deals;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) deals.push_back(torch_deal(options, epoch));
  return deals;
}

TEST(TorchDeal, RepeatsTheHeadOrCutsTheTail) {
  EXPECT_THAT(torch_list({5, 3, false, false}, 0), ElementsAre(0, 1, 2, 3, 4, 0));
  EXPECT_THAT(torch_list({5, 3, true, false}, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(torch_list({2, 5, false, false}, 0), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(torch_list({2, 5, true, false}, 0), ElementsAre());
  EXPECT_THAT(torch_list({0, 5, false, true}, 0), ElementsAre());
  EXPECT_THAT(torch_deal({5, 3, false, false}, 0),
              ElementsAre(ElementsAre(0, 3), ElementsAre(1, 4), ElementsAre(2, 0)));
}

TEST(TorchDeal, ReadsEachSampleAsOftenAsItMust) {
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

TEST(AuditDeals, IsSilentOnPyTorchsRule) {
  for (int64_t samples = 0; samples < 40; ++samples) {
    for (int ranks = 1; ranks <= 7; ++ranks) {
      for (const bool drop_last : {false, true}) {
        const DealOptions options{samples, ranks, drop_last, true, 5};
        EXPECT_EQ(audit_deals(options, good(options)).sentence, "");
      }
    }
  }
}

TEST(AuditDeals, NamesAnOrderThatRepeats) {
  const Finding finding = audit_deals(kPadded, Deals(3, torch_deal(kPadded, 0)));
  EXPECT_EQ(finding.code, "order_repeats");
  EXPECT_THAT(finding.sentence,
              HasSubstr("epoch 1 has the order of epoch 0, as if set_epoch had not been called"));
}

TEST(AuditDeals, NamesOneShardForAll) {
  Deals deals = good(kPadded);
  deals[1] = {deals[1][2], deals[1][2], deals[1][2], deals[1][2]};
  EXPECT_EQ(audit_deals(kPadded, deals).code, "same_shard");
}

TEST(AuditDeals, TellsLossFromOverlap) {
  Deals deals = good(kDropped);
  for (auto& shard : deals[2]) shard.pop_back();
  const Finding lost = audit_deals(kDropped, deals);
  EXPECT_EQ(lost.code, "samples_lost");
  EXPECT_THAT(lost.sentence, HasSubstr("in epoch 2 6 samples are read by nobody, 2 may be"));
  deals = good(kDropped);
  deals[0][1][0] = deals[0][0][0];
  EXPECT_EQ(audit_deals(kDropped, deals).code, "shards_overlap");
}

TEST(AuditDeals, NamesUnequalLengthsAndASecondPadding) {
  Deals deals = good(kPadded);
  deals[0][3].pop_back();
  EXPECT_THAT(audit_deals(kPadded, deals).sentence,
              HasSubstr("in epoch 0 rank 0 has 3 rows and rank 3 has 2"));
  deals = good(kPadded);
  for (auto& shard : deals[0]) shard.push_back(shard[0]);
  EXPECT_EQ(audit_deals(kPadded, deals).code, "padded_twice");
}

TEST(AuditDeals, NamesAnOrderThatIsNotPyTorchs) {
  Deals deals = good(kDropped);
  std::swap(deals[1][0], deals[1][1]);
  const Finding finding = audit_deals(kDropped, deals);
  EXPECT_EQ(finding.code, "other_order");
  EXPECT_THAT(finding.sentence, HasSubstr("in epoch 1 rank 0"));
}

TEST(AuditDeals, NamesASampleThatDoesNotExist) {
  Deals deals = good(kPadded);
  deals[1][2][0] = 10;
  EXPECT_THAT(audit_deals(kPadded, deals).sentence, HasSubstr("epoch 1 reads sample 10, which does not exist"));
}

/// 300,001 samples on 4,096 ranks, a rank's rows at a time; `change` may change them.
Finding audit_many(const EpochSpan& epochs,
                   const std::function<void(int64_t epoch, int rank, std::vector<int64_t>& rows)>& change) {
  const DealOptions options{300'001, 4096, false, true, 7};
  std::vector<std::vector<int64_t>> shards;
  int64_t of_epoch = -1;
  return audit_deals(options, epochs, [&](int64_t epoch, int rank) {
    if (epoch != of_epoch) shards = torch_deal(options, epoch);
    of_epoch = epoch;
    std::vector<int64_t>& rows = shards[static_cast<std::size_t>(rank)];
    change(epoch, rank, rows);
    return std::span<const int64_t>(rows);
  });
}

TEST(AuditDeals, IsSilentOnManyRanksWhoseEpochsAreSeenOneByOne) {
  EXPECT_EQ(audit_many({0, 2}, [](int64_t, int, auto&) {}).sentence, "");
  EXPECT_EQ(audit_many({99, 1}, [](int64_t, int, auto&) {}).sentence, "");
}

TEST(AuditDeals, NamesTheOneOfManyRanksThatIsWrong) {
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

TEST(AuditDeals, HoldsALaterEpochAgainstTheOrderThatTheFirstMustHave) {
  const DealOptions options{1000, 64, false, true, 7};
  const std::vector<std::vector<int64_t>> first = torch_deal(options, 0);
  const auto rows_of = [&](int64_t, int rank) {
    return std::span<const int64_t>(first[static_cast<std::size_t>(rank)]);
  };
  EXPECT_EQ(audit_deals(options, {0, 1}, rows_of).sentence, "");
  EXPECT_THAT(audit_deals(options, {98, 2}, rows_of).sentence, HasSubstr("epoch 98 has the order of epoch 0"));
}

TEST(AuditEvaluation, CountsEachSampleOnce) {
  std::vector<int64_t> rows;
  for (int rank = 0; rank < 4; ++rank) rows.push_back(counted_rows(kPadded, rank));
  EXPECT_THAT(rows, ElementsAre(3, 3, 2, 2));
  EXPECT_EQ(audit_evaluation(kPadded, torch_deal(kPadded, 0), rows).sentence, "");
  EXPECT_EQ(audit_evaluation(kPadded, torch_deal(kPadded, 0), {3, 3, 3, 3}).code, "padding_counted");
  EXPECT_EQ(audit_evaluation(kPadded, torch_deal(kPadded, 0), {3, 3, 2, 1}).code, "samples_lost");
}

}  // namespace
}  // namespace lockstep::sharding
