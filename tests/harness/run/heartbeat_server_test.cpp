#include "harness/run/launchers/external/rendezvous.h"

#include <gmock/gmock.h>
#include <poll.h>

#include <filesystem>
#include <vector>

#include "harness/base/machine.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

/// A run of three ranks that is watched, and connections of theirs.
class HeartbeatServerTest : public testing::Test {
 protected:
  HeartbeatServerTest() { server_.expect(what_); }
  LineSocket connected() const {
    std::string problem;
    const int there = connected_within("127.0.0.1", read_watcher(folder_.path())->port, 5, problem);
    EXPECT_GE(there, 0) << problem;
    return LineSocket(there);
  }
  Watcher watcher() const { return *read_watcher(folder_.path()); }
  static LauncherEvent heartbeat_of(int rank, uint64_t changes) {
    LauncherEvent event;
    event.kind = LauncherEvent::Kind::heartbeat;
    event.run = "what it calls it";
    event.rank = rank;
    event.heartbeat.changes = changes;
    event.heartbeat.step = 4;
    event.heartbeat.operation = "forward";
    event.heartbeat.process = {'T', ""};
    return event;
  }
  /// Until something was told, or the connection's end was seen by the server.
  std::vector<LauncherEvent> heard(double most_s = 5) {
    std::vector<LauncherEvent> events;
    for (const double until = monotonic_s() + most_s; events.empty() && monotonic_s() < until; ::poll(nullptr, 0, 1)) events = server_.look(monotonic_s());
    return events;
  }
  bool hung_up_on(LineSocket& socket) {
    for (const double until = monotonic_s() + 5; monotonic_s() < until; ::poll(nullptr, 0, 1)) {
      EXPECT_TRUE(server_.look(monotonic_s()).empty());
      if (!socket.receive()) return true;
    }
    return false;
  }

  const TempFolder folder_;
  HeartbeatFile heartbeats_ = HeartbeatFile::create(folder_ / kHeartbeatFile, 3);
  const RankStart what_{"a", folder_.path(), 3, 3};
  HeartbeatServer server_;
};

TEST_F(HeartbeatServerTest, TellsWhatARankElsewhereHasReported) {
  LineSocket rank = connected();
  rank.send(desk_line(watcher(), 1));
  rank.send(to_line(heartbeat_of(1, 6)));
  const auto events = heard();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].run, "a");
  EXPECT_EQ(events[0].rank, 1);
  EXPECT_EQ(events[0].heartbeat.step, 4);
  EXPECT_EQ(events[0].heartbeat.operation, "forward");
  EXPECT_TRUE(events[0].heartbeat.process.stopped());
}

TEST_F(HeartbeatServerTest, TellsItWhatTheOthersHaveReportedAndNotWhatItHas) {
  LineSocket rank = connected();
  rank.send(desk_line(watcher(), 1));
  for (int other = 0; other < 3; ++other) heartbeats_.report(other, 7, "save");
  std::vector<int> told;
  for (const double until = monotonic_s() + 5; told.size() < 2 && monotonic_s() < until; ::poll(nullptr, 0, 1)) {
    server_.look(monotonic_s());
    rank.receive();
    while (const auto line = rank.line()) {
      const ParentCommand command = command_from_line(*line);
      EXPECT_EQ(command.op, ParentCommand::Op::heartbeat);
      EXPECT_EQ(command.heartbeat.step, 7);
      told.push_back(command.rank);
    }
  }
  EXPECT_THAT(told, testing::ElementsAre(0, 2));
}

TEST_F(HeartbeatServerTest, HangsUpOnStrangersAndOnWhoSpeaksForAnother) {
  Watcher wrong = watcher();
  wrong.key = "guessed";
  const std::vector<std::string> openings = {desk_line(wrong, 1), "no JSON\n", R"({"key": 7})" "\n", "[]\n", desk_line(watcher(), 3),
                                             desk_line(watcher(), 1) + "no heartbeat\n", desk_line(watcher(), 1) + to_line(heartbeat_of(2, 6)),
                                             desk_line(watcher(), 1) + to_line(LauncherEvent{})};
  for (const std::string& opening : openings) {
    LineSocket stranger = connected();
    stranger.send(opening);
    EXPECT_TRUE(hung_up_on(stranger)) << opening;
  }
}

TEST_F(HeartbeatServerTest, LeavesNothingOfARunThatIsOver) {
  LineSocket rank = connected();
  rank.send(desk_line(watcher(), 1));
  rank.send(to_line(heartbeat_of(1, 6)));
  EXPECT_EQ(heard().size(), 1U);
  HeartbeatFile::create(folder_ / heartbeats_of_rank(1), 3);
  server_.forget("a");
  EXPECT_FALSE(read_watcher(folder_.path()));
  EXPECT_FALSE(std::filesystem::exists(folder_ / heartbeats_of_rank(1)));
  EXPECT_TRUE(hung_up_on(rank));
}

}  // namespace
}  // namespace lockstep
