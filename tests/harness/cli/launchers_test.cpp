// The same matrix, whoever starts its ranks: the same bits, the same verdicts.

#include <gmock/gmock.h>

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "harness/base/machine.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/libraries.h"
#include "harness/run/watch.h"
#include "tests/support/program.h"

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
  /// Every trace of `other` has the bytes of the one of the same run and rank in `local`.
  void expect_same_traces(const std::string& local, const std::string& other) {
    int compared = 0;
    for (const auto& run : std::filesystem::directory_iterator(folder_ / (local + "/runs"))) {
      for (const auto& file : std::filesystem::directory_iterator(run.path())) {
        if (file.path().extension() != ".trace") continue;
        const std::string same = folder_ / (other + "/runs/" + run.path().filename().string() + "/" + file.path().filename().string());
        ASSERT_TRUE(std::filesystem::exists(same)) << same;
        EXPECT_EQ(read_text(file.path()), read_text(same)) << same;
        ++compared;
      }
    }
    EXPECT_GE(compared, 6);
  }
  void expect_as_local(const std::string& launcher, const std::vector<std::string>& before = {}) {
    for (const std::string name : {"rung", "parity"}) {
      const ProgramEnd local = run(name, "local", name + "-local");
      ASSERT_EQ(local.code, 0) << local.out << local.err;
      const ProgramEnd other = run(name, launcher, name + "-other", before);
      ASSERT_EQ(other.code, 0) << other.out << other.err;
      expect_same_traces(name + "-local", name + "-other");
    }
  }
  const TempFolder folder_;
};

bool lacks(const std::string& program) {
  return find_program(program).empty() && !std::filesystem::exists(LOCKSTEP_SOURCE_DIR "/.lockstep/venv/bin/" + program);
}

TEST_F(Launchers, OpenMpiGivesTheSameBits) {
  if (lacks("mpirun.openmpi")) GTEST_SKIP() << "no mpirun.openmpi: apt-get install openmpi-bin";
  expect_as_local("openmpi");
}

/// mpirun with a rank on each of three hosts, which are names and addresses of this one.
std::string on_three_hosts() {
  std::string launcher = "external:mpirun.openmpi --oversubscribe";
  for (const char* rank : {"0", "1", "2"}) {
    launcher += std::string(rank[0] == '0' ? "" : " :") + " -n 1 env LOCKSTEP_ROOM={ranks} LOCKSTEP_HOST=h" + rank + " LOCKSTEP_ADDRESS=127.0.0.1" +
                rank + " {rank_program} run {run} --prepared";
  }
  return launcher;
}

TEST_F(Launchers, ARankThatHangsOnAnotherHostIsNamed) {
  if (lacks("mpirun.openmpi")) GTEST_SKIP() << "no mpirun.openmpi: apt-get install openmpi-bin";
  std::string config = kLadder;
  config.replace(config.find("steps: 4"), 8, "steps: 300\nwatch: {step_s: 3}");
  std::ofstream(folder_ / "long.yaml") << config;
  std::unique_ptr<Program> matrix = begun("long", on_three_hosts(), "out");
  // When it trains.
  const std::string run = wait_for_rank_process(2);
  ASSERT_FALSE(run.empty());
  HeartbeatFile heartbeats = HeartbeatFile::open(run + "/heartbeat", 3);
  for (const double until = monotonic_s() + 60; heartbeats.step(2) < 3 && monotonic_s() < until;) ::poll(nullptr, 0, 20);
  ASSERT_GE(heartbeats.step(2), 3);
  ASSERT_EQ(::kill(read_arrival(run, 2).process, SIGSTOP), 0);
  const ProgramEnd end = matrix->end();
  EXPECT_EQ(end.code, 4) << end.err;
  EXPECT_THAT(end.out + end.err, testing::AllOf(HasSubstr("rank 2"), HasSubstr("its process is stopped by a signal"), HasSubstr("it runs on host h2 (process ")));
}

