#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "harness/lib/rewards/advantages.h"
#include "harness/plan/config/run_config.h"
#include "harness/trainers/comm/comm.h"
#include "harness/trainers/core/task.h"
#include "scenarios/flow_rl/rollout.h"
#include "scenarios/mutants/flow_rl_fault.h"

// Running statistics of what the policy sees and of returns: made of all ranks' rows in the batch's order, so that they are
// the same bits under every layout.

namespace lockstep {

/// What all merged at the last synchronisation, and the delta since, which is merged by Chan's formula: history is counted
/// once.
class RunningStatistics {
 public:
  RunningStatistics();
  /// What training begins with.
  void begin(std::span<const rewards::Moments> seen);
  ObservationScale scale() const;
  /// Deviation of returns; 1 while there are fewer than two.
  double return_deviation() const;
  /// Adds a step's rows to the delta; `merges`: and takes it up.
  void add(std::span<const rewards::Moments> seen, const rewards::Moments& returns, bool merges);
  NamedBuffer buffer() const { return {"buffer/running_statistics", state_}; }

 private:
  rewards::Moments at(int64_t part, int64_t which) const;
  void put(int64_t part, int64_t which, const rewards::Moments& moments);

  at::Tensor state_;  ///< [merged and delta, O and the return, count and mean and m2] float64
};

// What ranks tell each other of a step's episodes, and the advantages that all of them make of it alike.

/// The step's rows of all ranks, in the order of their ids: that is the same however they are partitioned, shuffled or permuted.
/// Groups are `group` consecutive rows of it; what a group's rows share is keyed by the id of its first one, so that no
/// initial state comes twice in a round of the ids.
class StepRows {
 public:
  /// Collective ("rl.ids").
  StepRows(const RunConfig& config, Comm& comm, const StepInput& input);

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  /// Where this rank's rows stand, in the order of the step's ids.
  const std::vector<std::size_t>& own() const { return own_; }
  /// By row: which group it belongs to, and which rank's statistics are local to it.
  const std::vector<int64_t>& groups() const { return groups_; }
  const std::vector<int>& owners() const { return owners_; }
  /// By row: in which micro-step its rank has it.
  const std::vector<int64_t>& micro_steps() const { return micro_steps_; }
  /// Rows that fill the ranks' parts up to one length in a gather.
  int64_t padded() const { return padded_; }
  int64_t id(std::size_t row) const { return ids_[row]; }
  /// Place of a group's task among the run's.
  std::size_t task_of_group(std::size_t group) const { return group % tasks_.size(); }
  const std::vector<int>& tasks() const { return tasks_; }
  /// Task and initial state of a row; noise is the row's own.
  EpisodeKeys keys(std::size_t row) const;

  /// Rows of all ranks from this rank's, in this order. Collective.
  at::Tensor gather(Comm& comm, const at::Tensor& rows, int64_t step, const char* tag) const;

 private:
  std::vector<int> tasks_;
  int64_t seed_ = 0;
  int64_t group_rows_ = 1;
  std::vector<int64_t> ids_, groups_, micro_steps_;
  int64_t padded_ = 0;
  std::vector<int> owners_;
  std::vector<std::size_t> own_;
  std::vector<int64_t> gathered_at_;  ///< by row, its place in what gather_rows gives
};

/// What the step's episodes were worth.
struct StepScores {
  std::vector<double> rewards, costs, successes;  ///< by row of StepRows
  std::vector<double> steps;       ///< simulated, by row
  std::vector<double> advantages;
  double flipped = 0;  ///< share of the advantages whose sign local statistics would turn round
  std::vector<rewards::Moments> seen;  ///< of all rows, by observed number, merged in their order
  rewards::Moments returns;
};

/// Collective ("rl.outcomes", "rl.rewards").
///
///   episodes  this rank's, in the order of the step's ids
///   scale     what rewards are divided by
StepScores score_step(const RunConfig& config, Comm& comm, int64_t step, const StepRows& rows,
                      std::span<const Episode> episodes, double scale, FlowRlFault* fault);

}  // namespace lockstep
