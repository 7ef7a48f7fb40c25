#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "harness/base/text.h"
#include "harness/jobs/parent.h"
#include "harness/jobs/started.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/run/launch.h"
#include "harness/run/launchers/external/launcher.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/local/protocol.h"
#include "harness/run/launchers/slurm/agents.h"
#include "harness/run/process_state.h"
#include "harness/run/run_folder.h"
#include "tests/support/launched.h"
#include "tests/support/temp_folder.h"

// Ranks that lockstep does not start itself: by a command of somebody else's, and by agents on nodes.

namespace lockstep {
namespace {

using support::a_run;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::ThrowsMessage;

const char* const kFakeRank = LOCKSTEP_BINARY_DIR "/bin/fake_rank";

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
  void expect_no_orphan() const { support::expect_no_orphan(folder_ / "runs/a"); }
  /// The outcome (support/launched.h) has those words, and no rank is left.
  void expect(const LaunchReport& report, const std::vector<const char*>& says) const {
    for (const char* words : says)
      EXPECT_THAT(support::outcome(report), HasSubstr(words)) << testing::PrintToString(said_);
    expect_no_orphan();
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
  expect(launch_by(by_shell()), {"2 finished, 0 requeued"});
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
}

TEST_F(ExternalLaunchers, TellADeadRankByItsOwnProcessNotByTheirExit) {
  plan_.runs = {a_run("a", 3, Backend::gloo, "all:wait 1:die")};
  expect(launch_by(by_shell("", "wait; exit 0")),
         {"0 finished, 0 requeued\na died, rank 1, ", ": killed by signal 9 (SIGKILL)\n"});
}

TEST_F(ExternalLaunchers, AreNotBlamedForWhatARankThrows) {
  plan_.runs = {a_run("a", 3, Backend::gloo, "0:lose 1:wait 2:throw")};
  expect(launch_by(by_shell()), {"\na threw, rank 2, ", ": no such tensor: head.weight\n"});
}
TEST_F(ExternalLaunchers, ThatCannotStartTheRanksEndTheMatrixAndSayWhy) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  const std::pair<const char*, std::vector<const char*>> rows[] = {
      {"LOCKSTEP_RANK_ID=0 LOCKSTEP_WORLD_SIZE=2 {rank_program} run {run} --prepared",
       {"status 2", "brings 2 processes and this run wants 3"}},
      {"echo 'srun: error: More processors requested than permitted'; exit 1 # {rank_program} {run}",
       {"fewer than 3 tasks", "salloc -n 3"}},
      {"echo no such partition; exit 3 # {rank_program} {run}",
       {"its ranks cannot be started", "status 3; no such partition"}},
  };
  for (const auto& [script, says] : rows) {
    for (const char* words : says)
      EXPECT_THAT([&] { launch_by({"sh", "-c", script}); }, ThrowsMessage<MachineError>(HasSubstr(words)));
  }
  EXPECT_THAT([this] { launch_by({"no-such-launcher"}); }, ThrowsMessage<ConfigError>(HasSubstr("there is no program no-such-launcher")));
}
TEST_F(ExternalLaunchers, WhoseRankDoesNotComeAreNamedWithIt) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  const LaunchReport report = launch_by(
      {"sh", "-c", "for r in 0 2; do LOCKSTEP_RANK_ID=$r LOCKSTEP_WORLD_SIZE=3 {rank_program} run {run} --prepared --within 0.3 & done; wait"});
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_THAT(read_rank_result(rank_result_path(folder_ / "runs/a", 0)).error, HasSubstr("a rank of 3 did not come in time: rank 1."));
  EXPECT_THAT(said_, Contains(HasSubstr("did not come in time")));
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
  expect(launch_by(command), {"1 finished, 1 requeued"});
  EXPECT_THAT(events_, Contains(RunEvent::Kind::requeued));
  EXPECT_TRUE(std::filesystem::exists(in_run("done")));
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
  expect(launch_by(disturbed_once(command, "all:wait", 2, "kill -9 $$")), {"1 finished, 1 requeued"});
  EXPECT_THAT(said_, testing::ElementsAre(HasSubstr("its launcher was killed by signal 9")));
}

