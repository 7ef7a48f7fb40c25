// Ranks that lockstep does not start itself: by a command of somebody else's, and by agents on nodes.

#include <gmock/gmock.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "harness/base/errors.h"
#include "harness/run/launch.h"
#include "harness/run/launchers/external/launcher.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/slurm/agents.h"
#include "harness/run/process_state.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/trace/rank_result.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::ThrowsMessage;

const char* const kFakeRank = LOCKSTEP_BINARY_DIR "/bin/fake_rank";

PlannedRun a_run(const std::string& id, int ranks, Backend kind, const std::string& script = "") {
  PlannedRun run;
  run.id = id;
  run.cell = script;
  run.config.layout = {ranks, 3};
  run.config.backend = kind;
  run.config.steps = 5;
  run.hash = config_hash(run.config);
  run.estimate_s = 1;
  return run;
}

/// A shell that starts the ranks one after the other and waits for them, as any launcher does.
std::vector<std::string> by_shell(const std::string& each = "", const std::string& end = "wait", const std::string& options = "") {
  return {"sh", "-c",
          "r=0; while [ $r -lt {ranks} ]; do LOCKSTEP_RANK_ID=$r LOCKSTEP_WORLD_SIZE={ranks} {rank_program} run {run} --prepared "
          "--within 20 " + options + " & " + each + " r=$((r+1)); done; " + end};
}

class ExternalLaunchers : public testing::Test {
 protected:
  ExternalLaunchers() {
    options_.rank_program = kFakeRank;
    options_.out_dir = folder_.path();
    options_.jobs = 4;
    options_.kill_grace_s = 0.5;
    options_.on_event = [this](const RunEvent& event) {
      events_.push_back(event.kind);
      if (event.failure != nullptr) said_.push_back(event.failure->message);
    };
  }
  LaunchReport launch_by(const std::vector<std::string>& command) {
    options_.make_launcher = [command] { return std::make_unique<ExternalLauncher>(kFakeRank, command); };
    return launch(plan_, options_, identity_);
  }
  LaunchReport launch_by_agents(const std::vector<std::string>& command, int agents) {
    options_.make_launcher = [=, this] {
      return std::make_unique<AgentLauncher>(kFakeRank, command, agents, folder_.path());
    };
    return launch(plan_, options_, identity_);
  }
  std::string in_run(const std::string& file) const { return folder_ / ("runs/a/" + file); }
  void expect_no_orphan() const {
    std::istringstream lines(read_text(in_run("pids")));
    for (pid_t pid; lines >> pid;) EXPECT_TRUE(::kill(pid, 0) != 0 && errno == ESRCH) << "process " << pid << " is still there";
  }

  const TempFolder folder_;
  Plan plan_;
  LaunchOptions options_;
  BuildIdentity identity_{"b", "t", "i", "d"};
  std::vector<RunEvent::Kind> events_;
  std::vector<std::string> said_;
};

TEST_F(ExternalLaunchers, RunEveryRankAndLeaveWhatTheLocalLauncherLeaves) {
  plan_.runs = {a_run("a", 3, Backend::gloo), a_run("b", 1, Backend::gloo)};
  const LaunchReport report = launch_by(by_shell());
  EXPECT_EQ(report.finished, 2);
  EXPECT_TRUE(report.failures.empty());
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(read_rank_result(rank_result_path(folder_ / "runs/a", rank)).status, "finished");
    EXPECT_EQ(read_exit(folder_ / "runs/a", rank)->code, 0);
    const Arrival told = read_arrival(folder_ / "runs/a", rank);
    EXPECT_EQ(told.rank_environment, "lockstep");
    EXPECT_FALSE(told.build.empty());
    EXPECT_FALSE(told.isa.empty());
    EXPECT_FALSE(told.host.empty());
  }
  EXPECT_TRUE(std::filesystem::exists(in_run("done")));
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, TellADeadRankByItsOwnProcessNotByTheirExit) {
  plan_.runs = {a_run("a", 3, Backend::gloo, "all:wait 1:die")};
  const LaunchReport report = launch_by(by_shell("", "wait; exit 0"));
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].kind, FailureKind::died);
  EXPECT_EQ(report.failures[0].rank, 1);
  EXPECT_EQ(report.failures[0].message, "killed by signal 9 (SIGKILL)");
  EXPECT_EQ(report.requeued, 0);
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, AreNotBlamedForWhatARankThrows) {
  plan_.runs = {a_run("a", 3, Backend::gloo, "0:lose 1:wait 2:throw")};
  const LaunchReport report = launch_by(by_shell());
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].kind, FailureKind::threw);
  EXPECT_EQ(report.failures[0].rank, 2);
  EXPECT_EQ(report.failures[0].message, "no such tensor: head.weight");
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, ThatBringAnotherWorldAreToldSo) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  EXPECT_THAT([this] { launch_by({"sh", "-c", "LOCKSTEP_RANK_ID=0 LOCKSTEP_WORLD_SIZE=2 {rank_program} run {run} --prepared"}); },
              ThrowsMessage<MachineError>(AllOf(HasSubstr("status 2"), HasSubstr("brings 2 processes and this run wants 3"))));
}