/// A network of its own, as a container has, on a cable to this host that can be cut.
class Container {
 public:
  Container() {
    const std::string number = std::to_string(::getpid()), net = "10.231." + std::to_string(::getpid() % 250);
    name_ = "lockstep-" + number;
    const std::string here = "lk" + number.substr(0, 7) + "a", there = "lk" + number.substr(0, 7) + "b", inside = "ip netns exec " + name_ + " ";
    for (const std::string& command :
         {"ip netns add " + name_, "ip link add " + here + " type veth peer name " + there, "ip link set " + there + " netns " + name_,
          "ip addr add " + net + ".1/24 dev " + here, "ip link set " + here + " up", inside + "ip addr add " + net + ".2/24 dev " + there,
          inside + "ip link set " + there + " up", inside + "ip link set lo up", inside + "ip route add default via " + net + ".1"})
      there_ = there_ && says_yes(command);
    ends_ = {{"ip neigh", net + ".2 dev " + here}, {inside + "ip neigh", net + ".1 dev " + there}};
  }
  ~Container() { says_yes("ip netns del " + name_); }
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;
  bool there() const { return there_; }
  std::string within() const { return "ip netns exec " + name_; }
  /// A cut one loses all, both ways, and nobody says so: each end takes the other for one that is not there.
  void cable(bool whole) const {
    for (const auto& [neighbours, other] : ends_)
      EXPECT_TRUE(says_yes(whole ? neighbours + " del " + other : neighbours + " replace " + other + " lladdr 02:00:00:00:00:99 nud permanent"));
  }

 private:
  static bool says_yes(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }
  std::string name_;
  std::vector<std::pair<std::string, std::string>> ends_;
  bool there_ = true;
};

/// One name, two hosts: mpirun with two ranks here and rank 2 in the container.
std::string on_two_hosts(const Container& container) {
  return "external:mpirun.openmpi --oversubscribe -n 2 env LOCKSTEP_ROOM={ranks} {rank_program} run {run} --prepared : -n 1 " + container.within() +
         " {rank_program} run {run} --prepared";
}

/// The matrix with those lines in the place of its steps.
std::string ladder_with(const std::string& lines) {
  std::string config = kLadder;
  return config.replace(config.find("steps: 4"), 8, lines);
}

bool rank_2_reaches(const HeartbeatFile& heartbeats, int64_t step) {
  for (const double until = monotonic_s() + 60; heartbeats.step(2) < step && monotonic_s() < until;) ::poll(nullptr, 0, 20);
  return heartbeats.step(2) >= step;
}

TEST_F(Launchers, ACableThatIsCutForEverIsNamedAndTheRunStartsAgain) {
  if (lacks("mpirun.openmpi")) GTEST_SKIP() << "no mpirun.openmpi: apt-get install openmpi-bin";
  const Container container;
  if (!container.there()) GTEST_SKIP() << "no network of its own for a process here: it takes root, and ip (package iproute2)";
  std::ofstream(folder_ / "long.yaml") << ladder_with("steps: 300\ntimeout_s: 20\ncheckpoint: {every: 20}");
  std::unique_ptr<Program> matrix = begun("long", on_two_hosts(container), "out");
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
  if (lacks("mpirun.openmpi")) GTEST_SKIP() << "no mpirun.openmpi: apt-get install openmpi-bin";
  const Container container;
  if (!container.there()) GTEST_SKIP() << "no network of its own for a process here: it takes root, and ip (package iproute2)";
  std::ofstream(folder_ / "long.yaml") << ladder_with("steps: 1500\nwatch: {step_s: 1.5}");
  std::unique_ptr<Program> matrix = begun("long", on_two_hosts(container), "out");
  const std::string run = wait_for_rank_process(2);
  ASSERT_FALSE(run.empty());
  HeartbeatFile heartbeats = HeartbeatFile::open(run + "/heartbeat", 3);
  const auto reaches = [&heartbeats](int64_t step) { return rank_2_reaches(heartbeats, step); };
  ASSERT_TRUE(reaches(3));
  container.cable(false);
  ::poll(nullptr, 0, 4000);  // more than twice what a step may take
  container.cable(true);
  ASSERT_TRUE(reaches(heartbeats.step(2) + 20)) << read_text(run + "/rank-2.log") << read_text(run + "/launcher.log");
  ASSERT_EQ(::kill(read_arrival(run, 2).process, SIGSTOP), 0);
  const ProgramEnd end = matrix->end();
  EXPECT_EQ(end.code, 4) << end.err;
  EXPECT_THAT(end.out + end.err, testing::AllOf(HasSubstr("rank 2"), HasSubstr("its process is stopped by a signal"), HasSubstr("it runs on host ")));
}