TEST_F(ExternalLaunchers, LoseARankWhoseProcessesAreGoneThoughTheLauncherStays) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  std::vector<std::string> command = by_shell();
  command[2] += "; [ $first ] && sleep 1.5";  // it notices later than lockstep that its ranks are gone
  command[2] = "[ -e {run}/../disturbed ] || first=1; " + command[2];
  expect(launch_by(disturbed_once(command, "0:lose all:wait", 2, "kill -9 " + parent_of(2))),
         {"1 finished, 1 requeued"});
  EXPECT_THAT(said_, testing::ElementsAre(HasSubstr("there is no such process any more")));
}

TEST_F(ExternalLaunchers, DoNotCallARunLostInWhichARankDied) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  const LaunchReport report = launch_by(disturbed_once(by_shell(), "0:throw all:wait", 2, "kill -9 " + parent_of(2)));
  EXPECT_THAT(support::outcome(report), testing::StartsWith("0 finished, 0 requeued\na threw, rank 0, "));
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
  plan_.runs = {a_run("a", 3, Backend::gloo, "1:hang all:wait", 0.5)};
  options_.hang_grace_s = 0.1;
  const LaunchReport report = launch_by(by_shell());
  expect(report, {"\na hung, rank 1, "});
  EXPECT_THAT(report.failures[0].message, testing::Not(HasSubstr("it runs on")));
  if (!stack_command(::getpid()).empty()) {
    EXPECT_THAT(report.failures[0].message, HasSubstr("wait_for_ever"));
    EXPECT_THAT(read_text(in_run("stacks-1.txt")), HasSubstr("wait_for_ever"));
  }
}

TEST_F(ExternalLaunchers, OnOtherHostsTellOfRanksThatHang) {
  plan_.runs = {a_run("a", 4, Backend::gloo, "3:stop all:wait", 0.5)};
  options_.hang_grace_s = 0.1;
  expect(launch_by(on_hosts()),
         {"\na hung, rank 3, step 3, ", "its process is stopped by a signal", "it runs on host h3 (process "});
  const std::string addresses = read_text(in_run("addresses"));
  for (const char* line : {"0 127.0.0.2 heartbeat-rank-0", "3 127.0.0.5 heartbeat-rank-3"}) EXPECT_THAT(addresses, HasSubstr(line));
  for (const char* left : {"heartbeat-rank-0", "heartbeat-rank-3", "watcher.json"}) EXPECT_FALSE(std::filesystem::exists(in_run(left))) << left;
}

TEST_F(ExternalLaunchers, NameTheLinkToAHostOfWhichNothingIsHeard) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  options_.kill_grace_s = 2;
  expect(launch_by(disturbed_once(on_hosts(), "1:lose all:wait", 2, "kill -STOP " + parent_of(2))),
         {"1 finished, 1 requeued"});
  EXPECT_THAT(said_, testing::ElementsAre(AllOf(HasSubstr("nothing was heard from host h2 (process "), HasSubstr("the link to host h2 is cut"))));
}

TEST_F(ExternalLaunchers, OnOtherHostsAreSilentOnRanksThatWork) {
  for (const char* id : {"a", "b"}) plan_.runs.push_back(a_run(id, 4, Backend::gloo, "", 0.5));
  EXPECT_EQ(launch_by(on_hosts()).finished, 2);
  for (const char* left : {"heartbeat-rank-0", "watcher.json"}) EXPECT_FALSE(std::filesystem::exists(in_run(left))) << left;
}

