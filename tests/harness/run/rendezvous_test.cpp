#include "harness/run/launchers/external/rendezvous.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <thread>

#include "harness/base/errors.h"
#include "harness/base/machine.h"
#include "harness/run/launchers/local/protocol.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Arrival rank(int number, int world) {
  RankEnvironment rank_environment;
  rank_environment.name = "test";
  rank_environment.rank = number;
  rank_environment.world = world;
  Arrival mine = introduce(rank_environment);
  mine.build = "b";
  mine.isa = "i";
  return mine;
}

std::vector<Met> meet_all(const std::string& folder, std::vector<Arrival> ranks, const std::string& store = "") {
  std::vector<std::future<Met>> meetings;
  for (Arrival& each : ranks)
    meetings.push_back(std::async(std::launch::async, [&folder, each, &store] { return meet(folder, each, store, 20); }));
  std::vector<Met> met;
  for (auto& each : meetings) met.push_back(each.get());
  return met;
}

TEST(ListeningSocket, TakesTheFirstFreePortOfTheRange) {
  int anywhere = 0;
  const int probe = listening_socket(anywhere);
  const std::string range = std::to_string(anywhere) + "-" + std::to_string(anywhere + 3);
  ASSERT_EQ(::setenv("LOCKSTEP_PORTS", range.c_str(), 1), 0);
  int port = 0;
  const int next = listening_socket(port);
  EXPECT_GT(port, anywhere) << "that one is taken";
  EXPECT_LE(port, anywhere + 3);
  ASSERT_EQ(::setenv("LOCKSTEP_PORTS", (std::to_string(anywhere) + "-" + std::to_string(anywhere)).c_str(), 1), 0);
  EXPECT_THAT([] { int none = 0; listening_socket(none); }, ThrowsMessage<MachineError>(HasSubstr("is free on")));
  for (const char* wrong : {"20000", "0-5", "30-20", "1-70000", "1-2x"}) {
    ASSERT_EQ(::setenv("LOCKSTEP_PORTS", wrong, 1), 0);
    EXPECT_THAT([] { int none = 0; listening_socket(none); }, ThrowsMessage<MachineError>(HasSubstr("is no range of ports; write it as 20000-20099"))) << wrong;
  }
  ::unsetenv("LOCKSTEP_PORTS");
  ::close(probe);
  ::close(next);
}

TEST(Meeting, GivesAllRanksTheSameStart) {
  const TempFolder folder;
  const auto met = meet_all(folder.path(), {rank(0, 3), rank(1, 3), rank(2, 3)});
  for (const Met& each : met) {
    EXPECT_EQ(each.start, met[0].start);
    EXPECT_TRUE(each.one_host);
    EXPECT_FALSE(each.tcp) << "one host meets by a file";
    EXPECT_EQ(each.host, "127.0.0.1");
  }
}

TEST(Meeting, TakesNothingThatAnEarlierStartHasLeft) {
  const TempFolder folder;
  const auto first = meet_all(folder.path(), {rank(0, 3), rank(1, 3), rank(2, 3)});
  const auto second = meet_all(folder.path(), {rank(0, 3), rank(1, 3), rank(2, 3)});
  EXPECT_NE(first[0].start, second[0].start);
  for (const Met& each : second) EXPECT_EQ(each.start, second[0].start);
}

TEST(Meeting, IsAtRankZerosOwnAddressWhereHostsDiffer) {
  const TempFolder folder;
  std::vector<Arrival> ranks = {rank(0, 2), rank(1, 2)};
  ranks[0].address = "10.0.0.1";
  ranks[0].host = "a";
  ranks[1].host = "b";
  ranks[1].machine = "another";
  const std::vector<Met> met = meet_all(folder.path(), ranks);
  for (const Met& each : met) {
    EXPECT_FALSE(each.one_host);
    EXPECT_TRUE(each.tcp);
    EXPECT_EQ(each.host, "10.0.0.1");
    EXPECT_EQ(each.port, met[0].port);
  }
  // 127.0.0.2 stands for another host: what listens for this one alone is not there.
  std::string problem;
  const int there = connected_within("127.0.0.2", met[0].port, 5, problem);
  EXPECT_GE(there, 0) << problem;
  ::close(there);
  ::close(met[0].listening);
  EXPECT_FALSE(meet_all(folder.path(), {rank(0, 1)}, "file")[0].tcp);
}