TEST_F(ExternalLaunchers, WhoseJobIsTooSmallAreToldWhatToAskFor) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  EXPECT_THAT([this] { launch_by({"sh", "-c", "echo 'srun: error: More processors requested than permitted'; exit 1 # {rank_program} {run}"}); },
              ThrowsMessage<MachineError>(AllOf(HasSubstr("fewer than 3 tasks"), HasSubstr("salloc -n 3"))));
}

TEST_F(ExternalLaunchers, WhoseRankDoesNotComeAreNamedWithIt) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  const LaunchReport report = launch_by(
      {"sh", "-c", "for r in 0 2; do LOCKSTEP_RANK_ID=$r LOCKSTEP_WORLD_SIZE=3 {rank_program} run {run} --prepared --within 0.3 & done; wait"});
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_THAT(read_rank_result(rank_result_path(folder_ / "runs/a", 0)).error, HasSubstr("a rank of 3 did not come in time: rank 1."));
  EXPECT_THAT(said_, Contains(HasSubstr("did not come in time")));
}

TEST_F(ExternalLaunchers, ThatStartNothingEndTheMatrix) {
  plan_.runs = {a_run("a", 2, Backend::gloo)};
  EXPECT_THAT([this] { launch_by({"sh", "-c", "echo no such partition; exit 3 # {rank_program} {run}"}); },
              ThrowsMessage<MachineError>(AllOf(HasSubstr("its ranks cannot be started"), HasSubstr("status 3; no such partition"))));
  EXPECT_THAT([this] { launch_by({"no-such-launcher"}); }, ThrowsMessage<ConfigError>(HasSubstr("there is no program no-such-launcher")));
}

TEST_F(ExternalLaunchers, LoseARankAndItsRunIsQueuedAgain) {
  plan_.runs = {a_run("a", 2, Backend::gloo)};
  options_.kill_grace_s = 5;
  // The first time the process that has forked rank 1 is killed when its rank is there: nobody sees the rank's end.
  const std::string kill =
      "if [ $r = 1 ] && [ ! -e {run}/../lost ]; then touch {run}/../lost; "
      "(while [ ! -e {run}/rank-1.log ] || ! grep -q about {run}/rank-1.log; do :; done; kill -9 $!) & fi;";
  std::vector<std::string> command = by_shell(kill);
  command[2] = "[ -e {run}/../lost ] || export FAKE_RANKS='0:lose 1:wait'; " + command[2];
  const LaunchReport report = launch_by(command);
  EXPECT_EQ(report.finished, 1);
  EXPECT_EQ(report.requeued, 1);
  EXPECT_THAT(events_, Contains(RunEvent::Kind::requeued));
  EXPECT_TRUE(std::filesystem::exists(in_run("done")));
  expect_no_orphan();
}

/// The same command, whose first attempt has other ranks, and is disturbed when rank `seen` is there.
std::vector<std::string> disturbed_once(std::vector<std::string> command, const std::string& ranks, int seen, const std::string& how) {
  const std::string log = "{run}/rank-" + std::to_string(seen) + ".log";
  command[2] = "if [ ! -e {run}/../disturbed ]; then touch {run}/../disturbed; export FAKE_RANKS='" + ranks + "'; (while [ ! -e " + log +
               " ] || ! grep -q about " + log + " || grep -q '\"process\": 0,' {run}/rank-" + std::to_string(seen) + ".start.json; do sleep 0.01; done; " + how + ") & fi; " + command[2];
  return command;
}