TEST_F(ExternalLaunchers, OnHostsThatCannotTellLockstepSaySoAndAreNotJudged) {
  plan_.runs = {a_run("a", 2, Backend::gloo, "1:stop all:wait", 0.1)};
  options_.hang_grace_s = 0.05;
  ::setenv("LOCKSTEP_ADDRESS", "255.255.255.255", 1);  // which nothing reaches
  std::vector<std::string> command = on_hosts();
  // Five thresholds later somebody ends them.
  command[2].replace(command[2].rfind("wait"), 4, "sleep 0.8; kill -9 $(cat {run}/pids); wait");
  const LaunchReport report = launch_by(command);
  ::unsetenv("LOCKSTEP_ADDRESS");
  expect(report, {"\na died, "});
  EXPECT_THAT(read_text(in_run("launcher.log")),
              AllOf(HasSubstr("rank 1 (host h1) cannot tell lockstep"), HasSubstr("Network is unreachable"), HasSubstr("set LOCKSTEP_ADDRESS where lockstep runs")));
}

TEST_F(ExternalLaunchers, WhoseRankCannotReachRankZeroEndAtOnceAndNameIt) {
  plan_.runs = {a_run("a", 3, Backend::gloo)};
  std::vector<std::string> command = on_hosts();
  command[2].replace(command[2].find("127.0.0.$((r+2))"), 16, "255.255.255.255");
  expect(launch_by(command), {"\na threw, ", "cannot reach it: Network is unreachable", "Set LOCKSTEP_ADDRESS"});
  EXPECT_EQ(read_exit(folder_ / "runs/a", 0)->code, 4);
  EXPECT_THAT(read_rank_result(rank_result_path(folder_ / "runs/a", 0)).error, HasSubstr("has left: rank 0 (host h0) listens at 255.255.255.255:"));
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
  expect(launch_by_agents(agents_by_shell(2), 2), {"4 finished"});
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(read_rank_result(rank_result_path(folder_ / "runs/a", rank)).status, "finished");
}

TEST_F(ExternalLaunchers, OfAgentsLoseANodeAndGoOnWithTheOthers) {
  plan_.runs = {a_run("a", 4, Backend::gloo, "all:wait", 0.5)};
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
  expect(report, {"0 finished, 1 requeued\na hung, "});
  EXPECT_THAT(said_, Contains(AllOf(HasSubstr("node n2"), HasSubstr("is gone"), HasSubstr("it held ranks 2 to 3 of this run"))));
  EXPECT_THAT(events_, Contains(RunEvent::Kind::node_lost));
  EXPECT_THAT(said_, Contains(HasSubstr("it held ranks 2 to 3 of a")));
}

TEST_F(ExternalLaunchers, OfAgentsThatAreAllGoneAreStartedAgain) {
  plan_.runs = {a_run("a", 2, Backend::gloo)};
  const std::string once = folder_ / "once", agent = "SLURMD_NODENAME=n1 SLURM_CPUS_ON_NODE=2 {rank_program} --agent {place} {key} & ";
  const LaunchReport report = launch_by_agents(
      {"sh", "-c", "if [ -e " + once + " ]; then " + agent + "wait; exit; fi; touch " + once + "; export FAKE_RANKS=all:wait; " + agent + "while ! grep -q about " +
                       in_run("rank-0.log") + "; do sleep 0.01; done; kill -9 $!; wait"},
      1);
  expect(report, {"1 finished, 1 requeued"});
  EXPECT_THAT(events_, Contains(RunEvent::Kind::node_lost));
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
    plan_.runs = {a_run("a", 4, Backend::gloo, "", 0, start)};
    EXPECT_EQ(launch_by_agents(agents_on_hosts({"b", "c"}), 2).finished, 1);
    const std::string addresses = read_text(folder / "runs/a/addresses");
    for (const char* line : {"0 127.0.0.2 heartbeat-n2", "1 127.0.0.2 heartbeat-n2", "2 127.0.0.3 heartbeat-n3", "3 127.0.0.3 heartbeat-n3"})
      EXPECT_THAT(addresses, HasSubstr(line)) << (start == ProcessStart::executed ? "executed" : "forked");
    EXPECT_FALSE(std::filesystem::exists(folder / "runs/a/heartbeat-n2"));
    EXPECT_FALSE(std::filesystem::exists(folder / "runs/a/heartbeat-n3"));
  }
}

