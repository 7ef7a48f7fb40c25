#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/evidence/ledger.h"

namespace lockstep {
namespace {

std::string code_of(const std::optional<LedgerFinding>& found) { return found ? found->code : ""; }

/// "wrong-op of rank 1", "stale-buffer of all".
std::string told(const std::optional<LedgerFinding>& found) {
  return code_of(found) + (!found ? "" : found->rank < 0 ? " of all" : " of rank " + std::to_string(found->rank));
}

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
    EXPECT_EQ(told(audit_ledger(now, {&before, nullptr, true})), "stale-buffer of rank " + std::to_string(stale));
  }
}

TEST(AuditLedger, AResultOfItsOwnIsACorruptedMessage) {
  const StepOfRun before = sums(3, {7, 7, 7});
  EXPECT_EQ(told(audit_ledger(sums(4, {9, 8, 9}), {&before, nullptr, true})), "message-corrupted of rank 1");
}

TEST(AuditLedger, WhoHoldsAfterABroadcastWhatItHadBeforeDidNotReceive) {
  StepOfRun broadcast = sums(4, {400, 401, 400});
  for (StepRecords& rank : broadcast.ranks) {
    rank.records[0].collective.op = "broadcast";
    rank.records[0].collective.root = 0;
  }
  EXPECT_EQ(told(audit_ledger(broadcast, {nullptr, nullptr, true})), "broadcast-not-received of rank 1");
  broadcast.ranks[1].records[0].collective.hash_out = 9;
  EXPECT_EQ(code_of(audit_ledger(broadcast, {nullptr, nullptr, true})), "message-corrupted")
      << "neither the root's nor its own";
  EXPECT_EQ(code_of(audit_ledger(sums(4, {8, 401, 8}), {nullptr, nullptr, true})), "message-corrupted")
      << "a sum has no root";
}

TEST(AuditLedger, ARankThatHoldsTheReferencesResultIsRightHoweverFewDo) {
  const StepOfRun before = sums(3, {7, 7, 7}), reference = sums(4, {8});
  const auto found = audit_ledger(sums(4, {9, 8, 9}), {&before, &reference, true});
  ASSERT_EQ(told(found), "message-corrupted of rank 0");
  EXPECT_NE(found->evidence.find("the result of the reference is"), std::string::npos) << found->evidence;
}

TEST(AuditLedger, AllRanksHoldAnOldResultOnlyIfAReferenceMadeAnotherOfTheSameInputs) {
  const StepOfRun before = sums(3, {7, 7}), now = sums(4, {7, 7}), same = sums(4, {7, 7}), other = sums(4, {8, 8});
  EXPECT_FALSE(audit_ledger(now, {&before, nullptr, true})) << "other counts of rows may have one sum";
  EXPECT_FALSE(audit_ledger(now, {&before, &same, true}));
  const StepOfRun of_another_layout = sums(4, {8});
  EXPECT_FALSE(audit_ledger(now, {&before, &of_another_layout, true})) << "which rounds otherwise";
  StepOfRun from_others = other;
  from_others.ranks[1].records[0].collective.hash_in += 1;
  EXPECT_FALSE(audit_ledger(now, {&before, &from_others, true})) << "which is the sum of other inputs";
  StepOfRun unchanged = before;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    unchanged.ranks[rank].records[0].collective.hash_in = now.ranks[rank].records[0].collective.hash_in;
  }
  EXPECT_FALSE(audit_ledger(now, {&unchanged, &other, true})) << "nothing changed";
  EXPECT_EQ(told(audit_ledger(now, {&before, &other, true})), "stale-buffer of all");
}

TEST(AuditLedger, AResultThatRepeatsByChanceAccusesNoRankThatHoldsIt) {
  const StepOfRun before = sums(3, {7, 7, 7}), reference = sums(4, {7});
  for (const StepOfRun* beside : {static_cast<const StepOfRun*>(nullptr), &reference}) {
    EXPECT_EQ(told(audit_ledger(sums(4, {7, 7, 9}), {&before, beside, true})), "message-corrupted of rank 2");
  }
  StepOfRun large_before = before, large = sums(4, {7, 7, 9});
  for (StepOfRun* step : {&large_before, &large}) {
    for (StepRecords& rank : step->ranks) rank.records[0].collective.shape = {64};
  }
  EXPECT_EQ(told(audit_ledger(large, {&large_before, nullptr, true})), "stale-buffer of rank 0")
      << "64 numbers do not repeat by chance";
}