TEST(Meeting, ListensForThisHostAloneWhereAllRanksAreThereAndNotAtAllWhereTheyMeetByAFile) {
  const TempFolder folder, other;
  const Met met = meet_all(folder.path(), {rank(0, 2), rank(1, 2)}, "tcp")[0];
  std::string problem;
  const int there = connected_within("127.0.0.1", met.port, 5, problem);
  EXPECT_GE(there, 0) << problem;
  EXPECT_LT(connected_within("127.0.0.2", met.port, 5, problem), 0);
  ::close(there);
  ::close(met.listening);
  EXPECT_LT(meet_all(other.path(), {rank(0, 2), rank(1, 2)})[0].listening, 0);
}

TEST(Meeting, TakesAFileWithAFieldOfAnotherTypeForNone) {
  const TempFolder folder;
  for (const char* text : {R"({"nonce": 5})", R"({"nonce": "n", "pid": "x"})", R"({"nonce": "n", "rank": 4294967296})", R"({"nonce": "n", "host": []})"}) {
    write_text(start_file(folder.path(), 1), text);
    EXPECT_EQ(read_arrival(folder.path(), 1).nonce, "") << text;
  }
  write_text(start_file(folder.path(), 1), R"({"nonce": "n", "pid": 7})");
  EXPECT_EQ(read_arrival(folder.path(), 1).pid, 7);
}

TEST(Meeting, TellsContainersOfOneNameFromOneHost) {
  const TempFolder folder;
  std::vector<Arrival> ranks = {rank(0, 2), rank(1, 2)};
  ranks[0].address = "10.0.0.1";
  ranks[1].machine += " of another container";
  for (const Met& each : meet_all(folder.path(), ranks)) {
    EXPECT_FALSE(each.one_host);
    EXPECT_TRUE(each.tcp);
  }
  const TempFolder other;
  std::vector<Arrival> renamed = {rank(0, 2), rank(1, 2)};
  renamed[1].host = "its other name";
  EXPECT_TRUE(meet_all(other.path(), renamed)[1].one_host);
}

TEST(Meeting, EndsForAllWhenARankLeaves) {
  const TempFolder folder;
  auto first = std::async(std::launch::async, [&] { return meet(folder.path(), rank(0, 3), "", 60); });
  auto second = std::async(std::launch::async, [&] { return meet(folder.path(), rank(1, 3), "", 60); });
  const Met left = meet(folder.path(), rank(2, 3), "", 60, [](const Met& answer) { return "cannot reach " + answer.ranks.front().rank_environment; });
  EXPECT_EQ(left.ranks[2].problem, "cannot reach test");
  EXPECT_THAT([&] { first.get(); },
              ThrowsMessage<RendezvousError>(AllOf(HasSubstr("rank 2 (process "), HasSubstr("has left: cannot reach test"))));
  EXPECT_THAT([&] { second.get(); }, ThrowsMessage<RendezvousError>(HasSubstr("has left: cannot reach test")));
  // What it left is nobody's problem when they start again.
  for (const Met& each : meet_all(folder.path(), {rank(0, 3), rank(1, 3), rank(2, 3)})) EXPECT_FALSE(each.start.empty());
}

TEST(Meeting, NamesTheRanksThatDoNotCome) {
  const TempFolder folder;
  EXPECT_THAT([&] { meet(folder.path(), rank(0, 3), "", 0.05); },
              ThrowsMessage<RendezvousError>(AllOf(HasSubstr("ranks of 3 did not come in time: ranks 1, 2."), HasSubstr(folder.path()))));
  const TempFolder other;
  EXPECT_THAT([&] { meet(other.path(), rank(2, 3), "", 0.05); },
              ThrowsMessage<RendezvousError>(HasSubstr("rank 0 did not come in time")));
}

TEST(Meeting, NamesTwoProcessesOfOneRank) {
  const TempFolder folder;
  auto first = std::async(std::launch::async, [&] { return meet(folder.path(), rank(1, 3), "", 20); });
  while (read_arrival(folder.path(), 1).nonce.empty()) std::this_thread::yield();
  Arrival twin = rank(1, 3);
  twin.nonce = "another";
  auto second = std::async(std::launch::async, [&] { return meet(folder.path(), twin, "", 0.5); });
  EXPECT_THAT([&] { first.get(); }, ThrowsMessage<RendezvousError>(HasSubstr("two processes are rank 1: process ")));
  EXPECT_THROW(second.get(), RendezvousError);
}

