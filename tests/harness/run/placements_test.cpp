// Every rank of every placement on nodes, by the variables of every launcher: which rank it is and which GPU it takes;
// and mistakes, each of which is refused.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <numeric>
#include <set>
#include <sstream>

#include "harness/run/rank_environment.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
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

const std::string kLockstep =
    "LOCKSTEP_RANK_ID={rank} LOCKSTEP_WORLD_SIZE={world} LOCKSTEP_LOCAL_RANK={local} LOCKSTEP_NODE={node}";
const std::string kTorchrun =
    "RANK={rank} WORLD_SIZE={world} LOCAL_RANK={local} LOCAL_WORLD_SIZE={locals} GROUP_RANK={node} MASTER_ADDR=node0 "
    "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=job TORCHELASTIC_RESTART_COUNT=0";
const std::string kSlurm =
    "SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_PROCID={rank} SLURM_STEP_NUM_TASKS={world} SLURM_NTASKS={more} "
    "SLURM_LOCALID={local} SLURM_NODEID={node} SLURM_STEP_TASKS_PER_NODE={list}";
const std::string kOpenMpi =
    "OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE={world} OMPI_COMM_WORLD_LOCAL_RANK={local} "
    "OMPI_COMM_WORLD_LOCAL_SIZE={locals} PMIX_RANK={rank} PMIX_NAMESPACE=4104519681";
const std::string kPmi = "PMI_RANK={rank} PMI_SIZE={world} MPI_LOCALRANKID={local} MPI_LOCALNRANKS={locals}";
const std::string kPods = "JOB_COMPLETION_INDEX={rank} LOCKSTEP_WORLD_SIZE={world}";
const std::string kInAStep =
    kTorchrun + " SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_PROCID={node} SLURM_STEP_NUM_TASKS={nodes} SLURM_LOCALID=0 "
                "SLURM_NODEID={node} SLURM_STEP_TASKS_PER_NODE=1(x{nodes})";
const std::string kHooks = kTorchrun + " " + kOpenMpi;  // as a container's hooks set them

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

const Launcher kLaunchers[] = {{"lockstep", "lockstep", kLockstep},
                               {"torchrun", "torchrun", kTorchrun},
                               {"slurm", "Slurm step", kSlurm},
                               {"open_mpi", "Open MPI", kOpenMpi},
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
        Environment both = says(kTorchrun + " " + kSlurm, p, rank);
        both["SLURM_PROCID"] = std::to_string(other);
        both["SLURM_STEP_NUM_TASKS"] = std::to_string(of);
        expect_refused(p, both, "and Slurm step says rank");
      }
    }
    for (const char* without : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
      Environment half = says(kTorchrun, p, 0);
      half.erase(without);
      expect_refused(p, half, without);
    }
    // A number of processes that is written into the program. Of as many nodes each could start its own ranks.
    if (world != 8) expect_refused(p, says(kTorchrun, p, 0), "of 8", {"--rank", "0", "--world", "8"});
    Environment script = says(kSlurm, p, 0);
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
