#pragma once
// What each launcher says to the processes that it starts, as variables of their environments, for any number of nodes and
// ranks on them.

#include <span>
#include <string_view>
#include <vector>

#include "harness/run/rank_environment.h"

namespace lockstep::launchers {

/// Ranks of each node, in the order of nodes; ranks are numbered node by node.
struct Placement {
  std::vector<int> ranks_of_node;
  int world() const;
  int nodes() const { return static_cast<int>(ranks_of_node.size()); }
  int node_of(int rank) const;
  int local_rank_of(int rank) const;
  bool even() const;
};
/// "2 + 1 + 3 ranks", "2 nodes of 8".
std::string in_words(const Placement& placement);

struct ExternalStart {
  std::string_view name;  ///< as rank environments are called
  /// The environment of that rank.
  Environment (*says)(const Placement& placement, int rank);
  bool one_a_node = false;  ///< starts one process on each node: pods
};
std::span<const ExternalStart> launchers();

/// A Slurm batch script's own environment: it is no rank, though SLURM_PROCID and SLURM_NTASKS are set.
Environment batch_script(const Placement& placement);
/// torchrun, started once on each node by srun, starts the node's ranks. Even placements.
Environment torchrun_inside_step(const Placement& placement, int rank);

}  // namespace lockstep::launchers
