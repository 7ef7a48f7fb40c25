#include "harness/suites/launchers/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

namespace lockstep::launchers {
namespace {

Environment lockstep_says(const Placement& placement, int rank) {
  return {{"LOCKSTEP_RANK_ID", std::to_string(rank)},
          {"LOCKSTEP_WORLD_SIZE", std::to_string(placement.world())},
          {"LOCKSTEP_LOCAL_RANK", std::to_string(placement.local_rank_of(rank))},
          {"LOCKSTEP_NODE", std::to_string(placement.node_of(rank))},
          {"LOCKSTEP_RENDEZVOUS", "/shared/meet"}};
}

Environment torchrun_says(const Placement& placement, int rank) {
  const int node = placement.node_of(rank);
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(placement.world())},
          {"LOCAL_RANK", std::to_string(placement.local_rank_of(rank))},
          {"LOCAL_WORLD_SIZE", std::to_string(placement.ranks_of_node[static_cast<std::size_t>(node)])},
          {"GROUP_RANK", std::to_string(node)},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "job"},
          {"TORCHELASTIC_RESTART_COUNT", "0"}};
}

Environment slurm_says(const Placement& placement, int rank) {
  const int nodes = placement.nodes();
  return {{"SLURM_JOB_ID", "17"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_STEP_NUM_TASKS", std::to_string(placement.world())},
          {"SLURM_NTASKS", std::to_string(placement.world() + 1)},  // the job's: a step may be smaller
          {"SLURM_LOCALID", std::to_string(placement.local_rank_of(rank))},
          {"SLURM_NODEID", std::to_string(placement.node_of(rank))},
          {"SLURM_STEP_TASKS_PER_NODE", placement.even() && nodes > 1
                                            ? fmt::format("{}(x{})", placement.ranks_of_node.front(), nodes)
                                            : fmt::format("{}", fmt::join(placement.ranks_of_node, ","))},
          {"SLURM_STEP_NODELIST", nodes == 1 ? "node0" : fmt::format("node[0-{}]", nodes - 1)}};
}

Environment open_mpi_says(const Placement& placement, int rank) {
  const int node = placement.node_of(rank);
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(placement.world())},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(placement.local_rank_of(rank))},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(placement.ranks_of_node[static_cast<std::size_t>(node)])},
          {"PMIX_RANK", std::to_string(rank)},
          {"PMIX_NAMESPACE", "4104519681"}};
}

Environment pmi_says(const Placement& placement, int rank) {
  const int node = placement.node_of(rank);
  return {{"PMI_RANK", std::to_string(rank)},
          {"PMI_SIZE", std::to_string(placement.world())},
          {"MPI_LOCALRANKID", std::to_string(placement.local_rank_of(rank))},
          {"MPI_LOCALNRANKS", std::to_string(placement.ranks_of_node[static_cast<std::size_t>(node)])}};
}

Environment kubernetes_says(const Placement& placement, int rank) {
  return {{"JOB_COMPLETION_INDEX", std::to_string(rank)}, {"LOCKSTEP_WORLD_SIZE", std::to_string(placement.world())}};
}

}  // namespace

int Placement::world() const { return std::accumulate(ranks_of_node.begin(), ranks_of_node.end(), 0); }

int Placement::node_of(int rank) const {
  int node = 0;
  for (const int ranks : ranks_of_node) {
    if (rank < ranks) break;
    rank -= ranks;
    ++node;
  }
  return node;
}

int Placement::local_rank_of(int rank) const {
  return rank - std::accumulate(ranks_of_node.begin(), ranks_of_node.begin() + node_of(rank), 0);
}

bool Placement::even() const {
  return std::ranges::all_of(ranks_of_node, [&](int ranks) { return ranks == ranks_of_node.front(); });
}

std::string in_words(const Placement& placement) {
  if (placement.nodes() == 1) return fmt::format("1 node of {}", placement.ranks_of_node.front());
  if (placement.even()) return fmt::format("{} nodes of {}", placement.nodes(), placement.ranks_of_node.front());
  return fmt::format("nodes of {}", fmt::join(placement.ranks_of_node, " + "));
}

std::span<const ExternalStart> launchers() {
  static constexpr std::array kLaunchers{
      ExternalStart{"lockstep", lockstep_says},   ExternalStart{"torchrun", torchrun_says},
      ExternalStart{"Slurm step", slurm_says},    ExternalStart{"Open MPI", open_mpi_says},
      ExternalStart{"PMI", pmi_says},             ExternalStart{"Kubernetes", kubernetes_says, true}};
  return kLaunchers;
}

Environment batch_script(const Placement& placement) {
  Environment script = slurm_says(placement, 0);
  for (const char* of_a_step : {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST"})
    script.erase(of_a_step);
  script["SLURM_NTASKS"] = std::to_string(placement.world());
  return script;
}

Environment torchrun_inside_step(const Placement& placement, int rank) {
  Placement agents;
  agents.ranks_of_node.assign(static_cast<std::size_t>(placement.nodes()), 1);
  Environment both = torchrun_says(placement, rank);
  both.merge(slurm_says(agents, placement.node_of(rank)));
  return both;
}

}  // namespace lockstep::launchers