TEST_F(Launchers, RanksOnSeveralHostsGiveTheSameBits) {
  if (lacks("mpirun.openmpi")) GTEST_SKIP() << "no mpirun.openmpi: apt-get install openmpi-bin";
  ASSERT_EQ(run("rung", "local", "local").code, 0);
  const ProgramEnd end = run("rung", on_three_hosts(), "hosts");
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  expect_same_traces("local", "hosts");
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

TEST_F(Launchers, ARankStartedByHandWithAConflictingEnvironmentIsRefused) {
  ASSERT_EQ(run("rung", "local", "done").code, 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "done/runs")) {
    if (entry.path().filename().string().find("emulated") != std::string::npos) continue;
    std::filesystem::create_directory(folder_ / "again");
    std::filesystem::copy_file(entry.path() / "run.json", folder_ / "again/run.json");
  }
  const std::string program = LOCKSTEP_BINARY_DIR "/bin/lockstep-rank";
  const std::vector<std::pair<std::string, std::string>> both = {
      {"RANK", "0"}, {"WORLD_SIZE", "3"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "3"}};
  expect_usage_error(Program({program, "run", folder_ / "again"}, folder_.path(), both).end(),
                     testing::AllOf(HasSubstr("torchrun says rank 0 of 3, and PMI says rank 1 of 3"), HasSubstr("PMI_RANK=1"),
                                    HasSubstr("say --environment NAME")));
  expect_usage_error(Program({program, "run", folder_ / "again"}, folder_.path(), {{"RANK", "0"}, {"WORLD_SIZE", "3"}}).end(),
                     HasSubstr("missing: LOCAL_RANK, MASTER_ADDR, MASTER_PORT"));
  expect_usage_error(Program({program, "run", folder_ / "again", "--rank", "0", "--world", "2"}, folder_.path(), {}).end(),
                     HasSubstr("brings 2 processes and this run wants 3"));
  expect_usage_error(Program({program, "run", folder_ / "again"}, folder_.path(), {}).end(),
                     HasSubstr("nobody says which of them this is"));
  expect_usage_error(Program({program, "run", folder_ / "nothing"}, folder_.path(), {}).end(), HasSubstr("lockstep plan CONFIG --prepare"));
  const ProgramEnd alone = Program({program, "run", folder_ / "again", "--rank", "0", "--world", "3", "--within", "0.3"}, folder_.path(), {}).end();
  EXPECT_EQ(alone.code, 4);
  EXPECT_THAT(alone.err, HasSubstr("ranks of 3 did not come in time: ranks 1, 2."));
  // Nobody answers at MASTER_ADDR, and rank 0 never comes.
  std::filesystem::create_directory(folder_ / "orphaned");
  std::filesystem::copy_file(folder_ / "again/run.json", folder_ / "orphaned/run.json");
  const ProgramEnd orphan =
      Program({program, "run", folder_ / "orphaned", "--within", "0.3"}, folder_.path(),
              {{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "192.0.2.77"}, {"MASTER_PORT", "29500"}}).end();
  EXPECT_EQ(orphan.code, 4);
  EXPECT_THAT(orphan.err, testing::AllOf(HasSubstr("rank 0 did not come in time; rank 1 waited in"), HasSubstr("wherever MASTER_ADDR points: is rank 0 started")));
}

