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

TEST(AuditLedger, ARankThatHoldsTheReferencesResultIsRightHoweverFewDo) {
  const StepOfRun before = sums(3, {7, 7, 7}), reference = sums(4, {8});
  const auto found = audit_ledger(sums(4, {9, 8, 9}), &before, &reference);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, "message-corrupted");
  EXPECT_EQ(found->rank, 0);
  EXPECT_NE(found->evidence.find("the result of the reference is"), std::string::npos) << found->evidence;
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

/// A call of one rank in a group, with what came out of it.
Record call(int64_t step, const std::string& group, const std::string& op, uint64_t out) {
  Record record;
  record.step = step;
  record.phase = Phase::collective;
  record.name = op + " " + group;
  record.collective.op = op;
  record.collective.reduction = op == "all_reduce" ? "sum" : "";
  record.collective.group = group;
  record.collective.tag = group;
  record.collective.hash_in = out * 31 + 7;
  record.collective.hash_out = out;
  return record;
}

/// A length and then the text of that length: two calls of one tag.
StepOfRun guarded(int64_t step, DType length, DType text) {
  StepOfRun made{step, {{step, {}}, {step, {}}}};
  for (StepRecords& rank : made.ranks) {
    for (const DType dtype : {length, text}) {
      rank.records.push_back(call(step, "control", "all_gather", static_cast<uint64_t>(step) * 10 + (dtype == length ? 1 : 2)));
      rank.records.back().collective.dtype = dtype;
    }
  }
  return made;
}

TEST(AuditLedger, HoldsTheKthCallOfATagAgainstTheKth) {
  const StepOfRun before = guarded(3, DType::int64, DType::boolean), now = guarded(4, DType::int64, DType::boolean);
  EXPECT_FALSE(audit_ledger(now, &before, nullptr));
  EXPECT_FALSE(audit_ledger(now, &before, &before));
  const auto found = audit_ledger(guarded(4, DType::int64, DType::int64), &before, nullptr);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, "wrong-dtype");
  StepOfRun once = before;
  for (StepRecords& rank : once.ranks) rank.records.erase(rank.records.begin());
  EXPECT_FALSE(audit_ledger(now, &once, nullptr)) << "of one call and two nothing tells which belong together";
}

/// Four ranks: two tensor-parallel pairs, and what each adds.
StepOfRun pairs(int64_t step, const std::vector<uint64_t>& outs) {
  StepOfRun made;
  made.step = step;
  for (std::size_t rank = 0; rank < outs.size(); ++rank) {
    made.ranks.push_back({step, {call(step, rank < 2 ? "tp0" : "tp1", "all_reduce", outs[rank]),
                                 call(step, "gradients", "all_reduce", 5)}});
  }
  return made;
}

TEST(AuditLedger, EachGroupOfFewerRanksIsHeldToItselfAlone) {
  const StepOfRun before = pairs(3, {1, 1, 2, 2});
  EXPECT_FALSE(audit_ledger(pairs(4, {7, 7, 8, 8}), &before, nullptr));
  EXPECT_FALSE(audit_ledger(pairs(4, {7, 7, 8, 8}), &before, &before)) << "the reference's pairs are its own";
  const auto corrupted = audit_ledger(pairs(4, {7, 7, 8, 9}), &before, nullptr);
  ASSERT_TRUE(corrupted);
  EXPECT_EQ(corrupted->name, "all_reduce tp1");
  EXPECT_GE(corrupted->rank, 2);
}

TEST(AuditLedger, ARankThatLeavesOutItsGroupsCallIsNamed) {
  const StepOfRun before = pairs(3, {1, 1, 2, 2});
  StepOfRun now = pairs(4, {7, 7, 8, 8});
  now.ranks[3].records.erase(now.ranks[3].records.begin());
  const auto found = audit_ledger(now, &before, nullptr);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, "collective-missing");
  EXPECT_EQ(found->rank, 3);
}

TEST(AuditLedger, StagesOfAPipelineSendAndReceive) {
  StepOfRun now;
  now.step = 4;
  now.ranks.push_back({4, {call(4, "pp", "send", 11), call(4, "gradients", "all_reduce", 5)}});
  now.ranks.push_back({4, {call(4, "pp", "recv", 11), call(4, "gradients", "all_reduce", 5)}});
  EXPECT_FALSE(audit_ledger(now, nullptr, nullptr));
  now.ranks[1].records[1].collective.hash_out = 6;
  EXPECT_TRUE(audit_ledger(now, nullptr, nullptr));
}

}  // namespace
}  // namespace lockstep