TEST(AuditLedger, ACallOfTheReferenceThatNoRankMakesIsMissing) {
  const StepOfRun reference = sums(4, {7}), none{4, {{4, {}}, {4, {}}}};
  const auto found = audit_ledger(none, {nullptr, &reference, true});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, "collective-missing");
  EXPECT_EQ(found->name, "all_reduce stats.energy");
  EXPECT_FALSE(audit_ledger(none, {nullptr, &reference, false})) << "another program may not need it";
  const StepOfRun before = sums(3, {6, 6});
  EXPECT_EQ(code_of(audit_ledger(none, {&before, &reference, false})), "collective-missing")
      << "but this one did a step before";
}

/// One call of each rank, with what came out of it.
StepOfRun calls(const std::string& op, const std::string& reduction, DType dtype, const std::vector<uint64_t>& outs) {
  StepOfRun made = sums(0, outs);
  for (StepRecords& rank : made.ranks) {
    rank.records[0].name = op + " stats.energy";
    rank.records[0].collective.op = op;
    rank.records[0].collective.reduction = reduction;
    rank.records[0].collective.dtype = dtype;
  }
  return made;
}

TEST(AuditLedger, FromWhichRankACallComesOneProcessDoesNotSayForOthers) {
  const auto from = [](int root, std::size_t ranks) {
    StepOfRun step = calls("broadcast", "", DType::float32, std::vector<uint64_t>(ranks, 5));
    for (StepRecords& rank : step.ranks) {
      rank.records[0].collective.root = root;
      rank.records[0].collective.hash_in = 5;
    }
    return step;
  };
  const StepOfRun alone = from(0, 1), first = from(0, 2), second = from(1, 2);
  EXPECT_FALSE(audit_ledger(second, {nullptr, &alone, false})) << "the owner of what it updates sends it";
  EXPECT_FALSE(audit_ledger(second, {&first, nullptr, false})) << "and at the next step another parameter has a gradient";
  for (const bool one_program : {true, false}) {
    EXPECT_EQ(code_of(audit_ledger(second, {nullptr, &first, one_program})), "wrong-root")
        << "two runs of one layout have the same owners";
  }
  EXPECT_TRUE(audit_ledger(second, {nullptr, &alone, true})) << "one program has the same root in every layout";
}

TEST(AuditLedger, AnotherWayOfExchangingIsNoDifferenceAndAnotherSumIs) {
  const StepOfRun reference = calls("broadcast", "", DType::float64, {5, 5});
  StepOfRun twice = calls("all_gather", "", DType::boolean, {9, 9});
  for (StepRecords& rank : twice.ranks) rank.records.push_back(rank.records[0]);
  for (const bool one_program : {true, false}) {
    EXPECT_FALSE(audit_ledger(calls("all_gather", "", DType::boolean, {9, 9}), {nullptr, &reference, one_program}));
    EXPECT_FALSE(audit_ledger(twice, {nullptr, &reference, one_program})) << "of lengths, and then of what has them";
    const StepOfRun sum = calls("all_reduce", "sum", DType::float32, {5, 5}), mean = calls("all_reduce", "mean", DType::float32, {6, 6}),
                    largest = calls("all_reduce", "max", DType::float32, {6, 6}), equal = calls("all_reduce", "max", DType::float32, {5, 5}),
                    narrow = calls("all_reduce", "sum", DType::bfloat16, {5, 5}), count = calls("all_reduce", "sum", DType::int64, {5, 5}),
                    short_count = calls("all_reduce", "sum", DType::int32, {4, 4});
    EXPECT_EQ(audit_ledger(mean, {nullptr, &sum, one_program}).has_value(), one_program) << "another program may divide later";
    EXPECT_FALSE(audit_ledger(equal, {nullptr, &sum, one_program})) << "what comes out is the same";
    EXPECT_EQ(audit_ledger(short_count, {nullptr, &count, one_program}).has_value(), one_program);
    EXPECT_EQ(code_of(audit_ledger(largest, {nullptr, &sum, one_program})), "wrong-op");
    EXPECT_EQ(code_of(audit_ledger(narrow, {nullptr, &sum, one_program})), "wrong-dtype");
  }
}

TEST(AuditLedger, BucketsOfGradientsAreAnotherProgramsOwnWhateverTheirGroup) {
  for (const char* group : {"world", "", "gradients", "dp"}) {
    StepOfRun reference = calls("reduce_gradients", "mean", DType::float32, {5});
    reference.ranks[0].records[0].collective.group = group;
    for (const bool one_program : {true, false}) {
      EXPECT_FALSE(audit_ledger(StepOfRun{0, {{0, {}}, {0, {}}}}, {nullptr, &reference, one_program})) << group;
    }
  }
}

