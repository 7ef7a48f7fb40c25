// What a rank on another host tells lockstep, and what happens when their connection breaks.

#include "harness/jobs/heartbeat.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "harness/base/machine.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

Arrival elsewhere() {
  RankEnvironment rank_environment;
  rank_environment.rank = 1;
  rank_environment.world = 3;
  Arrival mine = introduce(rank_environment);
  mine.machine = "another";
  return mine;
}

class Line : public testing::Test {
 protected:
  /// The first heartbeat that the server reads within some seconds.
  std::optional<LauncherEvent> heard(HeartbeatLine& line) {
    for (const double until = monotonic_s() + 10; monotonic_s() < until; ::poll(nullptr, 0, 2)) {
      line.look();
      for (LauncherEvent& event : server_.look(monotonic_s())) return std::move(event);
    }
    return std::nullopt;
  }
  const TempFolder folder_;
  HeartbeatFile heartbeats_ = HeartbeatFile::create(folder_ / kHeartbeatFile, 3);
  const RankStart what_{"a", folder_.path(), 3, 3};
  HeartbeatServer server_;
};

TEST_F(Line, TellsWhatTheRankReportsAndHowItsProcessIs) {
  server_.expect(what_);
  server_.open_to_hosts();
  HeartbeatLine line(folder_.path(), elsewhere(), 1, 3);
  EXPECT_EQ(line.tracer(), -1);
  line.started(::getpid());
  HeartbeatFile::open(folder_ / line.heartbeats(), 3).report(1, 4, "forward");
  const auto told = heard(line);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->rank, 1);
  EXPECT_EQ(told->heartbeat.step, 4);
  EXPECT_EQ(told->heartbeat.operation, "forward");
  EXPECT_EQ(told->heartbeat.process.state, 'R');
  line.ended();
  EXPECT_FALSE(std::filesystem::exists(folder_ / line.heartbeats()));
}

TEST_F(Line, ReachesLockstepThatListensForItsHostOnceItHasSeenARankThere) {
  server_.expect(what_);
  auto opened = std::async(std::launch::async, [this] {
    while (!std::filesystem::exists(folder_ / heartbeats_of_rank(1))) ::poll(nullptr, 0, 1);
    server_.open_to_hosts();
  });
  HeartbeatLine line(folder_.path(), elsewhere(), 1, 3);
  opened.get();
  line.started(::getpid());
  HeartbeatFile::open(folder_ / line.heartbeats(), 3).report(1, 4, "forward");
  EXPECT_TRUE(heard(line));
}

TEST_F(Line, IsThereAgainAfterItBroke) {
  server_.expect(what_);
  server_.open_to_hosts();
  HeartbeatLine line(folder_.path(), elsewhere(), 1, 3);
  line.started(::getpid());
  HeartbeatFile reports = HeartbeatFile::open(folder_ / line.heartbeats(), 3);
  reports.report(1, 4, "forward");
  ASSERT_TRUE(heard(line));
  server_.forget("a");  // hangs up
  line.look();
  server_.expect(what_);
  reports.report(1, 5, "forward");
  const auto told = heard(line);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->heartbeat.step, 5);
}

TEST_F(Line, IsNotNeededOnTheHostOfWhoWatches) {
  server_.expect(what_);
  const HeartbeatLine line(folder_.path(), introduce(RankEnvironment{}), 1, 3);
  EXPECT_EQ(line.heartbeats(), kHeartbeatFile);
  EXPECT_EQ(line.tracer(), ::getpid());
}

TEST_F(Line, IsNotThereWhereNobodyWatches) {
  HeartbeatLine line(folder_.path(), elsewhere(), 1, 3);
  EXPECT_EQ(line.heartbeats(), kHeartbeatFile);
  EXPECT_EQ(line.tracer(), -1);
  line.started(::getpid());
  line.look();
  line.ended();
}

}  // namespace
}  // namespace lockstep