TEST_F(ExternalLaunchers, OfAgentsOnAnotherHostTellOfRanksThatHang) {
  options_.hang_grace_s = 0.1;
  plan_.runs = {a_run("a", 4, Backend::gloo, "3:stop all:wait", 0.5)};
  std::vector<std::string> command = agents_on_hosts({"b", "c"});
  const std::vector<const char*> stopped = {"its process is stopped by a signal", "it runs on node n3"};
  const LaunchReport of_two = launch_by_agents(command, 2);
  expect(of_two, stopped);
  expect(of_two, {"\na hung, rank 3, step 3, "});
  // With a rank each: of that rank alone.
  plan_.runs = {a_run("b", 2, Backend::gloo, "1:stop all:wait", 0.5)};
  for (std::size_t at = 0; (at = command[2].find("ON_NODE=2", at)) != std::string::npos;) command[2].replace(at, 9, "ON_NODE=1");
  const LaunchReport of_one = launch_by_agents(command, 2);
  expect(of_one, stopped);
  expect(of_one, {"\nb hung, rank 1, "});
  support::expect_no_orphan(folder_ / "runs/b");
}
TEST_F(ExternalLaunchers, OfAgentsOnAnotherHostAreSilentOnRanksThatWork) {
  for (const char* id : {"a", "b"}) plan_.runs.push_back(a_run(id, 4, Backend::gloo, "", 0.5));
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

/// Serves in a forked child; the test holds the other end.
class ServedRanks {
 public:
  explicit ServedRanks(const std::function<int(const RankTask&)>& run_rank,
                       const std::function<void(const std::string&)>& make_ready = {}) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) ::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      ::_exit(serve_ranks(ends[1], {run_rank, make_ready}));
    }
    ::close(ends[1]);
    socket_ = std::make_unique<LineSocket>(ends[0]);
  }
  ~ServedRanks() {
    if (pid_ > 0) leave();
  }
  pid_t process() const { return pid_; }
  LauncherEvent next() {
    for (;;) {
      if (const auto line = socket_->line()) return event_from_line(*line);
      pollfd wait{socket_->descriptor(), POLLIN, 0};
      if (::poll(&wait, 1, 30000) != 1 || !socket_->receive())
        throw std::runtime_error("the parent says nothing");
    }
  }
  /// Starts them when the parent is ready, and gives what it says of that.
  LauncherEvent started(const std::string& dir, int processes) {
    next();
    start("a", dir, processes);
    return next();
  }
  void start(const std::string& run, const std::string& dir, int processes) {
    ParentCommand command{{run, dir, processes, processes}, ParentCommand::Op::start, 0, ""};
    command.command_started = 2.5;
    socket_->send(to_line(command));
  }
  void kill(const std::string& run, int signal) {
    socket_->send(to_line({{run, "", 0, 0}, ParentCommand::Op::kill, signal, ""}));
  }
  void tell(const std::string& run, const std::string& why) {
    socket_->send(to_line({{run, "", 0, 0}, ParentCommand::Op::tell, 0, why}));
  }
  /// Closes the socket, waits, and returns the parent's exit status.
  int leave() {
    socket_.reset();
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
  std::unique_ptr<LineSocket> socket_;
};

TEST(RankParent, GivesEachRankItsTaskAndReportsItsStatus) {
  const TempFolder folder;
  ServedRanks ranks([&](const RankTask& task) {
    std::printf("%s %.1f\n", task.run_dir == folder.path() ? "right folder" : "wrong folder",
                task.command_started);
    return 10 + task.rank;
  });
  EXPECT_EQ(ranks.next().kind, LauncherEvent::Kind::ready);
  ranks.start("a", folder.path(), 3);
  const LauncherEvent started = ranks.next();
  EXPECT_EQ(started.kind, LauncherEvent::Kind::started);
  EXPECT_EQ(started.pids.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const LauncherEvent event = ranks.next();
    EXPECT_EQ(event.kind, LauncherEvent::Kind::exit);
    EXPECT_EQ(event.code, 10 + event.rank);
  }
  EXPECT_EQ(read_text(folder / "rank-2.log"), "right folder 2.5\n");
  EXPECT_EQ(ranks.leave(), 0);
}

