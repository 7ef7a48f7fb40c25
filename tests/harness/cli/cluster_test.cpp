// What befalls jobs on a cluster: nodes that die, schedulers that warn, ranks that hang out of sight, cells as an array. Each test has
// four Slurm nodes of its own on this machine, and leaves nothing behind.

#include <gmock/gmock.h>

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "harness/base/machine.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kPlay = R"(# A run that lasts some seconds.
name: play
trainer: energy
data: {source: synthetic, series: 14, min_context: 10}
steps: 300
seeds: 0
question: mechanism
ranks: real
eval_every: 0
checkpoint: {every: 20, grace_s: 5}
reference: {same_as: cell, ranks: emulated}
axes: {layout: [4x6]}
expect: [{when: {}, verdict: identical}]
)";

constexpr const char* kCells = R"(# Cells of an array.
name: cells
trainer: energy
data: {source: synthetic, series: 14, min_context: 10}
steps: 3
seeds: 0..1
question: mechanism
ranks: real
eval_every: 0
forced_steps: [0, 2]
reference: {layout: 1x24, negatives: global}
axes: {layout: [2x12], negatives: [local, global]}
expect:
  - {when: {negatives: local}, verdict: divergent}
  - {when: {negatives: global}, verdict: within_envelope}
)";

struct Process {
  pid_t pid, parent;
  std::string program, node, words;
};

std::string text_of(const fs::path& path) { return read_text(path.string()); }

std::string value_in(const std::string& environment, const std::string& name) {
  std::istringstream entries(environment);
  for (std::string entry; std::getline(entries, entry, '\0');)
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  return "";
}

class Cluster : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists("/usr/sbin/slurmctld"))
      GTEST_SKIP() << "no slurmctld: apt-get install --no-install-recommends slurmctld slurmd slurm-client";
    const ProgramEnd started = Program({LOCKSTEP_SOURCE_DIR "/ci/slurm", "start", cluster_.path()}, folder_.path(), {}).end();
    if (started.code == 77) GTEST_SKIP() << started.err;
    ASSERT_EQ(started.code, 0) << started.err;
    started_ = true;
  }
  void TearDown() override {
    if (!started_) return;
    wait_until([this] { return call({"/usr/bin/squeue", "--noheader"}).out.empty(); }, 15);
    EXPECT_EQ(call({"/usr/bin/squeue", "--noheader"}).out, "");
    EXPECT_EQ(Program({LOCKSTEP_SOURCE_DIR "/ci/slurm", "stop", cluster_.path()}, folder_.path(), {}).end().code, 0);
    // A step's daemon outlives its step for a moment.
    wait_until([this] { return processes().empty(); }, 15);
    for (const Process& left : processes()) ADD_FAILURE() << "process " << left.pid << " is left: " << left.words;
    EXPECT_THAT(text_of("/proc/net/unix"), testing::Not(HasSubstr(folder_.path())));
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      EXPECT_FALSE(entry.path().filename().string().starts_with("beat-")) << entry.path();
      EXPECT_FALSE(entry.is_socket()) << entry.path();
    }
    EXPECT_EQ(shared_memory(), shared_memory_) << "in /dev/shm";
  }

  std::vector<std::pair<std::string, std::string>> environment() const {
    return {{"SLURM_CONF", cluster_ / "slurm.conf"}, {"LOCKSTEP_HOST", host_}, {"PATH", first_in_path_ + std::getenv("PATH")}};
  }
  ProgramEnd call(const std::vector<std::string>& words) const { return Program(words, folder_.path(), environment()).end(); }
  ProgramEnd lockstep(std::vector<std::string> words) const {
    words.insert(words.begin(), LOCKSTEP_BINARY_DIR "/bin/lockstep");
    return call(words);
  }
  /// Submits `config` and returns when the job's first run has left `checkpoints` of them.
  void submit(const std::string& config, const std::string& launcher, int checkpoints) {
    std::ofstream(folder_ / "play.yaml") << config;
    const ProgramEnd end = lockstep({"run", folder_ / "play.yaml", "--out", out(), "--launcher", launcher, "--detach"});
    ASSERT_EQ(end.code, 0) << end.err;
    ASSERT_TRUE(wait_until([&] { return checkpoints_there() >= checkpoints; }, 60)) << text_of(out() + "/job.log");
  }
  int checkpoints_there() const {
    int count = 0;
    std::error_code error;
    for (fs::directory_iterator run(out() + "/runs", error), end; !error && run != end; run.increment(error)) {
      std::error_code none;
      for (fs::directory_iterator at(run->path() / "checkpoints", none), last; !none && at != last; at.increment(none))
        count += at->path().filename().string().starts_with("epoch") ? 1 : 0;
    }
    return count;
  }
  static bool wait_until(const std::function<bool()>& there, double most_s) {
    const double deadline = monotonic_s() + most_s;
    while (!there()) {
      if (monotonic_s() > deadline) return false;
      ::poll(nullptr, 0, 20);
    }
    return true;
  }
  /// Of this cluster, its daemons too.
  std::vector<Process> processes() const {
    std::vector<Process> found;
    std::error_code error;
    for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
      const pid_t pid = std::atoi(at->path().filename().c_str());
      if (pid <= 0) continue;
      const std::string environment = text_of(at->path() / "environ");
      if (value_in(environment, "SLURM_CONF") != cluster_ / "slurm.conf") continue;
      const std::string status = text_of(at->path() / "stat");
      if (status.empty() || status.find(") Z") != std::string::npos) continue;
      std::string words = text_of(at->path() / "cmdline");
      std::replace(words.begin(), words.end(), '\0', ' ');
      std::string program = text_of(at->path() / "comm");
      if (!program.empty()) program.pop_back();
      found.push_back({pid, std::atoi(status.c_str() + status.rfind(')') + 4), program, value_in(environment, "SLURMD_NODENAME"), words});
    }
    return found;
  }
  /// As if its power went: its daemon, the daemons of its steps, and whatever they have started.
  void kill_node(const std::string& node) {
    std::set<pid_t> victims = {std::atoi(text_of(cluster_ / ("slurmd-" + node + ".pid")).c_str())};
    for (const Process& each : processes()) {
      if (each.node != node) continue;
      victims.insert(each.pid);
      for (const Process& parent : processes())
        if (parent.pid == each.parent && parent.program == "slurmstepd") victims.insert(parent.pid);
    }
    ASSERT_GE(victims.size(), 3U);
    for (const pid_t victim : victims) ::kill(victim, SIGKILL);
  }
  std::string out() const { return folder_ / "out"; }
  std::string job() const {
    const std::string text = text_of(out() + "/session.json");
    const std::size_t at = text.find("\"job\": \"") + 8;
    return text.substr(at, text.find('"', at) - at);
  }
  std::string losses() const { return text_of(out() + "/losses"); }
  /// The job's traces have the bytes of a run on this machine that nothing befell.
  void expect_bits_of_an_undisturbed_run() {
    const ProgramEnd local = lockstep({"run", folder_ / "play.yaml", "--out", folder_ / "local"});
    ASSERT_EQ(local.code, 0) << local.err;
    int compared = 0;
    for (const auto& run : fs::directory_iterator(folder_ / "local/runs")) {
      for (const auto& file : fs::directory_iterator(run.path())) {
        if (file.path().extension() != ".trace") continue;
        const fs::path same = fs::path(out()) / "runs" / run.path().filename() / file.path().filename();
        EXPECT_EQ(read_text(file.path()), read_text(same)) << same;
        ++compared;
      }
    }
    EXPECT_GE(compared, 4);
  }
  static std::set<std::string> shared_memory() {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator("/dev/shm"))
      if (entry.path().filename().string().find("lockstep") != std::string::npos) names.insert(entry.path());
    return names;
  }

  const TempFolder folder_, cluster_;
  std::string host_;  ///< LOCKSTEP_HOST; empty: all nodes are known to be one host
  std::string first_in_path_;
  bool started_ = false;
  const std::set<std::string> shared_memory_ = shared_memory();
};

