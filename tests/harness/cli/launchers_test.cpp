#include <gmock/gmock.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <regex>
#include <set>
#include <sstream>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/libraries.h"
#include "harness/run/watch.h"
#include "tests/support/program.h"

// The same matrix, whoever starts its ranks: the same bits, the same verdicts.

namespace lockstep {
namespace {

using testing::HasSubstr;

/// A rung of configs/ladder.yaml, cut short.
constexpr const char* kLadder = R"(# Do processes compute the bits of threads?
name: rung
trainer: energy
data: {source: synthetic, series: 14, min_context: 10}
steps: 4
seeds: 0
question: mechanism
ranks: real
dropout: 0.1
momentum: 0.9
bucket_cap_bytes: 16384
eval_every: 0
optimizer: adam
clip_norm: 0.5
reference: {same_as: cell, ranks: emulated}
axes: {layout: [3x8]}
expect: [{when: {}, verdict: identical}]
)";

/// A cell of configs/parity_1x24_vs_8x3.yaml's matrix, judged by its mechanism.
constexpr const char* kParity = R"(# Do three ranks compute what one process computes?
name: parity
trainer: energy
data: {source: synthetic, series: 14, min_context: 10}
steps: 3
seeds: 0
question: mechanism
ranks: real
eval_every: 0
forced_steps: [0, 2]
reference: {layout: 1x24, negatives: global}
axes: {layout: [3x8], negatives: [local, global]}
expect:
  - {when: {negatives: local}, verdict: divergent}
  - {when: {negatives: global}, verdict: within_envelope}
)";

/// Every trace of the results in `other` has the bytes of the one of the same run and rank in `local`.
void expect_same_traces(const std::string& local, const std::string& other) {
  int compared = 0;
  for (const auto& run : std::filesystem::directory_iterator(local + "/runs")) {
    for (const auto& file : std::filesystem::directory_iterator(run.path())) {
      if (file.path().extension() != ".trace") continue;
      const std::string same = other + "/runs/" + run.path().filename().string() + "/" + file.path().filename().string();
      ASSERT_TRUE(std::filesystem::exists(same)) << same;
      EXPECT_EQ(read_text(file.path()), read_text(same)) << same;
      ++compared;
    }
  }
  EXPECT_GE(compared, 4);
}

