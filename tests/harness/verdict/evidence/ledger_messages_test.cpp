#include "harness/verdict/evidence/ledger.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

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
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, "message-corrupted");
  EXPECT_EQ(found->rank, 1);
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
  const auto found = audit_messages(step);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, "message-corrupted");
}

TEST(AuditMessages, AMessageOfAnotherTypeOrShapeIsToldSo) {
  StepOfRun type = pipeline(), shape = pipeline();
  type.ranks[1].records[0].collective.dtype = DType::bfloat16;
  shape.ranks[1].records[0].collective.shape = {3, 2};
  ASSERT_TRUE(audit_messages(type));
  EXPECT_EQ(audit_messages(type)->code, "wrong-dtype");
  ASSERT_TRUE(audit_messages(shape));
  EXPECT_THAT(audit_messages(shape)->expected, HasSubstr("2 3"));
  EXPECT_THAT(audit_messages(shape)->actual, HasSubstr("3 2"));
}

TEST(AuditMessages, AReceiveOrASendThatNoneAnswersIsMissing) {
  StepOfRun lost = pipeline(), unsent = pipeline();
  lost.ranks[1].records.erase(lost.ranks[1].records.begin() + 1);
  unsent.ranks[0].records.erase(unsent.ranks[0].records.begin() + 1);
  const auto of_receiver = audit_messages(lost), of_sender = audit_messages(unsent);
  ASSERT_TRUE(of_receiver && of_sender);
  EXPECT_EQ(of_receiver->code, "collective-missing");
  EXPECT_EQ(of_receiver->rank, 1);
  EXPECT_THAT(of_receiver->evidence, HasSubstr("rank 0 sends message 2 \"activation\" to rank 1, which does not receive it"));
  EXPECT_EQ(of_sender->code, "collective-missing");
  EXPECT_EQ(of_sender->rank, 0);
  EXPECT_THAT(of_sender->evidence, HasSubstr("rank 1 receives message 2 \"activation\" from rank 0, which does not send it"));
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
  const auto changed = audit_messages(step_of({{exchange(10, 13)}, {exchange(5, 3)}}));
  ASSERT_TRUE(changed);
  EXPECT_EQ(changed->code, "message-corrupted");
  EXPECT_EQ(changed->rank, -1) << "sums tell no rank";
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