/// Of the process that has forked a rank.
std::string parent_of(int rank) { return "$(sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p' {run}/rank-" + std::to_string(rank) + ".start.json)"; }

TEST_F(ExternalLaunchers, ThatAreKilledLoseTheirRunWhichIsQueuedAgain) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  std::vector<std::string> command = by_shell();
  // In a group of its own each rank outlives the launcher.
  command[2].replace(command[2].find("{rank_program}"), 0, "setsid ");
  const LaunchReport report = launch_by(disturbed_once(command, "all:wait", 2, "kill -9 $$"));
  EXPECT_EQ(report.finished, 1) << testing::PrintToString(said_);
  EXPECT_EQ(report.requeued, 1);
  EXPECT_THAT(said_, testing::ElementsAre(HasSubstr("its launcher was killed by signal 9")));
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, LoseARankWhoseProcessesAreGoneThoughTheLauncherStays) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  std::vector<std::string> command = by_shell();
  command[2] += "; [ $first ] && sleep 1.5";  // it notices later than lockstep that its ranks are gone
  command[2] = "[ -e {run}/../disturbed ] || first=1; " + command[2];
  const LaunchReport report = launch_by(disturbed_once(command, "0:lose all:wait", 2, "kill -9 " + parent_of(2)));
  EXPECT_EQ(report.finished, 1) << testing::PrintToString(said_);
  EXPECT_EQ(report.requeued, 1);
  EXPECT_THAT(said_, testing::ElementsAre(HasSubstr("there is no such process any more")));
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, DoNotCallARunLostInWhichARankDied) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  const LaunchReport report = launch_by(disturbed_once(by_shell(), "0:throw all:wait", 2, "kill -9 " + parent_of(2)));
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].rank, 0);
  EXPECT_EQ(report.failures[0].kind, FailureKind::threw);
  EXPECT_EQ(report.requeued, 0);
}

TEST_F(ExternalLaunchers, AreStoppedWithAllTheirRanks) {
  plan_.runs = {a_run("a", 3, Backend::gloo, "all:wait")};
  static volatile int stop = 0;
  stop = 0;
  options_.stop_requested = &stop;
  options_.on_event = [](const RunEvent& event) {
    if (event.kind == RunEvent::Kind::progress) stop = 1;
  };
  const LaunchReport report = launch_by(by_shell());
  EXPECT_TRUE(report.interrupted);
  expect_no_orphan();
}

/// Each rank on a host of its own, by name and address: what it writes into its file of heartbeats lockstep does not see.
std::vector<std::string> on_hosts(const std::string& options = "") {
  std::vector<std::string> command = by_shell("", "wait", options);
  command[2].replace(command[2].find("do ") + 3, 0, "export LOCKSTEP_HOST=h$r LOCKSTEP_ADDRESS=127.0.0.$((r+2)); ");
  return command;
}

