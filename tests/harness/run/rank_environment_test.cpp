#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <numeric>
#include <set>
#include <sstream>

#include "harness/run/rank_environment.h"
#include "tests/support/said.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Environment kTorchrun = {{"RANK", "5"},         {"WORLD_SIZE", "8"},          {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"}, {"GROUP_RANK", "1"},      {"MASTER_ADDR", "node0"},
                               {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "job"}, {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Environment kSlurm = {{"SLURM_JOB_ID", "17"},      {"SLURM_STEP_ID", "3"},  {"SLURM_PROCID", "5"},
                            {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_NTASKS", "16"}, {"SLURM_LOCALID", "1"},
                            {"SLURM_NODEID", "1"},       {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"}, {"SLURM_STEP_NODELIST", "n[07-08]"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "5"},       {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"PMIX_RANK", "5"},            {"PMIX_NAMESPACE", "4104519681"}};
const Environment kMpich = {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};
const Environment kKubernetes = {{"JOB_COMPLETION_INDEX", "5"}, {"LOCKSTEP_WORLD_SIZE", "8"}};
const Environment kOwn = {{"LOCKSTEP_RANK_ID", "5"}, {"LOCKSTEP_WORLD_SIZE", "8"}, {"LOCKSTEP_LOCAL_RANK", "1"},
                          {"LOCKSTEP_RENDEZVOUS", "/shared/meet"}};

Environment operator+(Environment a, const Environment& b) {
  a.insert(b.begin(), b.end());
  return a;
}

Environment with(Environment base, const std::string& name, const std::string& value) {
  base[name] = value;
  return base;
}

Environment without(Environment base, const std::string& name) {
  base.erase(name);
  return base;
}

/// What was chosen, and what is wrong or worth a note.
std::string text_of(const Resolution& found) {
  std::string text = "none";
  if (const auto& it = found.chosen)
    text = fmt::format("{}: rank {} of {}, local {} of {}, node {}, at {}:{}{}, start {}, {} restarts", it->name,
                       it->rank, it->world, it->local_rank, it->local_world, it->node, it->address, it->port, it->file,
                       it->start, it->restarts);
  for (const std::string& problem : found.problems) text += "; problem: " + problem;
  for (const std::string& note : found.notes) text += "; note: " + note;
  return text;
}

TEST(RankEnvironment, IsReadFromEveryLauncherAndRefusedWhereItIsHalfOrNoNumber) {
  support::Said said;
  const auto read = [&](const std::string& what, const Environment& environment,
                        const std::vector<std::string>& options = {}) {
    said(what, text_of(resolve_rank_environment(environment, options)));
  };
  read("nobody's", {{"PATH", "/bin"}, {"MASTER_ADDR", "node0"}});
  read("torchrun", kTorchrun);
  read("Slurm", kSlurm);
  read("Open MPI", kOpenMpi);
  read("PMI", kMpich);
  read("Kubernetes", kKubernetes);
  read("lockstep", kOwn);
  read("a pod of a job set", {{"JOB_COMPLETION_INDEX", "1"},
                              {"LOCKSTEP_WORLD_SIZE", "8"},
                              {"LOCKSTEP_JOB_INDEX", "2"},
                              {"LOCKSTEP_JOB_COMPLETIONS", "2"}});
  read("lockstep's, and what torchrun says besides", without(kOwn, "LOCKSTEP_LOCAL_RANK") + kTorchrun);
  const std::pair<Environment, const char*> halves[] = {{kTorchrun, "LOCAL_RANK"},
                                                        {kTorchrun, "MASTER_PORT"},
                                                        {kTorchrun, "WORLD_SIZE"},
                                                        {kOpenMpi, "OMPI_COMM_WORLD_SIZE"},
                                                        {kMpich, "PMI_SIZE"},
                                                        {kMpich, "PMI_RANK"},
                                                        {kKubernetes, "LOCKSTEP_WORLD_SIZE"},
                                                        {kOwn, "LOCKSTEP_RANK_ID"}};
  for (const auto& [whole, lacking] : halves) read(std::string("without ") + lacking, without(whole, lacking));
  read("half beside a whole one", kSlurm + without(kTorchrun, "LOCAL_RANK"));
  const std::tuple<Environment, const char*, const char*> numbers[] = {
      {kTorchrun, "RANK", "five"}, {kMpich, "PMI_RANK", "-1"}, {kMpich, "PMI_RANK", "8"}, {kMpich, "PMI_SIZE", "0"},
      {kOpenMpi, "PMIX_RANK", "2"}, {kSlurm, "SLURM_LOCALID", "4"}};
  for (const auto& [whole, name, value] : numbers) read(fmt::format("{}={}", name, value), with(whole, name, value));
  read("--environment torchrum", kTorchrun, {"--environment", "torchrum"});
  read("--rank", {}, {"--rank"});
  read("--world 8", {}, {"--world", "8"});
  read("--rank 1", {}, {"--rank", "1"});
  read("--environment torchrun", kMpich, {"--environment", "torchrun"});
}
TEST(RankEnvironment, GoesByPrecedenceWhereAllAgree) {
  const Environment all = kOwn + kTorchrun + kSlurm + kOpenMpi + kMpich + kKubernetes;
  Environment left = all;
  const auto first = [&] {
    const Resolution found = resolve_rank_environment(left, {});
    EXPECT_THAT(found.problems, IsEmpty());
    return found.chosen ? found.chosen->name : "";
  };
  // A pod's local rank is 0 of 1, which the others contradict: it stands for a launcher of another kind.
  left.erase("JOB_COMPLETION_INDEX");
  EXPECT_EQ(first(), "lockstep");
  left.erase("LOCKSTEP_RANK_ID");
  left.erase("LOCKSTEP_LOCAL_RANK");
  EXPECT_EQ(first(), "torchrun");
  for (const auto& [name, value] : kTorchrun) left.erase(name);
  EXPECT_EQ(first(), "Slurm step");
  left.erase("SLURM_STEP_ID");
  left.erase("SLURM_JOB_ID");
  EXPECT_EQ(first(), "Open MPI");
  for (const auto& [name, value] : kOpenMpi) left.erase(name);
  EXPECT_EQ(first(), "PMI");
  EXPECT_EQ(resolve_rank_environment(all, {"--run", "x", "--rank", "5", "--world", "8"}).seen.front().rank_environment.name, "command line");
}

TEST(RankEnvironment, ThatContradictsAnotherIsRefusedAndBothAreShown) {
  for (const auto& [name, value] : Environment{{"SLURM_PROCID", "4"}, {"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_LOCALID", "0"}}) {
    const Resolution found = resolve_rank_environment(kTorchrun + with(kSlurm, name, value), {});
    EXPECT_FALSE(found.chosen) << name;
    ASSERT_THAT(found.problems, testing::SizeIs(1)) << name;
    EXPECT_THAT(found.problems[0], HasSubstr("torchrun says rank 5 of 8, and Slurm step says rank "));
    EXPECT_THAT(rank_environment_table(found), HasSubstr(name + "=" + value));
    EXPECT_THAT(rank_environment_table(found), HasSubstr("RANK=5"));
  }
  const Resolution chosen = resolve_rank_environment(kTorchrun + with(kSlurm, "SLURM_PROCID", "4"), {"--environment", "Slurm step"});
  ASSERT_TRUE(chosen.chosen);
  EXPECT_EQ(chosen.chosen->rank, 4);
}

TEST(RankEnvironment, OfALauncherInsideAnothersTaskIsNoContradiction) {
  const Environment node_task = {{"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"},
                                 {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "1"}};
  for (const Environment& inner : {kTorchrun, kOpenMpi, kMpich}) {
    const Resolution both = resolve_rank_environment(inner + node_task, {});
    ASSERT_TRUE(both.chosen) << testing::PrintToString(both.problems);
  }
  EXPECT_EQ(resolve_rank_environment(kTorchrun + node_task, {}).chosen->rank, 5);
  EXPECT_FALSE(resolve_rank_environment(kTorchrun + with(node_task, "SLURM_PROCID", "0"), {}).chosen);
}

TEST(RankEnvironment, OfABatchScriptIsNoRank) {
  const Environment script = {{"SLURM_JOB_ID", "17"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}};
  for (const Environment& environment : {script, with(script, "SLURM_STEP_ID", "4294967291")}) {
    const Resolution found = resolve_rank_environment(environment, {});
    EXPECT_FALSE(found.chosen);
    EXPECT_THAT(found.problems, IsEmpty());
    EXPECT_THAT(found.notes, ElementsAre(HasSubstr("inside Slurm job 17, and in no step")));
    EXPECT_EQ(batch_job(environment), "17");
  }
  EXPECT_EQ(batch_job(kSlurm), "");
}

TEST(RankEnvironment, ReadsSlurmsLists) {
  EXPECT_EQ(first_host("n[07-12,20],m3"), "n07");
  EXPECT_EQ(first_host("m3,n[1-4]"), "m3");
  EXPECT_EQ(first_host("solo"), "solo");
  EXPECT_EQ(first_host(""), "");
  EXPECT_EQ(tasks_of_node("2(x3),1", 2), 2);
  EXPECT_EQ(tasks_of_node("2(x3),1", 3), 1);
  EXPECT_EQ(tasks_of_node("2(x3),1", 4), -1);
  EXPECT_EQ(tasks_of_node("what", 0), -1);
}

TEST(RankEnvironment, GivesEachLocalRankADevice) {
  EXPECT_EQ(device_of(3, std::nullopt, 4), 3);
  EXPECT_EQ(device_of(5, std::nullopt, 4), 1) << "more ranks than devices share them";
  EXPECT_EQ(device_of(1, "2,3", 4), 1);
  EXPECT_EQ(device_of(3, "2", 4), 0) << "the launcher gave the rank one of its own";
  EXPECT_EQ(device_of(0, "", 4), -1);
  EXPECT_EQ(device_of(0, "-1", 4), -1);
  EXPECT_EQ(device_of(0, std::nullopt, 0), -1);
}

// Every rank of every placement on nodes, by the variables of every launcher: which rank it is and which GPU it takes;
// and mistakes, each of which is refused.

using testing::PrintToString;

constexpr int kDevices = 8;

/// Ranks of each node; ranks are numbered node by node.
using Placement = std::vector<int>;

int before(const Placement& p, int node) { return std::accumulate(p.begin(), p.begin() + node, 0); }
int world_of(const Placement& p) { return before(p, static_cast<int>(p.size())); }
int node_of(const Placement& p, int rank) {
  int node = 0;
  while (rank >= before(p, node + 1)) ++node;
  return node;
}
int local_of(const Placement& p, int rank) { return rank - before(p, node_of(p, rank)); }

/// On up to four nodes: all alike; of several ranks on several nodes, the last node short, and the first long too.
std::vector<Placement> placements() {
  std::vector<Placement> all;
  for (std::size_t nodes = 1; nodes <= 4; ++nodes) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      all.emplace_back(nodes, ranks);
      if (nodes == 1 || ranks == 1) continue;
      Placement uneven(nodes, ranks);
      uneven.back() = 1;
      all.push_back(uneven);
      uneven.front() = ranks + 1;
      all.push_back(uneven);
    }
  }
  return all;
}

const std::string kByLockstep =
    "LOCKSTEP_RANK_ID={rank} LOCKSTEP_WORLD_SIZE={world} LOCKSTEP_LOCAL_RANK={local} LOCKSTEP_NODE={node}";
const std::string kByTorchrun =
    "RANK={rank} WORLD_SIZE={world} LOCAL_RANK={local} LOCAL_WORLD_SIZE={locals} GROUP_RANK={node} MASTER_ADDR=node0 "
    "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=job TORCHELASTIC_RESTART_COUNT=0";
const std::string kBySlurm =
    "SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_PROCID={rank} SLURM_STEP_NUM_TASKS={world} SLURM_NTASKS={more} "
    "SLURM_LOCALID={local} SLURM_NODEID={node} SLURM_STEP_TASKS_PER_NODE={list}";
const std::string kByOpenMpi =
    "OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE={world} OMPI_COMM_WORLD_LOCAL_RANK={local} "
    "OMPI_COMM_WORLD_LOCAL_SIZE={locals} PMIX_RANK={rank} PMIX_NAMESPACE=4104519681";
const std::string kPmi = "PMI_RANK={rank} PMI_SIZE={world} MPI_LOCALRANKID={local} MPI_LOCALNRANKS={locals}";
const std::string kPods = "JOB_COMPLETION_INDEX={rank} LOCKSTEP_WORLD_SIZE={world}";
const std::string kInAStep =
    kByTorchrun + " SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_PROCID={node} SLURM_STEP_NUM_TASKS={nodes} SLURM_LOCALID=0 "
                "SLURM_NODEID={node} SLURM_STEP_TASKS_PER_NODE=1(x{nodes})";
const std::string kHooks = kByTorchrun + " " + kByOpenMpi;  // as a container's hooks set them

/// The environment of that rank.
Environment says(const std::string& launcher, const Placement& p, int rank) {
  using fmt::arg;
  const int node = node_of(p, rank), world = world_of(p), locals = p[static_cast<std::size_t>(node)];
  const std::string list = fmt::format("{}", fmt::join(p, ","));
  std::istringstream words(fmt::format(fmt::runtime(launcher), arg("rank", rank), arg("world", world), arg("node", node),
                                       arg("local", local_of(p, rank)), arg("locals", locals), arg("nodes", p.size()),
                                       arg("more", world + 1), arg("list", list)));
  Environment environment;
  for (std::string word; words >> word;) environment[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  return environment;
}

struct Launcher {
  const char *label, *name;
  const std::string& variables;
};

class Placements : public testing::TestWithParam<Launcher> {};

TEST_P(Placements, GiveEachRankItsNumbersAndAGpuOfItsOwn) {
  for (const Placement& p : placements()) {
    const bool even = std::ranges::count(p, p.front()) == static_cast<int64_t>(p.size());
    if (&GetParam().variables == &kPods && (!even || p.front() != 1)) continue;  // a pod has one rank
    if (&GetParam().variables == &kInAStep && !even) continue;
    std::set<std::pair<int, int>> devices;
    for (int rank = 0; rank < world_of(p); ++rank) {
      const Resolution found = resolve_rank_environment(says(GetParam().variables, p, rank), {});
      ASSERT_TRUE(found.chosen) << PrintToString(p) << PrintToString(found.problems);
      EXPECT_EQ(found.chosen->name, GetParam().name);
      EXPECT_EQ(std::pair(found.chosen->rank, found.chosen->world), std::pair(rank, world_of(p)));
      EXPECT_EQ(found.chosen->local_rank, local_of(p, rank)) << rank << PrintToString(p);
      const int device = device_of(found.chosen->local_rank, std::nullopt, kDevices);
      EXPECT_TRUE(local_of(p, rank) >= kDevices || devices.emplace(node_of(p, rank), device).second) << "a GPU twice";
    }
  }
}

const Launcher kLaunchers[] = {{"lockstep", "lockstep", kByLockstep},
                               {"torchrun", "torchrun", kByTorchrun},
                               {"slurm", "Slurm step", kBySlurm},
                               {"open_mpi", "Open MPI", kByOpenMpi},
                               {"pmi", "PMI", kPmi},
                               {"kubernetes", "Kubernetes", kPods},
                               {"torchrun_in_a_step", "torchrun", kInAStep},
                               {"torchrun_and_open_mpi", "torchrun", kHooks}};
INSTANTIATE_TEST_SUITE_P(Each, Placements, testing::ValuesIn(kLaunchers),
                         [](const auto& info) { return std::string(info.param.label); });

TEST(PlantedMistakes, OfLaunchersAreRefusedUnderEveryPlacement) {
  const auto expect_refused = [](const Placement& p, const Environment& environment, const std::string& why,
                                 const std::vector<std::string>& arguments = {}) {
    const Resolution found = resolve_rank_environment(environment, arguments);
    EXPECT_FALSE(found.chosen) << PrintToString(p);
    EXPECT_THAT(fmt::format("{}", fmt::join(found.problems, "; ")), HasSubstr(why)) << PrintToString(p);
  };
  for (const Placement& p : placements()) {
    const int world = world_of(p);
    for (int rank = 0; rank < world; ++rank) {
      // Too many for either to have started the other on each node.
      for (const auto& [other, of] : {std::pair(rank + 1, world + 1), std::pair(rank, world + 101)}) {
        Environment both = says(kByTorchrun + " " + kBySlurm, p, rank);
        both["SLURM_PROCID"] = std::to_string(other);
        both["SLURM_STEP_NUM_TASKS"] = std::to_string(of);
        expect_refused(p, both, "and Slurm step says rank");
      }
    }
    for (const char* without : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
      Environment half = says(kByTorchrun, p, 0);
      half.erase(without);
      expect_refused(p, half, without);
    }
    // A number of processes that is written into the program. Of as many nodes each could start its own ranks.
    if (world != 8) expect_refused(p, says(kByTorchrun, p, 0), "of 8", {"--rank", "0", "--world", "8"});
    Environment script = says(kBySlurm, p, 0);
    std::erase_if(script, [](const auto& each) { return each.first.starts_with("SLURM_STEP"); });
    const Resolution found = resolve_rank_environment(script, {});
    EXPECT_TRUE(!found.chosen && found.problems.empty()) << "a batch script is no rank";
  }
}

TEST(Devices, AreTheJobsOwnAndOneForEachRank) {
  for (int given = 1; given <= kDevices; ++given) {
    for (int first = 0; first + given <= kDevices; ++first) {
      std::vector<int> of_job(static_cast<std::size_t>(given));
      std::iota(of_job.begin(), of_job.end(), first);
      for (int local = 0; local < given; ++local) {
        const int seen = device_of(local, fmt::format("{}", fmt::join(of_job, ",")), kDevices);
        EXPECT_EQ(of_job.at(static_cast<std::size_t>(seen)), first + local);
        EXPECT_EQ(device_of(local, std::to_string(first + local), kDevices), 0) << "it is shown that one alone";
        // A program that deletes CUDA_VISIBLE_DEVICES takes another GPU than its own.
        EXPECT_EQ(device_of(local, std::nullopt, kDevices) == first + local, first == 0);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