TEST_F(Launchers, RanksThatCannotReachRankZeroEndWithItAtOnce) {
  ASSERT_EQ(run("rung", "local", "done").code, 0);
  std::filesystem::create_directory(folder_ / "again");
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "done/runs")) {
    if (entry.path().filename().string().find("emulated") == std::string::npos) std::filesystem::copy_file(entry.path() / "run.json", folder_ / "again/run.json");
  }
  const double began = monotonic_s();
  std::vector<std::unique_ptr<Program>> ranks;
  for (const std::string rank : {"0", "1", "2"}) {
    // Rank 0 says an address that nobody reaches.
    const std::vector<std::pair<std::string, std::string>> variables = {{"LOCKSTEP_HOST", "h" + rank}, {"LOCKSTEP_ADDRESS", "255.255.255.255"}};
    ranks.push_back(std::make_unique<Program>(
        std::vector<std::string>{LOCKSTEP_BINARY_DIR "/bin/lockstep-rank", "run", folder_ / "again", "--rank", rank, "--world", "3"}, folder_.path(), variables));
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const ProgramEnd end = ranks[rank]->end();
    EXPECT_EQ(end.code, 4) << rank << end.err;
    EXPECT_THAT(end.err, testing::AllOf(HasSubstr("cannot reach it: Network is unreachable"), HasSubstr("Set LOCKSTEP_ADDRESS"))) << rank;
  }
  EXPECT_LT(monotonic_s() - began, 60) << "a rank waited for its whole timeout";
}

TEST_F(Launchers, RanksStartedByHandComputeTheSameBits) {
  ASSERT_EQ(run("rung", "local", "local").code, 0);
  std::string done;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "local/runs")) {
    if (entry.path().filename().string().find("emulated") == std::string::npos) done = entry.path().string();
  }
  for (const std::string store : {"file", "tcp"}) {
    const std::string again = folder_ / ("again-" + store);
    std::filesystem::create_directory(again);
    std::filesystem::copy_file(done + "/run.json", again + "/run.json");
    std::vector<std::unique_ptr<Program>> ranks;
    for (const char* rank : {"2", "0", "1"}) {
      ranks.push_back(std::make_unique<Program>(
          std::vector<std::string>{LOCKSTEP_BINARY_DIR "/bin/lockstep-rank", "run", again, "--rank", rank, "--world", "3"}, folder_.path(),
          std::vector<std::pair<std::string, std::string>>{{"LOCKSTEP_STORE", store}}));
    }
    for (const auto& each : ranks) {
      const ProgramEnd end = each->end();
      EXPECT_EQ(end.code, 0) << store << ": " << end.err;
    }
    for (int rank = 0; rank < 3; ++rank) {
      const std::string trace = "/rank-" + std::to_string(rank) + ".trace";
      EXPECT_EQ(read_text(done + trace), read_text(again + trace)) << store;
    }
  }
}

TEST_F(Launchers, ADetachedRunIsFollowed) {
  const ProgramEnd begun = Program({LOCKSTEP_BINARY_DIR "/bin/lockstep", "run", folder_ / "rung.yaml", "--out", folder_ / "out", "--detach"},
                                   folder_.path(), {}).end();
  EXPECT_EQ(begun.code, 0) << begun.err;
  EXPECT_THAT(begun.out, HasSubstr("lockstep wait"));
  const ProgramEnd waited = Program({LOCKSTEP_BINARY_DIR "/bin/lockstep", "wait", folder_ / "out"}, folder_.path(), {}).end();
  EXPECT_EQ(waited.code, 0) << waited.err;
  EXPECT_THAT(waited.out, HasSubstr("identical"));
  const ProgramEnd after = Program({LOCKSTEP_BINARY_DIR "/bin/lockstep", "status", folder_ / "out"}, folder_.path(), {}).end();
  EXPECT_THAT(after.out, testing::AllOf(HasSubstr("ended: process"), HasSubstr("2 of 2 runs have finished; exit status 0")));
  expect_usage_error(Program({LOCKSTEP_BINARY_DIR "/bin/lockstep", "wait", folder_.path()}, folder_.path(), {}).end(),
                     HasSubstr("session.json"));
}

}  // namespace
}  // namespace lockstep