TEST_F(Cluster, ANodeThatDiesIsNamedAndItsRunIsFinishedFromItsCheckpoint) {
  submit(kPlay, "slurm -N3-4", 2);
  kill_node("n4");
  ASSERT_TRUE(wait_until([this] { return losses().find("is started again") != std::string::npos; }, 30)) << text_of(out() + "/job.log");
  EXPECT_THAT(losses(), AllOf(HasSubstr("node n4 (process "), HasSubstr("is gone"), HasSubstr("it held rank 3 of this run")));
  EXPECT_THAT(lockstep({"status", out()}).out, HasSubstr("node n4 (process "));
  const ProgramEnd waited = lockstep({"wait", out()});
  EXPECT_EQ(waited.code, 0) << waited.err << text_of(out() + "/job.log");
  EXPECT_THAT(waited.out, HasSubstr("identical"));
  EXPECT_THAT(text_of(out() + "/job.log"), HasSubstr("resuming  4x6-s0-"));
  expect_bits_of_an_undisturbed_run();
}

TEST_F(Cluster, AJobWhoseOwnNodeDiesIsQueuedAgainAndGoesOn) {
  submit(kPlay, "slurm -N3-4", 2);
  kill_node("n1");
  const ProgramEnd waited = lockstep({"wait", out()});
  EXPECT_EQ(waited.code, 0) << waited.err << text_of(out() + "/job.log");
  EXPECT_THAT(losses(), AllOf(HasSubstr("queued again by Slurm, restart 1"), HasSubstr("n1 (Not responding)")));
  EXPECT_THAT(lockstep({"status", out()}).out, AllOf(HasSubstr("exit status 0"), HasSubstr("n1 (Not responding)")));
  EXPECT_THAT(text_of(out() + "/job.log"), HasSubstr("resuming  4x6-s0-"));
  expect_bits_of_an_undisturbed_run();
}