TEST(RankParent, MakesReadyWhatItsRanksShareBeforeItForksThem) {
  const TempFolder folder;
  auto made = std::make_shared<std::string>();
  ServedRanks ranks([made](const RankTask& task) { return *made == task.run_dir ? 0 : 1; },
                    [made](const std::string& dir) {
                      *made = dir;
                      throw std::runtime_error("its ranks will find the same");
                    });
  ranks.started(folder.path(), 2);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ranks.next().code, 0);
  EXPECT_EQ(ranks.leave(), 0);
}

TEST(RankParent, KillsTheRanksOfOneRunAndNoOthers) {
  const TempFolder folder;
  ServedRanks ranks([](const RankTask&) -> int {
    release_stop_signals();
    for (;;) ::pause();
  });
  ranks.next();
  ranks.start("a", folder.path(), 2);
  ranks.start("b", folder.path(), 2);
  ranks.next();
  const LauncherEvent b = ranks.next();
  ranks.kill("a", SIGTERM);
  for (int i = 0; i < 2; ++i) {
    const LauncherEvent event = ranks.next();
    EXPECT_EQ(event.run, "a");
    EXPECT_EQ(event.signal, SIGTERM);
  }
  for (const int pid : b.pids) EXPECT_EQ(::kill(pid, 0), 0);
  EXPECT_EQ(ranks.leave(), 0);
  for (const int pid : b.pids) EXPECT_TRUE(::kill(pid, 0) != 0 && errno == ESRCH);
}

TEST(RankParent, OutlivesASignalToTheWholeJobAndTellsIt) {
  const TempFolder folder;
  ServedRanks ranks([](const RankTask&) -> int {
    for (;;) ::pause();
  });
  const LauncherEvent started = ranks.started(folder.path(), 1);
  for (const int signal : {SIGINT, SIGHUP, SIGTERM}) ::kill(ranks.process(), signal);
  const LauncherEvent told = ranks.next();
  EXPECT_EQ(told.kind, LauncherEvent::Kind::told_to_stop);
  EXPECT_EQ(told.signal, SIGTERM);
  EXPECT_EQ(::kill(started.pids.front(), 0), 0) << "its rank has not been ended by that";
  EXPECT_EQ(ranks.leave(), 0);
}

TEST(RankParent, GivesRanksFreshSignalsAndNoDescriptors) {
  const TempFolder folder;
  const int inherited = ::fcntl(STDOUT_FILENO, F_DUPFD, 20);  // above the rank's side channel
  ServedRanks ranks([&](const RankTask&) {
    sigset_t blocked;
    ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
    struct stat ignored {};
    if (sigismember(&blocked, SIGCHLD) != 0 || sigismember(&blocked, SIGINT) != 0) return 1;
    if (sigismember(&blocked, SIGTERM) != 1) return 6;
    release_stop_signals();
    ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
    if (sigismember(&blocked, SIGTERM) != 0) return 7;
    if (::fstat(inherited, &ignored) == 0) return 2;
    if (::signal(SIGTERM, SIG_DFL) != SIG_DFL) return 3;
    if (::signal(SIGHUP, SIG_DFL) != SIG_IGN) return 4;
    if (::getpgrp() != ::getpid()) return 5;
    return 0;
  });
  ranks.started(folder.path(), 1);
  const LauncherEvent end = ranks.next();
  EXPECT_EQ(end.code, 0);
  EXPECT_EQ(end.rank, -1) << "the one process is all ranks";
  ::close(inherited);
}

TEST(RankParent, RunsNoDestructorOfItsOwnInARank) {
  const TempFolder folder;
  struct Loud {
    std::string path;
    ~Loud() { write_text(path, "destroyed"); }
  };
  const auto loud = std::make_shared<Loud>(Loud{folder / "destroyed"});
  std::filesystem::remove(folder / "destroyed");
  ServedRanks ranks([loud](const RankTask&) { return 0; });
  ranks.started(folder.path(), 1);
  ranks.next();
  EXPECT_FALSE(std::filesystem::exists(folder / "destroyed"));
  EXPECT_EQ(ranks.leave(), 0);
}