TEST(AuditLedger, IsSilentWhereAllRanksAgree) {
  const StepOfRun before = sums(3, {7, 7, 7});
  EXPECT_FALSE(audit_ledger(sums(4, {9, 9, 9}), {&before, nullptr, true}));
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
  EXPECT_FALSE(audit_ledger(now, {&before, nullptr, true}));
  EXPECT_FALSE(audit_ledger(now, {&before, &before, true}));
  StepOfRun missing = now;
  for (StepRecords& rank : missing.ranks) rank.records.pop_back();
  ASSERT_TRUE(audit_ledger(missing, {nullptr, &now, true})) << "a length and a text are no two ways of exchanging one thing";
  EXPECT_EQ(code_of(audit_ledger(guarded(4, DType::int64, DType::int64), {&before, nullptr, true})), "wrong-dtype");
  StepOfRun once = before;
  for (StepRecords& rank : once.ranks) rank.records.erase(rank.records.begin());
  EXPECT_FALSE(audit_ledger(now, {&once, nullptr, true})) << "of one call and two nothing tells which belong together";
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
  EXPECT_FALSE(audit_ledger(pairs(4, {7, 7, 8, 8}), {&before, nullptr, true}));
  EXPECT_FALSE(audit_ledger(pairs(4, {7, 7, 8, 8}), {&before, &before, true})) << "the reference's pairs are its own";
  const auto corrupted = audit_ledger(pairs(4, {7, 7, 8, 9}), {&before, nullptr, true});
  ASSERT_TRUE(corrupted);
  EXPECT_EQ(corrupted->name, "all_reduce tp1");
  EXPECT_GE(corrupted->rank, 2);
}

TEST(AuditLedger, OneNameMayStandForSeveralGroups) {
  const auto mesh = [](int64_t step, const std::vector<uint64_t>& outs) {
    StepOfRun made = pairs(step, outs);
    for (StepRecords& rank : made.ranks) {
      Record& first = rank.records[0];
      first.collective.group = first.collective.tag = "tp";
      first.name = "all_reduce tp";
    }
    return made;
  };
  const StepOfRun before = mesh(3, {1, 1, 2, 2});
  EXPECT_FALSE(audit_ledger(mesh(4, {7, 7, 8, 8}), {&before, nullptr, false}));
  const auto found = audit_ledger(mesh(4, {7, 7, 7, 8}), {&before, nullptr, false});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
}

TEST(AuditLedger, ARankThatLeavesOutItsGroupsCallIsNamed) {
  const StepOfRun before = pairs(3, {1, 1, 2, 2});
  StepOfRun now = pairs(4, {7, 7, 8, 8});
  now.ranks[3].records.erase(now.ranks[3].records.begin());
  EXPECT_EQ(told(audit_ledger(now, {&before, nullptr, true})), "collective-missing of rank 3");
}

TEST(AuditLedger, StagesOfAPipelineSendAndReceive) {
  StepOfRun now;
  now.step = 4;
  now.ranks.push_back({4, {call(4, "pp", "send", 11), call(4, "gradients", "all_reduce", 5)}});
  now.ranks.push_back({4, {call(4, "pp", "recv", 11), call(4, "gradients", "all_reduce", 5)}});
  EXPECT_FALSE(audit_ledger(now, {nullptr, nullptr, true}));
  now.ranks[1].records[1].collective.hash_out = 6;
  EXPECT_TRUE(audit_ledger(now, {nullptr, nullptr, true}));
}

using ::testing::HasSubstr;

Record message(const std::string& op, int other, uint64_t hash, const std::string& tag = "activation") {
  Record record;
  record.phase = Phase::collective;
  record.name = op + " " + tag;
  record.collective = {op, "", "pipeline", tag, other, DType::float32, {2, 3}, hash, hash};
  return record;
}

Record exchange(uint64_t in, uint64_t out, const std::string& tag = "tokens") {
  Record record = message("all_to_all", -1, in, tag);
  record.collective.hash_out = out;
  return record;
}

StepOfRun step_of(const std::vector<std::vector<Record>>& ranks) {
  StepOfRun step;
  step.step = 4;
  for (const std::vector<Record>& records : ranks) step.ranks.push_back({4, records});
  return step;
}

/// Two activations from rank 0 to rank 1, a gradient back.
StepOfRun pipeline() {
  return step_of({{message("send", 1, 11), message("send", 1, 12), message("recv", 1, 21, "gradient")},
                  {message("recv", 0, 11), message("recv", 0, 12), message("send", 0, 21, "gradient")}});
}

TEST(AuditMessages, IsSilentWhereEveryMessageArrivesAsItWasSent) {
  EXPECT_FALSE(audit_messages(pipeline()));
  StepOfRun step = pipeline();
  std::ranges::rotate(step.ranks[0].records, step.ranks[0].records.begin() + 2);
  EXPECT_FALSE(audit_messages(step)) << "tags do not wait for each other";
}

