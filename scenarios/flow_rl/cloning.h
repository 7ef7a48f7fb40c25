#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/core/task.h"
#include "harness/verdict/config/run_config.h"
#include "scenarios/flow_rl/exchange.h"
#include "scenarios/flow_rl/policy.h"
#include "scenarios/flow_rl/rollout.h"

// The start of training: the policy cloned from a scripted expert whose actions are noisy.

namespace lockstep {

struct Cloned {
  std::vector<at::Tensor> parameters;           ///< float64, in the model's order
  std::vector<rewards::Moments> seen;           ///< of what the expert saw, by observed number
  double success = 0;                           ///< of the policy, on the last probing episodes
  int64_t updates = 0;
};

/// Flow matching (Lipman et al. 2023) on the grid of the chain's transitions, in float64, until clone.success is reached on
/// probing episodes or clone.steps are taken. The same bits for the same config.
Cloned clone_expert(const RunConfig& config);

/// Share of so many episodes of each task that succeed, and mean reward and cost, by task in the order of tasks_of. States
/// and noise depend on the key alone.
struct Tried {
  int task = 0;
  double success = 0, reward = 0, cost = 0;
};
std::vector<Tried> try_policy(const FlowRlConfig& own, const PlainPolicy& policy, const ObservationScale& scale,
                              uint64_t key, int episodes);

// Rollouts made by the ranks to which their tasks are partitioned, by measured cost, and handed to the ranks that have the rows. An
// episode is the same bits whoever makes it.

/// Simulated steps of each task's episodes so far: what one costs. Equal on all ranks, as it is made of what all of them know.
class TaskCosts {
 public:
  TaskCosts();
  /// Of each of these tasks, so far; `horizon` where none was measured.
  std::vector<double> of(std::span<const int> tasks, int horizon) const;
  void add(const StepRows& rows, std::span<const double> steps);
  NamedBuffer buffer() const { return {"buffer/task_costs", sums_}; }

 private:
  at::Tensor sums_;  ///< [tasks of the suite, episodes and steps] float64
};

/// Whose rows' rollouts each rank makes, and how even that is.
struct RolloutPartition {
  std::vector<std::vector<std::size_t>> rows;  ///< by rank, rows of StepRows; whole groups
  double imbalance = 1;                        ///< when the last rank ends, over when all would at best
};
RolloutPartition partition_rollouts(const FlowRlConfig& own, const StepRows& rows, const TaskCosts& costs, int ranks);

/// Episodes of this rank's own rows, of which others made some. Collective ("rl.rollouts").
///
///   made  this rank's of the partition, in its order
std::vector<Episode> hand_over(Comm& comm, int64_t step, const FlowConfig& flow, const StepRows& rows,
                               std::span<const std::size_t> made_rows, std::span<const Episode> made);

}  // namespace lockstep