TEST_F(ExternalLaunchers, OnThisHostTellOfRanksThatHangAndWhereTheyAre) {
  plan_.runs = {a_run("a", 3, Backend::gloo, "1:hang all:wait")};
  plan_.runs[0].config.timeout_s = 0.5;
  plan_.runs[0].hash = config_hash(plan_.runs[0].config);
  options_.hang_grace_s = 0.1;
  const LaunchReport report = launch_by(by_shell());
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].kind, FailureKind::hung);
  EXPECT_EQ(report.failures[0].rank, 1);
  EXPECT_THAT(report.failures[0].message, testing::Not(HasSubstr("it runs on")));
  if (!stack_command(::getpid()).empty()) {
    EXPECT_THAT(report.failures[0].message, HasSubstr("wait_for_ever"));
    EXPECT_THAT(read_text(in_run("stacks-1.txt")), HasSubstr("wait_for_ever"));
  }
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, OnOtherHostsTellOfRanksThatHang) {
  plan_.runs = {a_run("a", 4, Backend::gloo, "3:stop all:wait")};
  plan_.runs[0].config.timeout_s = 0.5;
  plan_.runs[0].hash = config_hash(plan_.runs[0].config);
  options_.hang_grace_s = 0.1;
  const LaunchReport report = launch_by(on_hosts());
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].kind, FailureKind::hung);
  EXPECT_EQ(report.failures[0].rank, 3);
  EXPECT_EQ(report.failures[0].step, 3);
  EXPECT_THAT(report.failures[0].message, AllOf(HasSubstr("its process is stopped by a signal"), HasSubstr("it runs on host h3 (process ")));
  const std::string addresses = read_text(in_run("addresses"));
  for (const char* line : {"0 127.0.0.2 heartbeat-rank-0", "3 127.0.0.5 heartbeat-rank-3"}) EXPECT_THAT(addresses, HasSubstr(line));
  for (const char* left : {"heartbeat-rank-0", "heartbeat-rank-3", "watcher.json"}) EXPECT_FALSE(std::filesystem::exists(in_run(left))) << left;
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, NameTheLinkToAHostOfWhichNothingIsHeard) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  options_.kill_grace_s = 2;
  const LaunchReport report = launch_by(disturbed_once(on_hosts(), "1:lose all:wait", 2, "kill -STOP " + parent_of(2)));
  EXPECT_EQ(report.finished, 1) << testing::PrintToString(said_);
  EXPECT_EQ(report.requeued, 1);
  EXPECT_THAT(said_, testing::ElementsAre(AllOf(HasSubstr("nothing was heard from host h2 (process "), HasSubstr("the link to host h2 is cut"))));
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, OnOtherHostsAreSilentOnRanksThatWork) {
  for (const char* id : {"a", "b"}) {
    plan_.runs.push_back(a_run(id, 4, Backend::gloo));
    plan_.runs.back().config.timeout_s = 0.5;
    plan_.runs.back().hash = config_hash(plan_.runs.back().config);
  }
  EXPECT_EQ(launch_by(on_hosts()).finished, 2);
  for (const char* left : {"heartbeat-rank-0", "watcher.json"}) EXPECT_FALSE(std::filesystem::exists(in_run(left))) << left;
}

TEST_F(ExternalLaunchers, OnHostsThatCannotTellLockstepSaySoAndAreNotJudged) {
  plan_.runs = {a_run("a", 2, Backend::gloo, "1:stop all:wait")};
  plan_.runs[0].config.timeout_s = 0.1;
  plan_.runs[0].hash = config_hash(plan_.runs[0].config);
  options_.hang_grace_s = 0.05;
  ::setenv("LOCKSTEP_ADDRESS", "255.255.255.255", 1);  // which nothing reaches
  std::vector<std::string> command = on_hosts();
  // Five thresholds later somebody ends them.
  command[2].replace(command[2].rfind("wait"), 4, "sleep 0.8; kill -9 $(cat {run}/pids); wait");
  const LaunchReport report = launch_by(command);
  ::unsetenv("LOCKSTEP_ADDRESS");
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].kind, FailureKind::died) << report.failures[0].message;
  EXPECT_THAT(read_text(in_run("launcher.log")),
              AllOf(HasSubstr("rank 1 (host h1) cannot tell lockstep"), HasSubstr("Network is unreachable"), HasSubstr("set LOCKSTEP_ADDRESS where lockstep runs")));
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, WhoseRankCannotReachRankZeroEndAtOnceAndNameIt) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  std::vector<std::string> command = on_hosts();
  command[2].replace(command[2].find("127.0.0.$((r+2))"), 16, "255.255.255.255");
  const LaunchReport report = launch_by(command);
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].kind, FailureKind::threw);
  EXPECT_THAT(report.failures[0].message, AllOf(HasSubstr("cannot reach it: Network is unreachable"), HasSubstr("Set LOCKSTEP_ADDRESS")));
  EXPECT_EQ(read_exit(folder_ / "runs/a", 0)->code, 4);
  EXPECT_THAT(read_rank_result(rank_result_path(folder_ / "runs/a", 0)).error, HasSubstr("has left: rank 0 (host h0) listens at 255.255.255.255:"));
  expect_no_orphan();
}

// Agents.

std::vector<std::string> agents_by_shell(int agents, const std::string& more = "wait") {
  std::string script;
  for (int i = 1; i <= agents; ++i)
    script += "SLURMD_NODENAME=n" + std::to_string(i) + " SLURM_CPUS_ON_NODE=2 {rank_program} --agent {place} {key} & ";
  return {"sh", "-c", script + more};
}