TEST(RankParent, RefusesARunWhoseLogItCannotOpen) {
  ServedRanks ranks([](const RankTask&) { return 0; });
  const LauncherEvent event = ranks.started("/nowhere/at/all", 2);
  EXPECT_EQ(event.kind, LauncherEvent::Kind::refused);
  EXPECT_THAT(event.message, testing::HasSubstr("/nowhere/at/all/rank-0.log"));
  EXPECT_EQ(ranks.leave(), 0);
}

TEST(RankProgram, ExplainsItselfToPeople) {
  std::string program = "lockstep-rank", option = "--socket", number = "three";
  std::array<char*, 3> arguments = {program.data(), option.data(), number.data()};
  const auto none = [](const RankTask&) { return 0; };
  EXPECT_EQ(rank_program_main(1, arguments.data(), "v", {none}), 2);
  EXPECT_EQ(rank_program_main(3, arguments.data(), "v", {none}), 2);
}

/// What stands in a rank's side channel, waiting for it; it has a test's whole time.
std::string word_of_the_parent(int channel) {
  pollfd wait{channel, POLLIN, 0};
  char text[256] = {};
  if (::poll(&wait, 1, 30000) != 1 || ::recv(channel, text, sizeof text - 1, 0) <= 0) return "nothing";
  return text;
}

TEST(RankParent, TellsTheOthersOfADeathAndNobodyOfAGoodEnd) {
  const TempFolder folder;
  ServedRanks ranks([&](const RankTask& task) {
    if (task.rank == 0) return 0;
    if (task.rank == 1) ::raise(SIGKILL);
    write_text(folder / ("told-" + std::to_string(task.rank)), word_of_the_parent(task.notices));
    return 130;
  });
  ranks.started(folder.path(), 4);
  for (int i = 0; i < 4; ++i) ranks.next();
  for (const char* rank : {"2", "3"})
    EXPECT_EQ(read_text(folder / (std::string("told-") + rank)), "rank 1 was killed by signal 9 (SIGKILL)");
}

TEST(RankParent, PassesOnWhatItIsTold) {
  const TempFolder folder;
  ServedRanks ranks([&](const RankTask& task) {
    write_text(folder / ("told-" + std::to_string(task.rank)), word_of_the_parent(task.notices));
    return 130;
  });
  ranks.started(folder.path(), 2);
  ranks.tell("a", "rank 1 hangs: no progress");
  for (int i = 0; i < 2; ++i) ranks.next();
  EXPECT_EQ(read_text(folder / "told-0"), "rank 1 hangs: no progress");
  EXPECT_EQ(read_text(folder / "told-1"), "rank 1 hangs: no progress");
}

TEST(AbortListener, EndsARankThatWaitsForEver) {
  const TempFolder folder;
  ServedRanks ranks([&](const RankTask& task) {
    AbortListener abort_listener(task.notices, 0.01, [&](const std::string& why) { write_text(folder / "why", why); });
    if (task.rank == 1) return 3;
    for (;;) ::pause();
  });
  ranks.started(folder.path(), 2);
  EXPECT_EQ(ranks.next().rank, 1);
  EXPECT_EQ(ranks.next().code, 1);
  EXPECT_EQ(read_text(folder / "why"), "rank 1 exited with status 3");
}

TEST(AbortListener, LeavesTheWordToARankThatEndsByItself) {
  const TempFolder folder;
  ServedRanks ranks([&](const RankTask& task) {
    AbortListener abort_listener(task.notices, 60, [&](const std::string&) { write_text(folder / "why", "left"); });
    if (task.rank == 1) return 3;
    const std::string why = abort_listener.told(30);
    abort_listener.end_by_itself();
    write_text(folder / "own", why);
    return 1;
  });
  ranks.started(folder.path(), 2);
  for (int i = 0; i < 2; ++i) ranks.next();
  EXPECT_EQ(read_text(folder / "own"), "rank 1 exited with status 3");
  EXPECT_FALSE(std::filesystem::exists(folder / "why"));
}

}  // namespace
}  // namespace lockstep
