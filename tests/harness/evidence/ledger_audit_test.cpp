#include "harness/evidence/ledger_audit.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

/// One sum of each rank, with what came out of it.
StepOfRun sums(int64_t step, const std::vector<uint64_t>& outs) {
  StepOfRun made;
  made.step = step;
  for (std::size_t rank = 0; rank < outs.size(); ++rank) {
    Record record;
    record.step = step;
    record.phase = Phase::collective;
    record.name = "all_reduce stats.energy";
    record.collective.op = "all_reduce";
    record.collective.reduction = "sum";
    record.collective.group = "data";
    record.collective.tag = "stats.energy";
    record.collective.hash_in = 100 * static_cast<uint64_t>(step) + rank;
    record.collective.hash_out = outs[rank];
    made.ranks.push_back({step, {record}});
  }
  return made;
}

TEST(AuditLedger, OfTwoRanksTheOneThatHoldsAnOldResultIsWrong) {
  const StepOfRun before = sums(3, {7, 7});
  for (const int stale : {0, 1}) {
    const StepOfRun now = stale == 0 ? sums(4, {7, 9}) : sums(4, {9, 7});
    const auto found = audit_ledger(now, &before, nullptr);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->code, "stale-buffer");
    EXPECT_EQ(found->rank, stale);
  }
}

TEST(AuditLedger, AResultOfItsOwnIsACorruptedMessage) {
  const StepOfRun before = sums(3, {7, 7, 7});
  const auto found = audit_ledger(sums(4, {9, 8, 9}), &before, nullptr);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, "message-corrupted");
  EXPECT_EQ(found->rank, 1);
}

TEST(AuditLedger, ASumThatIsAsBeforeByChanceIsWhatTheReferenceHas) {
  const StepOfRun before = sums(3, {7, 7}), now = sums(4, {7, 7}), same = sums(4, {7}), other = sums(4, {8});
  EXPECT_FALSE(audit_ledger(now, &before, &same)) << "other counts of rows may have one sum";
  const auto found = audit_ledger(now, &before, &other);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, "stale-buffer");
  EXPECT_EQ(found->rank, -1);
}

TEST(AuditLedger, OneNumberThatIsAsBeforeIsNoNewsWithoutAReferenceThatCalls) {
  StepOfRun before = sums(3, {7, 7}), now = sums(4, {7, 7});
  const StepOfRun silent{4, {{4, {}}}};
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1}, std::vector<int64_t>{2}}) {
    for (StepOfRun* step : {&before, &now}) {
      for (StepRecords& rank : step->ranks) rank.records[0].collective.shape = shape;
    }
    EXPECT_EQ(audit_ledger(now, &before, nullptr).has_value(), shape[0] > 1);
    EXPECT_EQ(audit_ledger(now, &before, &silent).has_value(), shape[0] > 1);
  }
}

TEST(AuditLedger, ACallOfTheReferenceThatNoRankMakesIsMissing) {
  const StepOfRun reference = sums(4, {7});
  const auto found = audit_ledger(StepOfRun{4, {{4, {}}, {4, {}}}}, nullptr, &reference);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, "collective-missing");
  EXPECT_EQ(found->name, "all_reduce stats.energy");
}

TEST(AuditLedger, IsSilentWhereAllRanksAgree) {
  const StepOfRun before = sums(3, {7, 7, 7});
  EXPECT_FALSE(audit_ledger(sums(4, {9, 9, 9}), &before, nullptr));
}

}  // namespace
}  // namespace lockstep
