#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/jobs/parent.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/run/launch.h"
#include "harness/run/libraries.h"
#include "harness/run/process_state.h"
#include "harness/run/run_folder.h"
#include "tests/support/launched.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::a_run;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

const char* const kFakeRank = LOCKSTEP_BINARY_DIR "/bin/fake_rank";

class Launcher : public testing::Test {
 protected:
  Launcher() {
    options_.rank_program = kFakeRank;
    options_.out_dir = folder_.path();
    options_.jobs = 4;
    options_.hang_grace_s = 0.1;
    options_.kill_grace_s = 0.3;
    options_.on_event = [this](const RunEvent& event) { events_.push_back({event.kind, event.run}); };
  }
  LaunchReport launch_all() { return launch(plan_, options_, identity_); }
  bool done(const std::string& id) const {
    return std::filesystem::exists(folder_ / ("runs/" + id + "/done"));
  }
  std::vector<std::string> started_order() const {
    std::istringstream lines(read_text(folder_ / "runs/order"));
    std::vector<std::string> order;
    for (std::string line; lines >> line;) {
      if (order.empty() || order.back() != line) order.push_back(line);
    }
    return order;
  }
  void expect_no_orphan(const std::string& id, int processes) const {
    support::expect_no_orphan(folder_ / ("runs/" + id), processes);
  }

  const TempFolder folder_;
  Plan plan_;
  LaunchOptions options_;
  BuildIdentity identity_{"b", "t", "i", "d"};
  std::vector<std::pair<RunEvent::Kind, std::string>> events_;
};

class StartedRanks : public Launcher, public testing::WithParamInterface<ProcessStart> {};

INSTANTIATE_TEST_SUITE_P(Starts, StartedRanks, testing::Values(ProcessStart::forked, ProcessStart::executed));

TEST_P(StartedRanks, RunEachInItsOwnProcessAndEmulatedInOne) {
  plan_.runs = {a_run("a", 3, Backend::gloo, "", 0, GetParam()), a_run("b", 3, Backend::emulated, "", 0, GetParam()),
                a_run("c", 1, Backend::gloo, "", 0, GetParam())};
  EXPECT_EQ(support::outcome(launch_all()), "3 finished, 0 requeued");
  EXPECT_TRUE(done("a"));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(std::filesystem::exists(rank_log_path(folder_ / "runs/a", rank)));
    const RankResult result = read_rank_result(rank_result_path(folder_ / "runs/a", rank));
    EXPECT_EQ(result.status, "finished");
    EXPECT_EQ(result.rank, rank);
  }
  expect_no_orphan("a", 3);
  expect_no_orphan("b", 1);
  expect_no_orphan("c", 1);
  EXPECT_THAT(events_, Contains(std::pair(RunEvent::Kind::started, std::string("a"))));
  EXPECT_EQ(events_.back().first, RunEvent::Kind::finished);
}

/// A fork shows its parent's arguments, a program its own.
TEST_P(StartedRanks, AreProgramsOfTheirOwnWhereTheyAreExecuted) {
  plan_.runs = {a_run("a", 2, Backend::gloo, "all:arguments", 0, GetParam())};
  launch_all();
  EXPECT_THAT(read_text(rank_log_path(folder_ / "runs/a", 1)),
              HasSubstr(GetParam() == ProcessStart::forked ? "--socket 3" : "--rank 1"));
}

/// Tells of a run that nobody asked for, and then that it can start nothing.
class Stray : public lockstep::Launcher {
 public:
  void start(const RankStart& what) override { asked_ = what.run; }
  void stop(const std::string&, int) override {}
  std::vector<LauncherEvent> poll(double) override {
    if (asked_.empty()) return {};
    LauncherEvent stray, refused;
    stray.kind = LauncherEvent::Kind::exit;
    stray.run = "nobody's";
    refused.kind = LauncherEvent::Kind::refused;
    refused.run = asked_;
    refused.message = "no more processes";
    return {stray, refused};
  }
  void shut_down(double) override {}

 private:
  std::string asked_;
};

TEST_F(Launcher, DoesNotHeedWhatIsToldOfARunThatIsNotGoing) {
  plan_.runs = {a_run("a", 1, Backend::gloo)};
  options_.make_launcher = [] { return std::make_unique<Stray>(); };
  EXPECT_THAT([this] { launch_all(); },
              testing::ThrowsMessage<MachineError>(HasSubstr("a: its ranks cannot be started: no more processes")));
  EXPECT_THAT(events_, Contains(std::pair(RunEvent::Kind::stray, std::string("nobody's"))));
}

