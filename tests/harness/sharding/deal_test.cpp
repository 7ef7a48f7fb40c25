// The sampler's rule, and the audit that tells what is wrong with a deal from the deal alone.

#include "harness/sharding/deal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