TEST_F(ExternalLaunchers, OfAgentsShareTheRanksOut) {
  for (const char* id : {"a", "b", "c"}) plan_.runs.push_back(a_run(id, 4, Backend::gloo));
  plan_.runs.push_back(a_run("d", 3, Backend::emulated));
  const LaunchReport report = launch_by_agents(agents_by_shell(2), 2);
  EXPECT_EQ(report.finished, 4);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(read_rank_result(rank_result_path(folder_ / "runs/a", rank)).status, "finished");
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, OfAgentsLoseANodeAndGoOnWithTheOthers) {
  plan_.runs = {a_run("a", 4, Backend::gloo, "all:wait")};
  plan_.runs[0].config.timeout_s = 0.5;
  plan_.runs[0].hash = config_hash(plan_.runs[0].config);
  options_.hang_grace_s = 0.1;
  // Its ranks wait for ever. The node that holds the later ones is killed when they are all there; the second attempt, on
  // the other node alone, is ended as one that hangs.
  static pid_t victim = 0;
  victim = 0;
  options_.most_requeues = 1;
  options_.on_event = [this](const RunEvent& event) {
    events_.push_back(event.kind);
    if (event.failure != nullptr) said_.push_back(event.failure->message);
    if (event.kind == RunEvent::Kind::progress && victim == 0) {
      std::istringstream pids(read_text(folder_ / "agent2"));
      pids >> victim;
      ::kill(victim, SIGKILL);
    }
  };
  const LaunchReport report = launch_by_agents(
      {"sh", "-c",
       "SLURMD_NODENAME=n1 SLURM_CPUS_ON_NODE=2 {rank_program} --agent {place} {key} & "
       "SLURMD_NODENAME=n2 SLURM_CPUS_ON_NODE=2 {rank_program} --agent {place} {key} & echo $! >" + (folder_ / "agent2") + "; wait"},
      2);
  EXPECT_EQ(report.requeued, 1);
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].kind, FailureKind::hung);
  EXPECT_THAT(said_, Contains(AllOf(HasSubstr("node n2"), HasSubstr("is gone"), HasSubstr("it held ranks 2 to 3 of this run"))));
  EXPECT_THAT(events_, Contains(RunEvent::Kind::node_lost));
  EXPECT_THAT(said_, Contains(HasSubstr("it held ranks 2 to 3 of a")));
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, OfAgentsThatAreAllGoneAreStartedAgain) {
  plan_.runs = {a_run("a", 2, Backend::gloo)};
  const std::string once = folder_ / "once", agent = "SLURMD_NODENAME=n1 SLURM_CPUS_ON_NODE=2 {rank_program} --agent {place} {key} & ";
  const LaunchReport report = launch_by_agents(
      {"sh", "-c", "if [ -e " + once + " ]; then " + agent + "wait; exit; fi; touch " + once + "; export FAKE_RANKS=all:wait; " + agent + "while ! grep -q about " +
                       in_run("rank-0.log") + "; do sleep 0.01; done; kill -9 $!; wait"},
      1);
  EXPECT_EQ(report.finished, 1) << testing::PrintToString(said_);
  EXPECT_EQ(report.requeued, 1);
  EXPECT_THAT(events_, Contains(RunEvent::Kind::node_lost));
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, OfAgentsThatHaveNotComeStopARunThatWaitsForThem) {
  AgentLauncher launcher(kFakeRank, agents_by_shell(1, "wait"), 2, folder_.path());
  launcher.start({"a", folder_.path(), 2, 2});
  launcher.stop("a", SIGTERM);
  std::vector<int> ended;
  for (const LauncherEvent& event : launcher.poll(0))
    if (event.kind == LauncherEvent::Kind::exit && event.signal == SIGTERM && event.told) ended.push_back(event.rank);
  EXPECT_THAT(ended, testing::ElementsAre(0, 1));
}

// Hosts of other names, each with an address of its own: ranks there write their heartbeats into memory that lockstep does not see.

std::vector<std::string> agents_on_hosts(const std::vector<std::string>& hosts) {
  std::string script;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::string number = std::to_string(i + 2);
    script += "LOCKSTEP_HOST=" + hosts[i] + " LOCKSTEP_ADDRESS=127.0.0." + number + " SLURMD_NODENAME=n" + number +
              " SLURM_CPUS_ON_NODE=2 {rank_program} --agent {place} {key} & ";
  }
  return {"sh", "-c", script + "wait"};
}