TEST_F(Launcher, RefusesAProgramThatIsNotThePlanned) {
  plan_.runs = {a_run("a", 1, Backend::gloo)};
  options_.program_hash = hash_of_file(kFakeRank);
  EXPECT_EQ(launch_all().finished, 1);
  options_.program_hash = "0123456789abcdef";
  plan_.runs = {a_run("b", 1, Backend::gloo)};
  EXPECT_THAT([this] { launch_all(); },
              ThrowsMessage<MachineError>(HasSubstr("changed since the runs were planned: its hash was 0123456789abcdef and is ")));
  EXPECT_FALSE(done("b"));
}

TEST_F(Launcher, TellsRanksWhatDataTheyArePlannedOn) {
  plan_.runs = {a_run("a", 1, Backend::gloo)};
  options_.data_hash_of = [](const RunConfig& config) { return "data of " + std::to_string(config.steps); };
  launch_all();
  EXPECT_THAT(read_text(folder_ / "runs/a/run.json"), HasSubstr("\"data_hash\": \"data of 5\""));
}

TEST_F(Launcher, RunsEightRanksAtOnceOnFewerSlots) {
  options_.jobs = 2;
  plan_.runs = {a_run("a", 8, Backend::gloo)};
  EXPECT_EQ(launch_all().finished, 1);
  expect_no_orphan("a", 8);
}

TEST_F(Launcher, RunsAnExclusiveRunAlone) {
  for (const std::string id : {"a", "b", "c", "d"}) plan_.runs.push_back(a_run(id, 1, Backend::emulated));
  plan_.runs[1].exclusive = true;
  EXPECT_EQ(launch_all().finished, 4);
  std::vector<std::string> going;
  for (const auto& [kind, run] : events_) {
    if (kind == RunEvent::Kind::started) going.push_back(run);
    if (std::ranges::count(going, "b") > 0) {
      EXPECT_THAT(going, ElementsAre("b"));
    }
    if (kind == RunEvent::Kind::finished) std::erase(going, run);
  }
}

TEST_F(Launcher, StartsNoParentWhereEverythingIsReused) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  plan_.runs[0].reused = true;
  options_.rank_program = "/nowhere/lockstep-rank";
  const LaunchReport report = launch_all();
  EXPECT_EQ(report.reused, 1);
  EXPECT_EQ(report.finished, 0);
  EXPECT_THAT(events_, ElementsAre(std::pair(RunEvent::Kind::reused, std::string("a"))));
}

TEST_F(Launcher, StartsARunAfterWhatItNeeds) {
  plan_.runs = {a_run("b", 1, Backend::emulated), a_run("a", 1, Backend::emulated),
                a_run("r", 1, Backend::gloo)};
  plan_.runs[0].needs = {"a", "r"};
  plan_.runs[2].reused = true;
  EXPECT_EQ(launch_all().finished, 2);
  EXPECT_THAT(started_order(), ElementsAre("a", "b"));
}

TEST_F(Launcher, NamesTheRankThatFailsAndHow) {
  struct Row {
    int ranks;
    Backend kind;
    const char* script;
    std::vector<const char*> says;
    double timeout_s = 0;
    ProcessStart start = ProcessStart::forked;
  };
  const char *const thrown = "no such tensor: head.weight", *const escapes = ": exited with status 1 without a result\n";
  const std::vector<Row> rows = {
      {3,
       Backend::gloo,
       "all:wait 1:die",
       {"died, rank 1, step 3, train: killed by signal 9 (SIGKILL)\n  rank 1 is about to die"}},
      {3,
       Backend::gloo,
       "all:wait 1:die",
       {"died, rank 1, ", "signal 9", "\n  rank 1 is about to die"},
       0,
       ProcessStart::executed},
      {3,
       Backend::gloo,
       "0:lose 1:wait 2:throw",
       {"threw, rank 2, ",
        ": no such tensor: head.weight\n  rank 2 is about to throw\n  rank 2 failed: no such tensor: head.weight"}},
      {3, Backend::emulated, "1:throw", {"rank 1, ", thrown}},
      {2, Backend::gloo, "1:escape", {"rank 1, ", escapes, "\n  rank 1: thrown past the rank's own net"}},
      {2,
       Backend::gloo,
       "1:escape all:wait",
       {"rank 1, ", "\n  rank 1: thrown past the rank's own net"},
       0,
       ProcessStart::executed},
      {3, Backend::gloo, "2:leave", {"rank 2, ", "exited with status 0 without a result"}},
      {3, Backend::gloo, "all:wait 0:hang", {"hung, rank 0, ", ", train: no progress for"}, 0.8},
      {3, Backend::gloo, "all:lose 1:stop", {"hung, rank 1, ", "Connection closed by peer"}},
      {1, Backend::emulated, "0:compute", {"slow, rank 0, ", "'train'", "watch.slow_s", "0.7 s"}, 0.2},
  };
  for (const Row& row : rows) {
    const TempFolder own;
    options_.out_dir = own.path();
    plan_.runs = {a_run("a", row.ranks, row.kind, row.script, row.timeout_s, row.start),
                  a_run("b", 1, Backend::emulated)};
    plan_.runs[0].config.watch.slow_s = 0.7;
    plan_.runs[0].hash = config_hash(plan_.runs[0].config);
    const LaunchReport report = launch_all();
    const std::string said = support::outcome(report);
    EXPECT_EQ(report.failures.size(), 1U) << row.script;
    EXPECT_THAT(said, testing::StartsWith("1 finished, 0 requeued\na ")) << "another run goes on";
    for (const char* words : row.says) EXPECT_THAT(said, HasSubstr(words)) << row.script;
    EXPECT_FALSE(std::filesystem::exists(own / "runs/a/done"));
    support::expect_no_orphan(own / "runs/a", row.kind == Backend::emulated ? 1 : row.ranks);
  }
}

