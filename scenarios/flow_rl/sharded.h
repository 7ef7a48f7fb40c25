#pragma once
// Rollouts made by the ranks to which their tasks are partitioned, by measured cost, and handed to the ranks that have the rows. An
// episode is the same bits whoever makes it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/core/task.h"
#include "scenarios/flow_rl/exchange.h"

namespace lockstep {

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