TEST_F(ExternalLaunchers, OfAgentsOnSeveralHostsGiveEachRankItsOwnAddress) {
  for (const ProcessStart start : {ProcessStart::forked, ProcessStart::executed}) {
    const TempFolder folder;
    options_.out_dir = folder.path();
    plan_.runs = {a_run("a", 4, Backend::gloo)};
    plan_.runs[0].config.process_start = start;
    plan_.runs[0].hash = config_hash(plan_.runs[0].config);
    EXPECT_EQ(launch_by_agents(agents_on_hosts({"b", "c"}), 2).finished, 1);
    const std::string addresses = read_text(folder / "runs/a/addresses");
    for (const char* line : {"0 127.0.0.2 heartbeat-n2", "1 127.0.0.2 heartbeat-n2", "2 127.0.0.3 heartbeat-n3", "3 127.0.0.3 heartbeat-n3"})
      EXPECT_THAT(addresses, HasSubstr(line)) << (start == ProcessStart::executed ? "executed" : "forked");
    EXPECT_FALSE(std::filesystem::exists(folder / "runs/a/heartbeat-n2"));
    EXPECT_FALSE(std::filesystem::exists(folder / "runs/a/heartbeat-n3"));
  }
}

TEST_F(ExternalLaunchers, OfAgentsOnAnotherHostTellOfRanksThatHang) {
  plan_.runs = {a_run("a", 4, Backend::gloo, "3:stop all:wait")};
  plan_.runs[0].config.timeout_s = 0.5;
  plan_.runs[0].hash = config_hash(plan_.runs[0].config);
  options_.hang_grace_s = 0.1;
  const LaunchReport report = launch_by_agents(agents_on_hosts({"b", "c"}), 2);
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].kind, FailureKind::hung);
  EXPECT_EQ(report.failures[0].rank, 3);
  EXPECT_EQ(report.failures[0].step, 3);
  EXPECT_THAT(report.failures[0].message, AllOf(HasSubstr("its process is stopped by a signal"), HasSubstr("it runs on node n3")));
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, OfAgentsWithARankEachTellOfThatRankAlone) {
  plan_.runs = {a_run("a", 2, Backend::gloo, "1:stop all:wait")};
  plan_.runs[0].config.timeout_s = 0.5;
  plan_.runs[0].hash = config_hash(plan_.runs[0].config);
  options_.hang_grace_s = 0.1;
  std::vector<std::string> command = agents_on_hosts({"b", "c"});
  for (std::size_t at = 0; (at = command[2].find("ON_NODE=2", at)) != std::string::npos;) command[2].replace(at, 9, "ON_NODE=1");
  const LaunchReport report = launch_by_agents(command, 2);
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].rank, 1);
  EXPECT_THAT(report.failures[0].message, AllOf(HasSubstr("its process is stopped by a signal"), HasSubstr("it runs on node n3")));
  expect_no_orphan();
}

TEST_F(ExternalLaunchers, OfAgentsOnAnotherHostAreSilentOnRanksThatWork) {
  for (const char* id : {"a", "b"}) {
    plan_.runs.push_back(a_run(id, 4, Backend::gloo));
    plan_.runs.back().config.timeout_s = 0.5;
    plan_.runs.back().hash = config_hash(plan_.runs.back().config);
  }
  EXPECT_EQ(launch_by_agents(agents_on_hosts({"b", "c"}), 2).finished, 2);
}

TEST_F(ExternalLaunchers, OfAgentsThatDoNotComeAreNamed) {
  plan_.runs = {a_run("a", 2, Backend::gloo)};
  EXPECT_THAT([this] { launch_by_agents({"sh", "-c", "echo no nodes left; exit 4"}, 2); },
              ThrowsMessage<MachineError>(AllOf(HasSubstr("0 of 2 agents have come"), HasSubstr("status 4"), HasSubstr("no nodes left"))));
}

TEST_F(ExternalLaunchers, OfAgentsTakeNoStrangers) {
  plan_.runs = {a_run("a", 2, Backend::gloo)};
  const LaunchReport report =
      launch_by_agents({"sh", "-c", "{rank_program} --agent {place} not-the-key; {rank_program} --agent {place} {key}"}, 1);
  EXPECT_EQ(report.finished, 1);
}

}  // namespace
}  // namespace lockstep