class Launchers : public testing::Test {
 protected:
  Launchers() {
    std::ofstream(folder_ / "rung.yaml") << kLadder;
    std::ofstream(folder_ / "parity.yaml") << kParity;
  }
  ProgramEnd run(const std::string& name, const std::string& launcher, const std::string& out, std::vector<std::string> before = {}) {
    return begun(name, launcher, out, std::move(before))->end();
  }
  std::unique_ptr<Program> begun(const std::string& name, const std::string& launcher, const std::string& out, std::vector<std::string> before = {}) {
    const std::string path = std::string(LOCKSTEP_SOURCE_DIR "/.lockstep/venv/bin:") + std::getenv("PATH");
    for (const char* word : {LOCKSTEP_BINARY_DIR "/bin/lockstep", "run"}) before.emplace_back(word);
    for (const std::string& word : {folder_ / (name + ".yaml"), std::string("--out"), folder_ / out, std::string("--launcher"), launcher})
      before.push_back(word);
    // Containers run tests as root, which Open MPI wants to hear of twice.
    const std::vector<std::pair<std::string, std::string>> variables = {{"PATH", path}, {"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
    return std::make_unique<Program>(before, folder_.path(), variables);
  }
  /// The folder of the run in "out" whose rank has been forked by a launcher; empty: none was within a minute.
  std::string wait_for_rank_process(int rank) const {
    for (const double until = monotonic_s() + 60; monotonic_s() < until; ::poll(nullptr, 0, 20)) {
      std::error_code none;
      for (std::filesystem::directory_iterator at(folder_ / "out/runs", none), end; !none && at != end; at.increment(none))
        if (read_arrival(at->path().string(), rank).process > 0) return at->path().string();
    }
    return "";
  }
  void expect_as_local(const std::string& launcher, const std::vector<std::string>& before = {}) {
    for (const std::string name : {"rung", "parity"}) {
      const ProgramEnd local = run(name, "local", name + "-local");
      ASSERT_EQ(local.code, 0) << local.out << local.err;
      const ProgramEnd other = run(name, launcher, name + "-other", before);
      ASSERT_EQ(other.code, 0) << other.out << other.err;
      expect_same_traces(folder_ / (name + "-local"), folder_ / (name + "-other"));
    }
  }
  /// A folder with what a run of three ranks needs, which has been run as "local" before; `done_` is that run's.
  std::string prepared(const std::string& name) {
    if (done_.empty()) {
      EXPECT_EQ(run("rung", "local", "local").code, 0);
      for (const auto& entry : std::filesystem::directory_iterator(folder_ / "local/runs"))
        if (entry.path().filename().string().find("emulated") == std::string::npos) done_ = entry.path().string();
    }
    std::filesystem::create_directory(folder_ / name);
    std::filesystem::copy_file(done_ + "/run.json", folder_ / name + "/run.json");
    return folder_ / name;
  }
  using Variables = std::vector<std::pair<std::string, std::string>>;
  std::unique_ptr<Program> by_hand(const std::string& run, const std::vector<std::string>& more, const Variables& variables = {}) const {
    std::vector<std::string> words{LOCKSTEP_BINARY_DIR "/bin/lockstep-rank", "run", run};
    words.insert(words.end(), more.begin(), more.end());
    return std::make_unique<Program>(words, folder_.path(), variables);
  }
  ProgramEnd lockstep(std::vector<std::string> words) const {
    words.insert(words.begin(), LOCKSTEP_BINARY_DIR "/bin/lockstep");
    return Program(words, folder_.path(), {}).end();
  }
  const TempFolder folder_;
  std::string done_;
};

bool lacks(const std::string& program) {
  return find_program(program).empty() && !std::filesystem::exists(LOCKSTEP_SOURCE_DIR "/.lockstep/venv/bin/" + program);
}

TEST_F(Launchers, OpenMpiGivesTheSameBits) {
  if (lacks("mpirun.openmpi")) GTEST_SKIP() << "no mpirun.openmpi: apt-get install openmpi-bin";
  expect_as_local("openmpi");
}

/// A launcher that starts rank R as `hosts[R]` says.
std::string launcher_by(const TempFolder& folder, const std::vector<std::string>& hosts) {
  std::string script = "export LOCKSTEP_WORLD_SIZE=$1 LOCKSTEP_ROOM=$1\nshift\n";
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    script += "LOCKSTEP_RANK_ID=" + std::to_string(rank) + " " + hosts[rank] + " \"$@\" &\nranks=\"$ranks $!\"\n";
  std::ofstream(folder / "launch.sh") << script << "for rank in $ranks; do wait $rank || status=$?; done\nexit ${status:-0}\n";
  return "external:sh " + folder / "launch.sh" + " {ranks} {rank_program} run {run} --prepared";
}

/// A rank on each of three hosts, which are names and addresses of this one.
std::string on_three_hosts(const TempFolder& folder) {
  std::vector<std::string> hosts;
  for (const std::string rank : {"0", "1", "2"}) hosts.push_back("LOCKSTEP_HOST=h" + rank + " LOCKSTEP_ADDRESS=127.0.0.1" + rank);
  return launcher_by(folder, hosts);
}

/// A network of its own, as a container has, on a cable to this host, or to another such network, that can be cut.
class Container {
 public:
  explicit Container(bool to_another = false) {
    const std::string number = std::to_string(::getpid()), net = "10.231." + std::to_string(::getpid() % 250);
    name_ = "lockstep-" + number, net_ = net;
    const std::string here = "lk" + number.substr(0, 7) + "a", there = "lk" + number.substr(0, 7) + "b",
                      inside = "ip netns exec " + name_ + " ",
                      outside = to_another ? "ip netns exec " + name_ + "-a " : "";
    if (to_another) there_ = says_yes("ip netns add " + name_ + "-a") && says_yes(outside + "ip link set lo up");
    for (const std::string& command :
         {"ip netns add " + name_, outside + "ip link add " + here + " type veth peer name " + there,
          outside + "ip link set " + there + " netns " + name_, outside + "ip addr add " + net + ".1/24 dev " + here,
          outside + "ip link set " + here + " up", inside + "ip addr add " + net + ".2/24 dev " + there,
          inside + "ip link set " + there + " up", inside + "ip link set lo up",
          inside + "ip route add default via " + net + ".1"})
      there_ = there_ && says_yes(command);
    ends_ = {{outside + "ip neigh", net + ".2 dev " + here}, {inside + "ip neigh", net + ".1 dev " + there}};
  }
  ~Container() {
    for (const char* end : {"", "-a"}) says_yes("ip netns del " + name_ + end);
  }
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;
  bool there() const { return there_; }
  /// Words that run the script on a host of its own at one end, 0 or 1: with its own processes, name, /tmp and /dev/shm, and with
  /// `shared`, where it runs. Further words are the script's.
  std::vector<std::string> host(std::size_t end, const std::string& shared, const std::string& script) const {
    const std::string own = "hostname host-" + std::to_string(end) + "; mount --bind " + shared +
                            " /mnt; mount -t tmpfs none /tmp; mount -t tmpfs none /dev/shm; mkdir -p " + shared +
                            "; mount --move /mnt " + shared + "; printf '" + net_ + ".1 host-0\n" + net_ +
                            ".2 host-1\n' > /tmp/hosts; " + "mount --bind /tmp/hosts /etc/hosts; cd " + shared + "; " +
                            script;
    const std::string inside = "exec ip netns exec " + name_ + (end == 0 ? "-a" : "") +
                               " unshare --mount --uts --ipc --pid --fork --kill-child --mount-proc sh -c \"$0\" sh \"$@\"";
    return {"/bin/sh", "-c", inside, own};
  }
  /// As if the power of the host at the other end went. Who has ended meanwhile needs no signal.
  void end_processes() const {
    EXPECT_TRUE(says_yes("for pid in $(ip netns pids " + name_ + "); do kill -KILL $pid || ! kill -0 $pid; done"));
  }
  /// A cut one loses all, both ways, and nobody says so: each end takes the other for one that is not there.
  void cable(bool whole) const {
    for (const auto& [neighbours, other] : ends_)
      EXPECT_TRUE(says_yes(whole ? neighbours + " del " + other : neighbours + " replace " + other + " lladdr 02:00:00:00:00:99 nud permanent"));
  }

 private:
  static bool says_yes(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }
  std::string name_, net_;
  std::vector<std::pair<std::string, std::string>> ends_;
  bool there_ = true;
};

constexpr const char* kNoNetwork = "no network of its own for a process here: it takes root, and ip (package iproute2)";

/// Ranks 0 and 1 here, and rank 2 on the cable's other end.
std::string on_two_hosts(const Container& cable, const TempFolder& folder) {
  std::string there;
  for (const std::string& word : cable.host(1, folder.path(), "exec \"$@\"")) there += " " + shell_quoted(word);
  return launcher_by(folder, {"", "", there});
}

/// The matrix with those lines in the place of its steps.
std::string ladder_with(const std::string& lines) {
  std::string config = kLadder;
  return config.replace(config.find("steps: 4"), 8, lines);
}

/// The process here of rank 2, whose run's folder has its number among its host's processes.
pid_t rank_2_of(const std::string& run) {
  const std::regex number("\nNSpid:.*\\b" + std::to_string(read_arrival(run, 2).process) + "\n");
  for (const auto& at : std::filesystem::directory_iterator("/proc")) {
    if (std::atoi(at.path().filename().c_str()) <= 0 || !std::regex_search(read_text(at.path() / "status"), number)) continue;
    if (read_text(at.path() / "environ").find("LOCKSTEP_RANK_ID=2") == std::string::npos) continue;
    return std::atoi(at.path().filename().c_str());
  }
  return 0;
}

bool rank_2_reaches(const HeartbeatFile& heartbeats, int64_t step) {
  for (const double until = monotonic_s() + 60; heartbeats.step(2) < step && monotonic_s() < until;) ::poll(nullptr, 0, 20);
  return heartbeats.step(2) >= step;
}

TEST_F(Launchers, ACableThatIsCutForEverIsNamedAndTheRunStartsAgain) {
  const Container container;
  if (!container.there()) GTEST_SKIP() << kNoNetwork;
  std::ofstream(folder_ / "long.yaml") << ladder_with("steps: 300\ntimeout_s: 20\ncheckpoint: {every: 20}");
  std::unique_ptr<Program> matrix = begun("long", on_two_hosts(container, folder_), "out");
  const std::string run = wait_for_rank_process(2);
  ASSERT_FALSE(run.empty());
  ASSERT_TRUE(rank_2_reaches(HeartbeatFile::open(run + "/heartbeat", 3), 3)) << read_text(run + "/rank-2.log") << read_text(run + "/launcher.log");
  container.cable(false);
  const std::string losses = folder_ / "out/losses";
  for (const double until = monotonic_s() + 60; !std::filesystem::exists(losses) && monotonic_s() < until;) ::poll(nullptr, 0, 20);
  container.cable(true);
  const ProgramEnd end = matrix->end();
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_THAT(read_text(losses), testing::AllOf(HasSubstr("nothing was heard from host "), HasSubstr("the link to host "), HasSubstr("is started again")));
}

TEST_F(Launchers, ACableThatIsCutForAWhileAccusesNobodyAndARankThatHangsBehindItIsNamed) {
  const Container container;
  if (!container.there()) GTEST_SKIP() << kNoNetwork;
  std::ofstream(folder_ / "long.yaml") << ladder_with("steps: 1500\nwatch: {step_s: 1.5}");
  std::unique_ptr<Program> matrix = begun("long", on_two_hosts(container, folder_), "out");
  const std::string run = wait_for_rank_process(2);
  ASSERT_FALSE(run.empty());
  HeartbeatFile heartbeats = HeartbeatFile::open(run + "/heartbeat", 3);
  const auto reaches = [&heartbeats](int64_t step) { return rank_2_reaches(heartbeats, step); };
  ASSERT_TRUE(reaches(3));
  container.cable(false);
  ::poll(nullptr, 0, 4000);  // more than twice what a step may take
  container.cable(true);
  ASSERT_TRUE(reaches(heartbeats.step(2) + 20)) << read_text(run + "/rank-2.log") << read_text(run + "/launcher.log");
  ASSERT_EQ(::kill(rank_2_of(run), SIGSTOP), 0);
  const ProgramEnd end = matrix->end();
  EXPECT_EQ(end.code, 4) << end.err;
  EXPECT_THAT(end.out + end.err, testing::AllOf(HasSubstr("rank 2"), HasSubstr("its process is stopped by a signal"), HasSubstr("it runs on host host-1")));
}

TEST_F(Launchers, ARankThatIsKilledOnAnotherHostIsNamedAndAHostThatDiesHasItsRunStartedAgain) {
  const Container cable;
  if (!cable.there()) GTEST_SKIP() << kNoNetwork;
  std::ofstream(folder_ / "long.yaml") << ladder_with("steps: 300\ncheckpoint: {every: 20}");
  for (const bool whole_host : {false, true}) {
    std::filesystem::remove_all(folder_ / "out");
    std::unique_ptr<Program> matrix = begun("long", on_two_hosts(cable, folder_), "out");
    const std::string run = wait_for_rank_process(2);
    ASSERT_FALSE(run.empty());
    ASSERT_TRUE(rank_2_reaches(HeartbeatFile::open(run + "/heartbeat", 3), 3)) << read_text(run + "/rank-2.log") << read_text(run + "/launcher.log");
    if (whole_host) cable.end_processes();
    else ASSERT_EQ(::kill(rank_2_of(run), SIGKILL), 0);
    const ProgramEnd end = matrix->end();
    EXPECT_EQ(end.code, whole_host ? 0 : 3) << end.out << end.err;
    if (whole_host) EXPECT_THAT(read_text(folder_ / "out/losses"), testing::AllOf(HasSubstr("is started again: nothing was heard from host host-1"), HasSubstr("or it is gone")));
    else EXPECT_THAT(end.err, HasSubstr("killed by signal 9 (SIGKILL); it ran on host host-1 (process "));
  }
}

/// The one of docs/start.md.
void write_trainer(const std::string& folder) {
  const std::string page = read_text(LOCKSTEP_SOURCE_DIR "/docs/start.md"), opening = "```python\n";
  const std::size_t begin = page.find(opening) + opening.size();
  std::ofstream(folder + "/train.py") << page.substr(begin, page.find("```", begin) - begin);
}

/// The script's end on each of two hosts, with a train.py. %d in it: which of them it is.
std::vector<ProgramEnd> on_both(const Container& cable, const std::string& folder, const std::string& script) {
  write_trainer(folder);
  const std::vector<std::pair<std::string, std::string>> variables = {
      {"PATH",
       LOCKSTEP_BINARY_DIR "/bin:" LOCKSTEP_SOURCE_DIR "/.lockstep/venv/bin:" + std::string(std::getenv("PATH"))}};
  std::vector<std::unique_ptr<Program>> hosts;
  for (std::size_t end : {0, 1})
    hosts.push_back(std::make_unique<Program>(cable.host(end, folder, replaced(script, "%d", std::to_string(end))),
                                              folder, variables));
  return {hosts[0]->end(), hosts[1]->end()};
}

TEST_F(Launchers, ACheckThatIsStartedOnTwoHostsGivesOneAnswer) {
  if (lacks("torchrun")) GTEST_SKIP() << "no torchrun: python3 -m pip install torch";
  const Container cable(true);
  if (!cable.there()) GTEST_SKIP() << kNoNetwork;
  const std::string check = "lockstep check --nodes %d/2 --ranks 4 --steps 3 --out checked ",
                    torchrun = "torchrun --nproc-per-node {ranks} train.py --batch {batch}";
  const auto right = on_both(cable, folder_.path(), check + "-- " + torchrun);
  EXPECT_EQ(right[0].code, 0) << right[0].out << right[0].err;
  EXPECT_THAT(right[0].out, HasSubstr("the same: 4 ranks as 1 rank"));
  EXPECT_EQ(right[1].code, 0);
  EXPECT_EQ(right[1].out + right[1].err, "");
  EXPECT_THAT(read_text(folder_ / "checked/runs/run/rank-3.hello.json"), HasSubstr("host-1"));
  const auto failed = on_both(cable, folder_.path(),
                              check + "-- sh -c '[ \"$PET_NODE_RANK\" != 1 ] || exec nothing; " + torchrun + "'");
  EXPECT_EQ(failed[0].code, 3) << failed[0].out;
  EXPECT_THAT(failed[0].err,
              HasSubstr("node 1 (host-1): its part of the command has failed: sh: 1: exec: nothing: not found"));
  const auto alone = on_both(cable, folder_.path(), "[ %d = 1 ] || " + check + "--timeout 2 -- " + torchrun);
  EXPECT_THAT(alone[0].err, HasSubstr("a node of 2 did not come in time: node 1."));
}

TEST_F(Launchers, DoctorOnTwoHostsMakesItsFolder) {
  const Container cable(true);
  if (!cable.there()) GTEST_SKIP() << kNoNetwork;
  const auto ends = on_both(cable, folder_.path(), "LOCKSTEP_RANK_ID=%d LOCKSTEP_WORLD_SIZE=2 lockstep doctor --nodes --out not/yet");
  for (const ProgramEnd& end : ends) EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_THAT(ends[0].out, testing::AllOf(HasSubstr("2 processes on 2 nodes: host-0, host-1"), HasSubstr("2 real ranks on Gloo agree bit for bit"),
                                          testing::Not(HasSubstr("not ok")), HasSubstr("\nfit to run\n")));
}

TEST_F(Launchers, ATraceOfARunOnTwoHostsIsToldOnce) {
  if (lacks("torchrun")) GTEST_SKIP() << "no torchrun: python3 -m pip install torch";
  const Container cable(true);
  if (!cable.there()) GTEST_SKIP() << kNoNetwork;
  const std::string trace = "lockstep trace --out traced --steps 2 -- ";
  for (const std::string& script :
       {trace + "torchrun --nnodes 2 --node-rank %d --master-addr host-0 --nproc-per-node 2 train.py --batch 6",
        "export WORLD_SIZE=4 MASTER_ADDR=host-0 MASTER_PORT=29519 LOCAL_WORLD_SIZE=2; for LOCAL_RANK in 0 1; do export LOCAL_RANK RANK=$((%d * 2 + LOCAL_RANK)); " +
            trace + "python train.py --batch 6 & done; wait"}) {
    std::filesystem::remove_all(folder_ / "traced");
    const auto ends = on_both(cable, folder_.path(), script);
    for (const ProgramEnd& end : ends) EXPECT_EQ(end.code, 0) << end.err;
    const std::string said = ends[0].err + ends[1].err;
    EXPECT_THAT(said, HasSubstr("recorded in traced: 4 ranks, 2 steps"));
    EXPECT_EQ(said.find("recorded in traced"), said.rfind("recorded in traced"));
  }
}

TEST_F(Launchers, RanksOnSeveralHostsGiveTheSameBits) {
  ASSERT_EQ(run("rung", "local", "local").code, 0);
  const Container cable;
  for (const bool names_alone : {true, false}) {
    if (!names_alone && !cable.there()) GTEST_SKIP() << kNoNetwork;
    const std::string out = names_alone ? "names" : "hosts";
    const ProgramEnd end = run("rung", names_alone ? on_three_hosts(folder_) : on_two_hosts(cable, folder_), out);
    EXPECT_EQ(end.code, 0) << end.out << end.err;
    expect_same_traces(folder_ / "local", folder_ / out);
  }
}

TEST_F(Launchers, MpichGivesTheSameBits) {
  if (lacks("mpirun.mpich")) GTEST_SKIP() << "no mpirun.mpich: apt-get install mpich";
  expect_as_local("mpich");
}

TEST_F(Launchers, TorchrunGivesTheSameBits) {
  if (lacks("torchrun")) GTEST_SKIP() << "no torchrun: python3 -m pip install torch";
  expect_as_local("torchrun");
}

TEST_F(Launchers, SlurmGivesTheSameBitsOnFourNodes) {
  if (lacks("slurmctld") && !std::filesystem::exists("/usr/sbin/slurmctld"))
    GTEST_SKIP() << "no slurmctld: apt-get install --no-install-recommends slurmctld slurmd slurm-client";
  const std::vector<std::string> in_cluster = {LOCKSTEP_SOURCE_DIR "/ci/slurm", "run"};
  if (const ProgramEnd end = Program({in_cluster[0], "run", "/bin/true"}, folder_.path(), {}).end(); end.code == 77) GTEST_SKIP() << end.err;
  expect_as_local("slurm -N4", in_cluster);
}

TEST_F(Launchers, SrunGivesTheSameBitsInAnAllocation) {
  if (!std::filesystem::exists("/usr/sbin/slurmctld"))
    GTEST_SKIP() << "no slurmctld: apt-get install --no-install-recommends slurmctld slurmd slurm-client";
  if (const ProgramEnd end = Program({LOCKSTEP_SOURCE_DIR "/ci/slurm", "run", "/bin/true"}, folder_.path(), {}).end(); end.code == 77)
    GTEST_SKIP() << end.err;
  expect_as_local("srun", {LOCKSTEP_SOURCE_DIR "/ci/slurm", "run", "salloc", "--quiet", "-N4"});
}

TEST_F(Launchers, ACheckStartsTasksOfSlurm) {
  const std::string slurm = LOCKSTEP_SOURCE_DIR "/ci/slurm",
                    path = LOCKSTEP_SOURCE_DIR "/.lockstep/venv/bin:" + std::string(std::getenv("PATH"));
  if (const ProgramEnd end = Program({slurm, "run", "/bin/true"}, folder_.path(), {}).end(); end.code == 77)
    GTEST_SKIP() << end.err;
  write_trainer(folder_.path());
  const std::string task = "RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec python train.py --batch {batch}";
  const std::vector<std::pair<std::string, std::string>> variables = {
      {"PATH", path}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29517"}};
  const ProgramEnd end =
      Program({slurm, "run", LOCKSTEP_BINARY_DIR "/bin/lockstep", "check", "--ranks", "2", "--steps", "2", "--out",
               folder_ / "checked", "--", "srun", "-n{ranks}", "-N{ranks}", "--overcommit", "sh", "-c", task},
              folder_.path(), variables)
          .end();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, testing::AllOf(HasSubstr("the same: 2 ranks as 1 rank"), HasSubstr("from float64 (the reference")));
}

TEST_F(Launchers, ARankStartedByHandWithAConflictingEnvironmentIsRefused) {
  const std::string again = prepared("again");
  const auto end_of = [&](const std::vector<std::string>& more, const Variables& variables = {}) {
    return by_hand(again, more, variables)->end();
  };
  Variables torchrun = {{"RANK", "0"}, {"WORLD_SIZE", "3"}};
  expect_usage_error(end_of({}, torchrun), HasSubstr("missing: LOCAL_RANK, MASTER_ADDR, MASTER_PORT"));
  torchrun.insert(torchrun.end(), {{"LOCAL_RANK", "0"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "3"}});
  expect_usage_error(end_of({}, torchrun), testing::AllOf(HasSubstr("torchrun says rank 0 of 3, and PMI says rank 1 of 3"),
                                                          HasSubstr("PMI_RANK=1"), HasSubstr("say --environment NAME")));
  expect_usage_error(end_of({"--rank", "0", "--world", "2"}), HasSubstr("brings 2 processes and this run wants 3"));
  expect_usage_error(end_of({}), HasSubstr("nobody says which of them this is"));
  expect_usage_error(by_hand(folder_ / "nothing", {})->end(), HasSubstr("lockstep plan CONFIG --prepare"));
  const ProgramEnd alone = end_of({"--rank", "0", "--world", "3", "--within", "0.3"});
  EXPECT_EQ(alone.code, 4);
  EXPECT_THAT(alone.err, HasSubstr("ranks of 3 did not come in time: ranks 1, 2."));
  // Nobody answers at MASTER_ADDR, and rank 0 never comes.
  const ProgramEnd orphan =
      by_hand(prepared("orphaned"), {"--within", "0.3"},
              {{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "192.0.2.77"}, {"MASTER_PORT", "29500"}})->end();
  EXPECT_EQ(orphan.code, 4);
  EXPECT_THAT(orphan.err, testing::AllOf(HasSubstr("rank 0 did not come in time; rank 1 waited in"), HasSubstr("wherever MASTER_ADDR points: is rank 0 started")));
}

TEST_F(Launchers, RanksThatCannotReachRankZeroEndWithItAtOnce) {
  const std::string again = prepared("again");
  const double began = monotonic_s();
  std::vector<std::unique_ptr<Program>> ranks;
  // Rank 0 says an address that nobody reaches.
  for (const std::string rank : {"0", "1", "2"})
    ranks.push_back(by_hand(again, {"--rank", rank, "--world", "3"}, {{"LOCKSTEP_HOST", "h" + rank}, {"LOCKSTEP_ADDRESS", "255.255.255.255"}}));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const ProgramEnd end = ranks[rank]->end();
    EXPECT_EQ(end.code, 4) << rank << end.err;
    EXPECT_THAT(end.err, testing::AllOf(HasSubstr("cannot reach it: Network is unreachable"), HasSubstr("Set LOCKSTEP_ADDRESS"))) << rank;
  }
  EXPECT_LT(monotonic_s() - began, 60) << "a rank waited for its whole timeout";
}

TEST_F(Launchers, RanksStartedByHandComputeTheSameBits) {
  for (const std::string store : {"file", "tcp"}) {
    const std::string again = prepared("again-" + store);
    std::vector<std::unique_ptr<Program>> ranks;
    for (const char* rank : {"2", "0", "1"}) ranks.push_back(by_hand(again, {"--rank", rank, "--world", "3"}, {{"LOCKSTEP_STORE", store}}));
    for (const auto& each : ranks) {
      const ProgramEnd end = each->end();
      EXPECT_EQ(end.code, 0) << store << ": " << end.err;
    }
    for (int rank = 0; rank < 3; ++rank) {
      const std::string trace = "/rank-" + std::to_string(rank) + ".trace";
      EXPECT_EQ(read_text(done_ + trace), read_text(again + trace)) << store;
    }
  }
}

TEST_F(Launchers, ADetachedRunIsFollowed) {
  const ProgramEnd begun = lockstep({"run", folder_ / "rung.yaml", "--out", folder_ / "out", "--detach"});
  EXPECT_EQ(begun.code, 0) << begun.err;
  EXPECT_THAT(begun.out, HasSubstr("lockstep wait"));
  const ProgramEnd waited = lockstep({"wait", folder_ / "out"});
  EXPECT_EQ(waited.code, 0) << waited.err;
  EXPECT_THAT(waited.out, HasSubstr("identical"));
  EXPECT_THAT(lockstep({"status", folder_ / "out"}).out, testing::AllOf(HasSubstr("ended: process"), HasSubstr("2 of 2 runs have finished; exit status 0")));
  expect_usage_error(lockstep({"wait", folder_.path()}), HasSubstr("session.json"));
}

// What befalls jobs on a cluster: nodes that die, schedulers that warn, ranks that hang out of sight, cells as an array. Each test has
// four Slurm nodes of its own on this machine, and leaves nothing behind.

namespace fs = std::filesystem;
using testing::AllOf;
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
  /// The job ends well, and its traces have the bytes of a run on this machine that nothing befell.
  void expect_bits_of_an_undisturbed_run() {
    const ProgramEnd waited = lockstep({"wait", out()});
    EXPECT_EQ(waited.code, 0) << waited.err << text_of(out() + "/job.log");
    host_ = "";
    const ProgramEnd local = lockstep({"run", folder_ / "play.yaml", "--out", folder_ / "local"});
    ASSERT_EQ(local.code, 0) << local.err;
    expect_same_traces(folder_ / "local", out());
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
  expect_bits_of_an_undisturbed_run();
  EXPECT_THAT(text_of(out() + "/job.log"), HasSubstr("resuming  4x6-s0-"));
}

TEST_F(Cluster, AJobWhoseOwnNodeDiesIsQueuedAgainAndGoesOn) {
  submit(kPlay, "slurm -N3-4", 2);
  kill_node("n1");
  expect_bits_of_an_undisturbed_run();
  EXPECT_THAT(losses(), AllOf(HasSubstr("queued again by Slurm, restart 1"), HasSubstr("n1 (Not responding)")));
  EXPECT_THAT(lockstep({"status", out()}).out, AllOf(HasSubstr("exit status 0"), HasSubstr("n1 (Not responding)")));
  EXPECT_THAT(text_of(out() + "/job.log"), HasSubstr("resuming  4x6-s0-"));
}

/// How Slurm signals by --signal=B:USR1@… and by --signal=USR1@…: the batch script alone, or the steps alone.
class ClusterWarns : public Cluster, public testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(BatchOrSteps, ClusterWarns, testing::Bool());

TEST_P(ClusterWarns, AndTheRunIsSavedQueuedAgainAndFinishedWithTheSameBits) {
  submit(kPlay, "slurm -N4", 1);
  std::vector<std::string> words = {"/usr/bin/scancel", "--signal=USR1", job()};
  if (GetParam()) words.insert(words.begin() + 1, "--batch");
  EXPECT_EQ(call(words).code, 0);
  expect_bits_of_an_undisturbed_run();
  EXPECT_THAT(losses(), HasSubstr("queued again by Slurm, restart 1"));
  EXPECT_THAT(text_of(out() + "/job.log"), AllOf(HasSubstr("stopped   4x6-s0-"), HasSubstr("resuming  4x6-s0-")));
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