TEST(AuditMessages, AMessageThatArrivesChangedIsToldOfItsReceiver) {
  StepOfRun step = pipeline();
  step.ranks[1].records[1].collective.hash_out = 13;
  const auto found = audit_messages(step);
  ASSERT_EQ(told(found), "message-corrupted of rank 1");
  EXPECT_EQ(found->name, "recv activation");
  EXPECT_THAT(found->evidence, HasSubstr("message 2 of rank 0 to rank 1"));
}

TEST(AuditMessages, WhatTheReceiverHadBeforeIsNoPartOfTheMessage) {
  StepOfRun step = pipeline();
  step.ranks[1].records[0].collective.hash_in = 99;
  step.ranks[0].records[0].collective.hash_out = 98;
  EXPECT_FALSE(audit_messages(step));
}

TEST(AuditMessages, TwoMessagesThatMeetEachOthersReceivesAreChanged) {
  StepOfRun step = pipeline();
  std::swap(step.ranks[1].records[0], step.ranks[1].records[1]);
  EXPECT_EQ(code_of(audit_messages(step)), "message-corrupted");
}

TEST(AuditMessages, AMessageOfAnotherTypeOrShapeIsToldSo) {
  StepOfRun type = pipeline(), shape = pipeline();
  type.ranks[1].records[0].collective.dtype = DType::bfloat16;
  shape.ranks[1].records[0].collective.shape = {3, 2};
  EXPECT_EQ(code_of(audit_messages(type)), "wrong-dtype");
  ASSERT_TRUE(audit_messages(shape));
  EXPECT_THAT(audit_messages(shape)->expected, HasSubstr("2 3"));
  EXPECT_THAT(audit_messages(shape)->actual, HasSubstr("3 2"));
}

TEST(AuditMessages, AReceiveOrASendThatNoneAnswersIsMissing) {
  for (const auto& [silent, evidence] : {std::pair(1u, "rank 0 sends message 2 \"activation\" to rank 1, which does not receive it"),
                                         {0u, "rank 1 receives message 2 \"activation\" from rank 0, which does not send it"}}) {
    StepOfRun step = pipeline();
    step.ranks[silent].records.erase(step.ranks[silent].records.begin() + 1);
    EXPECT_EQ(told(audit_messages(step)), "collective-missing of rank " + std::to_string(silent));
    EXPECT_THAT(audit_messages(step)->evidence, HasSubstr(evidence));
  }
}

TEST(AuditMessages, ARankThatRecordsNoMessageOfAKindIsNotAskedForOne) {
  EXPECT_FALSE(audit_messages(step_of({{message("send", 1, 11)}, {}})));
  EXPECT_FALSE(audit_messages(step_of({{}, {message("recv", 0, 11)}}))) << "its tracer may see receives alone";
}

TEST(AuditMessages, APeerThatIsNotKnownIsHeldToNothing) {
  for (const int other : {-1, 0, 7}) {
    EXPECT_FALSE(audit_messages(step_of({{message("send", other, 11), message("recv", other, 12)}, {message("send", 0, 1), message("recv", 0, 2)}})))
        << other;
  }
}

TEST(AuditMessages, OfAnAllToAllWhatGoesInOnAllRanksComesOut) {
  EXPECT_FALSE(audit_messages(step_of({{exchange(10, 13)}, {exchange(5, 2)}})));
  EXPECT_EQ(told(audit_messages(step_of({{exchange(10, 13)}, {exchange(5, 3)}}))), "message-corrupted of all")
      << "sums tell no rank";
  // The k-th call of a tag meets the k-th; another tag is another exchange.
  EXPECT_TRUE(audit_messages(step_of({{exchange(10, 13), exchange(1, 1, "back")}, {exchange(5, 1), exchange(1, 2, "back")}})));
  EXPECT_TRUE(audit_messages(step_of({{exchange(10, 13), exchange(1, 2)}, {exchange(5, 1), exchange(1, 1)}})));
  EXPECT_FALSE(audit_messages(step_of({{exchange(10, 13), exchange(1, 2)}, {exchange(5, 2), exchange(1, 0)}})));
}

TEST(IsBetweenTwo, IsWhatSendsOrReceives) {
  for (const char* op : {"send", "recv", "isend", "irecv", "send_object"}) EXPECT_TRUE(is_between_two(message(op, 0, 1).collective)) << op;
  for (const char* op : {"all_to_all", "all_reduce", "broadcast", "reduce_scatter"}) EXPECT_FALSE(is_between_two(message(op, 0, 1).collective)) << op;
}

}  // namespace
}  // namespace lockstep
