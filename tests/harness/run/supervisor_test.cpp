// One run under a supervisor, by a launcher that reports what it is told.

#include "harness/run/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <deque>
#include <memory>
#include <utility>

#include "harness/base/errors.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/trace/rank_result.h"
#include "tests/support/temp_folder.h"

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
  void start(const RankStart&) override {}
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
  void tell(const std::string&, const std::string& why) override { told.push_back(why); }
  void shut_down(double) override {}

  std::vector<std::string> told;
  std::vector<int> signals, left_by_kill;

 private:
  std::deque<std::vector<LauncherEvent>> polls_;
};

struct Supervised : testing::Test {
  RunSpec within(double deadline_s) const {
    RunSpec spec;
    spec.start = {"run", folder.path(), 3, 3};
    spec.thresholds = {60, 60, 60, 60, 60, 60};
    spec.deadline_s = deadline_s;
    return spec;
  }
  EndedRun run(const RunSpec& spec, RunHooks hooks = {}) {
    Supervisor supervisor(std::unique_ptr<Launcher>(std::exchange(launcher, nullptr)), "ranks");
    supervisor.on_other_event = [&](const LauncherEvent& event) { others.push_back(event.run); };
    EndedRun ended = supervise(supervisor, spec, std::move(hooks), &stop);
    signals = scripted->signals;  // it ends with the supervisor
    told = scripted->told;
    return ended;
  }
  void script(std::deque<std::vector<LauncherEvent>> polls, std::vector<int> left_by_kill = {}) {
    launcher = scripted = new Scripted(std::move(polls));
    scripted->left_by_kill = std::move(left_by_kill);
  }
  void finished(int rank) {
    RankResult result;
    result.rank = rank;
    result.world_size = 3;
    result.status = "finished";
    write_rank_result(rank_result_path(folder.path(), rank), result);
  }
  void all_finished() {
    for (int rank = 0; rank < 3; ++rank) finished(rank);
  }

  TempFolder folder;
  Launcher* launcher = nullptr;
  Scripted* scripted = nullptr;
  std::vector<std::string> others, told;
  std::vector<int> signals;
  int stop = 0;
};

TEST_F(Supervised, EndsWhenAllRanksHaveInTheOrderInWhichTheyDid) {
  all_finished();
  LauncherEvent other = exit_of(0, 9);
  other.run = "earlier";
  script({{{.kind = Kind::ready, .run = "", .pids = {}, .message = ""}, other, started()}, {exit_of(2)}, {exit_of(0), exit_of(1)}});
  const EndedRun ended = run(within(60));
  EXPECT_THAT(ended.ends, ElementsAre(Field(&RankEnd::rank, 2), Field(&RankEnd::rank, 0), Field(&RankEnd::rank, 1)));
  EXPECT_FALSE(ended.failure);
  EXPECT_FALSE(ended.late);
  EXPECT_THAT(signals, testing::IsEmpty());
  EXPECT_THAT(others, ElementsAre("earlier"));
}

TEST_F(Supervised, KeepsItsFailureWhereTheFlightRecordIsDamaged) {
  write_text(folder.path() + "/flight-0.ring", "");
  all_finished();
  script({{started()}, {exit_of(2), exit_of(0), exit_of(1)}});
  EXPECT_THAT(flight_record(run(within(60))), ElementsAre(testing::HasSubstr("cannot be read or written: ")));
}

TEST_F(Supervised, ShowsWhatGoesOn) {
  all_finished();
  script({{}, {started()}, {exit_of(1)}, {exit_of(0), exit_of(2)}});
  std::vector<std::pair<std::size_t, std::size_t>> seen;
  RunHooks hooks;
  hooks.on_look = [&](const OngoingRun& going) {
    seen.emplace_back(going.pids.size(), going.ends.size());
    return false;
  };
  run(within(60), hooks);
  EXPECT_THAT(seen, ElementsAre(std::pair(3, 0), std::pair(3, 1)));
}

TEST_F(Supervised, IsKilledOnceAtItsDeadline) {
  finished(1);
  script({{started(), exit_of(1)}}, {0, 2});
  const EndedRun ended = run(within(-1));
  EXPECT_TRUE(ended.late);
  EXPECT_EQ(ended.left_before_kill, 1u);
  EXPECT_EQ(ended.ends.size(), 3u);
  EXPECT_THAT(signals, ElementsAre(SIGKILL));
}

TEST_F(Supervised, IsKilledWhenAHookSaysSo) {
  all_finished();
  script({{started()}, {exit_of(0), exit_of(2)}}, {1});
  RunHooks hooks;
  hooks.on_look = [](const OngoingRun& going) { return going.ends.size() == 2; };
  const EndedRun ended = run(within(60), hooks);
  EXPECT_FALSE(ended.late);
  EXPECT_EQ(ended.left_before_kill, 2u);
  EXPECT_EQ(ended.ends.back().signal, SIGKILL);
}

TEST_F(Supervised, KillsTheOthersAfterTheFirstFailureAndNamesIt) {
  finished(0);
  finished(2);
  script({{started()}, {exit_of(1, 0, SIGSEGV)}}, {0, 2});
  RunSpec spec = within(60);
  spec.failure_grace_s = 0;
  const EndedRun ended = run(spec);
  ASSERT_TRUE(ended.failure);
  EXPECT_EQ(ended.failure->kind, FailureKind::died);
  EXPECT_EQ(ended.failure->rank, 1);
  EXPECT_GT(ended.failure_at, 0);
  EXPECT_THAT(signals, ElementsAre(SIGKILL));
}

TEST_F(Supervised, TellsTheOthersOfARankThatLeftWithAGoodStatusAndNoResult) {
  script({{started()}, {exit_of(1)}}, {0, 2});
  RunSpec spec = within(60);
  spec.failure_grace_s = 0;
  run(spec);
  EXPECT_THAT(told, ElementsAre(testing::HasSubstr("rank 1 left: exited with status 0 without a result")));
}

TEST_F(Supervised, IsNotLateWhereAStopIsRequested) {
  script({{started()}}, {0, 1, 2});
  stop = 1;
  const EndedRun ended = run(within(60));
  EXPECT_FALSE(ended.late);
  EXPECT_THAT(signals, ElementsAre(SIGKILL));
}

TEST_F(Supervised, SaysWhyNothingWasStarted) {
  script({{{.kind = Kind::refused, .run = "run", .pids = {}, .message = "no memory"}}});
  try {
    run(within(60));
    FAIL() << "nothing was thrown";
  } catch (const MachineError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("ranks cannot be started: no memory"));
  }
}

}  // namespace
}  // namespace lockstep
