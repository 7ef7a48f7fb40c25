// One run by itself, by a launcher that reports what it is told.

#include "harness/launch/run_to_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <deque>
#include <utility>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::Field;

using Kind = LauncherEvent::Kind;

LauncherEvent started() { return {.kind = Kind::started, .run = "run", .pids = {11, 12, 13}, .message = ""}; }
LauncherEvent exit_of(int rank, int code = 0, int signal = 0) {
  return {.kind = Kind::exit, .run = "run", .pids = {}, .rank = rank, .code = code, .signal = signal, .message = ""};
}

/// Reports a list of events in each poll; a kill ends the ranks that are left.
class Scripted final : public Launcher {
 public:
  explicit Scripted(std::deque<std::vector<LauncherEvent>> polls) : polls_(std::move(polls)) {}
  void start(const RankStart& what) override { started = what.run; }
  void stop(const std::string&, int signal) override {
    signals.push_back(signal);
    polls_.assign(1, {});
    for (const int rank : left_by_kill) polls_.front().push_back(exit_of(rank, 0, signal));
  }
  std::vector<LauncherEvent> poll(double) override {
    if (polls_.empty()) return {};
    auto events = std::move(polls_.front());
    polls_.pop_front();
    return events;
  }
  void shut_down(double) override {}

  std::string started;
  std::vector<int> signals, left_by_kill;

 private:
  std::deque<std::vector<LauncherEvent>> polls_;
};

const RankStart kStart{"run", "", 3, 3};

struct RunToEnd : testing::Test {
  RunLimits within(double deadline_s, double load_s = 0) const { return {deadline_s, load_s, &stop}; }
  RunEnded run(Scripted& launcher, const RunLimits& limits) {
    return run_to_end(launcher, kStart, limits, [](const RunGoing&) { return false; });
  }
  int stop = 0;
};

TEST_F(RunToEnd, ReturnsWhenAllHaveEndedInTheOrderInWhichTheyDid) {
  LauncherEvent other = exit_of(0, 9);
  other.run = "earlier";
  Scripted launcher({{{.kind = Kind::ready, .run = "", .pids = {}, .message = ""}, other, started()},
                     {exit_of(2)},
                     {exit_of(0, 7), exit_of(1)}});
  const RunEnded ended = run(launcher, within(60));
  EXPECT_EQ(launcher.started, "run");
  EXPECT_THAT(ended.exits, ElementsAre(Field(&LauncherEvent::rank, 2), Field(&LauncherEvent::rank, 0), Field(&LauncherEvent::rank, 1)));
  EXPECT_EQ(ended.exits[1].code, 7);
  EXPECT_FALSE(ended.killed);
  EXPECT_FALSE(ended.late);
  EXPECT_TRUE(launcher.signals.empty());
}

TEST_F(RunToEnd, ShowsWhatGoesOn) {
  Scripted launcher({{}, {started()}, {exit_of(1)}, {exit_of(0), exit_of(2)}});
  std::vector<std::pair<std::size_t, std::size_t>> seen;
  run_to_end(launcher, kStart, within(60), [&](const RunGoing& going) {
    seen.emplace_back(going.pids.size(), going.exits.size());
    return false;
  });
  EXPECT_THAT(seen, ElementsAre(std::pair(0, 0), std::pair(3, 0), std::pair(3, 1), std::pair(3, 3)));
}

TEST_F(RunToEnd, KillsOnceWhatIsLate) {
  Scripted launcher({{started(), exit_of(1)}});
  launcher.left_by_kill = {0, 2};
  const RunEnded ended = run(launcher, within(-1));
  EXPECT_TRUE(ended.killed);
  EXPECT_TRUE(ended.late);
  EXPECT_EQ(ended.left_before_kill, 1u);
  EXPECT_EQ(ended.exits.size(), 3u);
  EXPECT_THAT(launcher.signals, ElementsAre(SIGKILL));
}

TEST_F(RunToEnd, GivesMoreTimeUntilAllAreThere) {
  const auto there_at_each_look = [&](const RunLimits& limits) {
    Scripted launcher({{}, {}, {started()}});
    launcher.left_by_kill = {0, 1, 2};
    std::vector<bool> there;
    run_to_end(launcher, kStart, limits, [&](const RunGoing& going) {
      there.push_back(!going.pids.empty());
      return false;
    });
    return there;
  };
  EXPECT_THAT(there_at_each_look(within(-1)), ElementsAre(false, false));
  EXPECT_THAT(there_at_each_look(within(-1, 60)), ElementsAre(false, false, true, true));
}

TEST_F(RunToEnd, KillsWhenItsLookSaysSo) {
  Scripted launcher({{started()}, {exit_of(0), exit_of(2)}});
  launcher.left_by_kill = {1};
  const RunEnded ended =
      run_to_end(launcher, kStart, within(60), [](const RunGoing& going) { return going.exits.size() == 2; });
  EXPECT_TRUE(ended.killed);
  EXPECT_FALSE(ended.late);
  EXPECT_EQ(ended.left_before_kill, 2u);
  EXPECT_EQ(ended.exits.back().signal, SIGKILL);
}

TEST_F(RunToEnd, IsLateAlsoWhereItsLookSaysSo) {
  Scripted launcher({{started()}});
  launcher.left_by_kill = {0, 1, 2};
  EXPECT_TRUE(run_to_end(launcher, kStart, within(-1), [](const RunGoing&) { return true; }).late);
}

TEST_F(RunToEnd, IsNotLateWhereAStopIsRequested) {
  Scripted launcher({{started()}});
  launcher.left_by_kill = {0, 1, 2};
  stop = 1;
  const RunEnded ended = run(launcher, within(-1));
  EXPECT_TRUE(ended.killed);
  EXPECT_FALSE(ended.late);
}

TEST_F(RunToEnd, SaysWhyNothingWasStarted) {
  Scripted launcher({{{.kind = Kind::refused, .run = "run", .pids = {}, .message = "no memory"}}});
  try {
    run(launcher, within(60));
    FAIL() << "nothing was thrown";
  } catch (const MachineError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("ranks cannot be started: no memory"));
  }
}

}  // namespace
}  // namespace lockstep