/// A rank sleeps, is in a loop, or waits in a collective that nobody leaves: its stack is taken before anybody ends it.
TEST_F(Launcher, SaysWhereAHungRankIs) {
  struct Case {
    const char *script, *function;
    FailureKind kind = FailureKind::hung;
  };
  for (const Case& each : {Case{"all:wait 1:hang", "wait_for_ever"}, Case{"all:wait 1:compute", "compute_for_ever", FailureKind::slow},
                           Case{"all:wait", "wait_for_ever"}}) {
    plan_.runs = {a_run("a", 3, Backend::gloo, each.script)};
    plan_.runs[0].config.timeout_s = 0.3;
    plan_.runs[0].config.watch.slow_s = 0.5;
    const LaunchReport report = launch_all();
    ASSERT_EQ(report.failures.size(), 1U) << each.script;
    const RankFailure& failure = report.failures[0];
    EXPECT_EQ(failure.kind, each.kind);
    const std::string file = read_text(folder_ / ("runs/a/stacks-" + std::to_string(failure.rank) + ".txt"));
    if (stack_command(::getpid()).empty()) {
      EXPECT_THAT(failure.message, HasSubstr("none of eu-stack"));
      continue;
    }
    EXPECT_THAT(file, HasSubstr(each.function)) << each.script;
    EXPECT_THAT(failure.message, HasSubstr("its first thread is in")) << each.script;
    EXPECT_THAT(failure.message, HasSubstr(each.function)) << each.script;
  }
}

TEST_F(Launcher, TellsOfARankThatComputesLongAndWaitsForIt) {
  plan_.runs = {a_run("a", 1, Backend::emulated, "0:labour", 0.2)};
  EXPECT_EQ(support::outcome(launch_all()), "1 finished, 0 requeued");
  EXPECT_THAT(events_, Contains(std::pair(RunEvent::Kind::slow, std::string("a"))));
}

TEST_F(Launcher, SaysThatNoToolForStacksIsThere) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  plan_.runs = {a_run("a", 3, Backend::gloo, "all:wait 0:hang", 0.2)};
  const std::string said = support::outcome(launch_all());
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_THAT(said, testing::AllOf(HasSubstr("rank 0, "), HasSubstr("none of eu-stack (package elfutils), gdb and py-spy is installed; install one")));
}

TEST_F(Launcher, NamesTheNeedThatFailed) {
  plan_.runs = {a_run("a", 1, Backend::emulated, "0:throw"), a_run("b", 1, Backend::emulated),
                a_run("c", 1, Backend::emulated)};
  plan_.runs[1].needs = {"a"};
  EXPECT_THAT(support::outcome(launch_all()), testing::EndsWith("\nb not started, rank -1, step -1, : it needs a, which failed"));
  EXPECT_TRUE(done("c"));
  EXPECT_THAT(started_order(), UnorderedElementsAre("a", "c"));
}

/// Asks for a stop once both ranks of run `a` have reported that they wait.
class InterruptedLauncher : public Launcher {
 protected:
  void interrupt_with(int wish, const std::string& run = "a") {
    options_.jobs = 1;
    options_.stop_requested = &stop_;
    options_.on_event = [this, wish, run](const RunEvent& event) {
      if (event.kind == RunEvent::Kind::progress && event.run == run) stop_ = wish;
    };
  }
  volatile int stop_ = 0;
};