/// How Slurm signals by --signal=B:USR1@… and by --signal=USR1@…: the batch script alone, or the steps alone.
class ClusterWarns : public Cluster, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(BatchOrSteps, ClusterWarns, testing::Bool());

TEST_P(ClusterWarns, AndTheRunIsSavedQueuedAgainAndFinishedWithTheSameBits) {
  submit(kPlay, "slurm -N4", 1);
  std::vector<std::string> words = {"/usr/bin/scancel", "--signal=USR1", job()};
  if (GetParam()) words.insert(words.begin() + 1, "--batch");
  EXPECT_EQ(call(words).code, 0);
  const ProgramEnd waited = lockstep({"wait", out()});
  EXPECT_EQ(waited.code, 0) << waited.err << text_of(out() + "/job.log");
  EXPECT_THAT(losses(), HasSubstr("queued again by Slurm, restart 1"));
  EXPECT_THAT(text_of(out() + "/job.log"), AllOf(HasSubstr("stopped   4x6-s0-"), HasSubstr("resuming  4x6-s0-")));
  expect_bits_of_an_undisturbed_run();
}

TEST_F(Cluster, ARankThatHangsOnAnotherHostIsNamed) {
  host_ = "%n";
  std::string config = kPlay;
  config.replace(config.find("checkpoint: "), 0, "watch: {step_s: 2, save_s: 2}\n");
  submit(config, "slurm -N4", 1);
  pid_t victim = 0;
  for (const Process& each : processes()) {
    const bool is_rank = each.program == "lockstep-rank" && each.node == "n3";
    if (is_rank && each.pid > victim) victim = each.pid;  // forked by the agent
  }
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGSTOP);
  const ProgramEnd waited = lockstep({"wait", out()});
  EXPECT_NE(waited.code, 0);
  EXPECT_THAT(text_of(out() + "/job.log"), AllOf(HasSubstr("hung (rank 2"), HasSubstr("its process is stopped by a signal"), HasSubstr("it runs on node n3")));
}

TEST_F(Cluster, RanksOnSeveralHostsComputeTheSameBits) {
  host_ = "%n";
  std::string config = kPlay;
  config.replace(config.find("steps: 300"), 10, "steps: 40");
  submit(config, "slurm -N4", 1);
  const ProgramEnd waited = lockstep({"wait", out()});
  EXPECT_EQ(waited.code, 0) << waited.err << text_of(out() + "/job.log");
  host_ = "";
  expect_bits_of_an_undisturbed_run();
}

TEST_F(Cluster, AnArrayGivesTheResultsOfOneJob) {
  std::ofstream(folder_ / "play.yaml") << kCells;
  const ProgramEnd end = lockstep({"run", folder_ / "play.yaml", "--out", out(), "--launcher", "slurm -N1 --array=%3"});
  EXPECT_EQ(end.code, 0) << end.err << text_of(out() + "/job.log");
  EXPECT_THAT(end.err, HasSubstr("after the arrays"));
  EXPECT_THAT(text_of(out() + "/array-0.sh"), HasSubstr("%3\n"));
  EXPECT_THAT(lockstep({"status", out()}).out, HasSubstr("exit status 0"));
  // The last job found everything done.
  const std::string log = text_of(out() + "/job.log");
  EXPECT_THAT(log.substr(log.rfind("resolved config")), HasSubstr(": 0 to do, "));
  expect_bits_of_an_undisturbed_run();
  EXPECT_THAT(lockstep({"run", folder_ / "play.yaml", "--out", out(), "--launcher", "slurm --array=0-3"}),
              testing::Field(&ProgramEnd::code, 2));
}

/// Which of the scripts Slurm refuses: the second array's, or the last job's, which gathers.
class ClusterRefuses : public Cluster, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(ArrayOrJob, ClusterRefuses, testing::Values("array-1.sh", "job.sh"),
                         [](const auto& each) { return each.param == "job.sh" ? "Job" : "Array"; });

TEST_P(ClusterRefuses, AndTheArraysBeforeItAreCancelled) {
  const TempFolder programs;
  std::ofstream(programs / "sbatch") << "#!/bin/sh\ncase \"$*\" in *" << GetParam() << ") echo sbatch: error: no such partition; exit 1 ;; esac\n"
                                     << "exec /usr/bin/sbatch \"$@\"\n";
  fs::permissions(programs / "sbatch", fs::perms::owner_all);
  first_in_path_ = programs.path() + ":";
  std::string config = kCells;
  config.replace(config.find("steps: 3"), 8, "steps: 3000");
  std::ofstream(folder_ / "play.yaml") << config;
  const ProgramEnd end = lockstep({"run", folder_ / "play.yaml", "--out", out(), "--launcher", "slurm -N1 --array", "--detach"});
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.err, AllOf(HasSubstr("no such partition"), HasSubstr("that had been submitted"), HasSubstr("cancelled")));
  EXPECT_TRUE(wait_until([this] { return call({"/usr/bin/squeue", "--noheader"}).out.empty(); }, 30)) << call({"/usr/bin/squeue"}).out;
}

}  // namespace
}  // namespace lockstep