TEST(Meeting, TellsRankZeroOfARankThatCameTwice) {
  const TempFolder folder;
  auto zero = std::async(std::launch::async, [&] { return meet(folder.path(), rank(0, 3), "", 60); });
  while (read_arrival(folder.path(), 0).nonce.empty()) std::this_thread::yield();
  auto first = std::async(std::launch::async, [&] { return meet(folder.path(), rank(1, 3), "", 60); });
  while (read_arrival(folder.path(), 1).nonce.empty()) std::this_thread::yield();
  auto second = std::async(std::launch::async, [&] { return meet(folder.path(), rank(1, 3), "", 60); });
  EXPECT_THAT([&] { zero.get(); }, ThrowsMessage<RendezvousError>(HasSubstr("two processes are rank 1: process ")));
  EXPECT_THROW(first.get(), RendezvousError);
  EXPECT_THROW(second.get(), RendezvousError);
  const TempFolder other;
  auto one = std::async(std::launch::async, [&] { return meet(other.path(), rank(0, 3), "", 60); });
  while (read_arrival(other.path(), 0).nonce.empty()) std::this_thread::yield();
  EXPECT_THAT([&] { meet(other.path(), rank(0, 3), "", 60); }, ThrowsMessage<RendezvousError>(HasSubstr("two processes are rank 0: process ")));
  EXPECT_THAT([&] { one.get(); }, ThrowsMessage<RendezvousError>(HasSubstr("two processes are rank 0: process ")));
}

TEST(Meeting, LeavesOutARankOfAnotherAttempt) {
  const TempFolder folder;
  Arrival left_behind = rank(1, 2);
  left_behind.attempt = "first";
  EXPECT_THROW(meet(folder.path(), left_behind, "", 0.01), RendezvousError);
  Arrival zero = rank(0, 2), one = rank(1, 2);
  zero.attempt = one.attempt = "second";
  EXPECT_THAT([&] { meet(folder.path(), zero, "", 0.05); }, ThrowsMessage<RendezvousError>(HasSubstr("did not come in time: rank 1.")));
  const std::vector<Met> met = meet_all(folder.path(), {zero, one});
  EXPECT_EQ(met[0].start, met[1].start);
}

TEST(Meeting, WaitsNoLongerThanItIsToldForARankThatDoesNotAnswer) {
  const TempFolder folder;
  EXPECT_THROW(meet(folder.path(), rank(1, 2), "", 0.01), RendezvousError);  // it came, and is gone
  const double begun = monotonic_s();
  EXPECT_THAT([&] { meet(folder.path(), rank(0, 2), "", 0.01); }, ThrowsMessage<RendezvousError>(HasSubstr("did not answer in time: rank 1.")));
  EXPECT_LT(monotonic_s() - begun, 10);
}

TEST(Meeting, EndsForAProcessThatShallLeave) {
  const TempFolder folder;
  EXPECT_THAT([&] { meet(folder.path(), rank(1, 2), "", 60, nullptr, [] { throw std::runtime_error("left behind"); }); },
              ThrowsMessage<std::runtime_error>("left behind"));
}

TEST(Meeting, NamesWhatDiffersBetweenRanks) {
  Arrival first = rank(0, 2), other = rank(1, 2);
  EXPECT_EQ(difference_of_identity(first, other), "");
  other.build = "c";
  other.isa = "j";
  EXPECT_THAT(difference_of_identity(first, other), AllOf(HasSubstr("rank 0 runs the build b and rank 1 the build c"),
                                                         HasSubstr("rank 0 computes on i and rank 1 on j"), HasSubstr("--mixed")));
}

TEST(Meeting, SaysWhatToTryWhereRankZeroCannotBeReached) {
  Met met;
  met.ranks = {rank(0, 2), rank(1, 2)};
  met.host = "127.0.0.1";
  const int listening = listening_socket(met.port);
  EXPECT_EQ(unreachable_text(met, met.ranks[1], 5), "");
  ::close(listening);
  EXPECT_THAT(unreachable_text(met, met.ranks[1], 5), AllOf(HasSubstr("Connection refused"), HasSubstr("Set LOCKSTEP_ADDRESS")));
}

}  // namespace
}  // namespace lockstep