TEST_F(InterruptedLauncher, LeavesWhatIsFinishedAndResumes) {
  plan_.runs = {a_run("first", 1, Backend::emulated), a_run("a", 2, Backend::emulated, "all:wait"),
                a_run("later", 1, Backend::emulated)};
  plan_.runs[0].estimate_s = 9;
  plan_.runs[1].estimate_s = 5;
  interrupt_with(1);
  EXPECT_THAT(support::outcome(launch_all()), testing::StartsWith("1 finished, 0 requeued, interrupted\na interrupted"));
  EXPECT_TRUE(done("first"));
  EXPECT_FALSE(done("a"));
  EXPECT_THAT(started_order(), ElementsAre("first", "a"));
  expect_no_orphan("a", 1);

  options_.stop_requested = nullptr;
  plan_.runs[0].reused = true;
  plan_.runs[1].cell = "";
  const LaunchReport resumed = launch_all();
  EXPECT_FALSE(resumed.interrupted);
  EXPECT_EQ(resumed.reused, 1);
  EXPECT_EQ(resumed.finished, 2);
  EXPECT_TRUE(done("a"));
  EXPECT_THAT(started_order(), ElementsAre("first", "a", "later")) << "a was done again, first was not";
}

TEST_F(InterruptedLauncher, KillsRanksThatIgnoreTheRequestAndAtOnceWhenAskedTwice) {
  for (const int wish : {1, 2}) {
    if (wish == 2) options_.kill_grace_s = 1e6;
    const std::string id = wish == 1 ? "once" : "twice";
    plan_.runs = {a_run(id, 2, Backend::gloo, "all:ignore_term")};
    stop_ = 0;
    interrupt_with(wish, id);
    EXPECT_TRUE(launch_all().interrupted);
    expect_no_orphan(id, 2);
  }
}

TEST_F(Launcher, SaysThatThereIsNoRankProgramOrHowItsParentEndedThatCannotServe) {
  plan_.runs = {a_run("a", 1, Backend::emulated)};
  for (const auto& [program, words] :
       {std::pair{"/nowhere/lockstep-rank", "/nowhere/lockstep-rank"}, {"/bin/false", "exit status 1"}}) {
    options_.rank_program = program;
    EXPECT_THAT([this] { launch_all(); }, ThrowsMessage<MachineError>(HasSubstr(words)));
  }
}

TEST_F(Launcher, StopsWhereARankFindsTheDiskFull) {
  plan_.runs = {a_run("a", 2, Backend::gloo, "all:wait 1:full")};
  EXPECT_THROW(launch_all(), MachineError);
  expect_no_orphan("a", 2);
}

TEST_F(Launcher, SaysWhichFileCannotBeWritten) {
  plan_.runs = {a_run("a", 1, Backend::emulated)};
  const pid_t child = ::fork();
  if (child == 0) {
    // Files of this process can hold nothing any more, as on a full disk.
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &none);
    try {
      launch_all();
    } catch (const MachineError& error) {
      ::_exit(std::string(error.what()).find("run.json") != std::string::npos ? 0 : 2);
    }
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

/// Ranks must not outlive a lockstep that nobody asked before it was killed.
TEST_F(Launcher, TakesItsRanksWithItWhenItIsKilled) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // so that their ends can be waited for here
  plan_.runs = {a_run("a", 3, Backend::gloo, "all:ignore_term")};
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  options_.on_event = [&](const RunEvent& event) {
    if (event.kind == RunEvent::Kind::progress && ::write(ends[1], "!", 1) != 1) ::_exit(1);
  };
  const pid_t lockstep = ::fork();
  if (lockstep == 0) {
    launch_all();
    ::_exit(0);
  }
  pollfd wait{ends[0], POLLIN, 0};
  ASSERT_EQ(::poll(&wait, 1, 30000), 1) << "the ranks have not started";
  ASSERT_EQ(::kill(lockstep, SIGKILL), 0);
  ::alarm(30);  // ends this test if a rank does not die
  // Who dies without a parent becomes a child of this test: once it has none, nobody is left.
  int dead = 0;
  while (::wait(nullptr) > 0) ++dead;
  EXPECT_EQ(errno, ECHILD);
  ::alarm(0);
  EXPECT_GE(dead, 2) << "lockstep and the parent, which may have reaped its ranks itself";
  expect_no_orphan("a", 3);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

// What a rank on another host tells lockstep, and what happens when their connection breaks.

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
