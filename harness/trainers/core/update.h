#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/plan/config/run_config.h"
#include "harness/trainers/core/snapshots.h"
#include "harness/trainers/core/step.h"
#include "harness/trainers/core/task.h"

// The second half of a step, which training and the forced comparison do alike: clip, update, averages, buffers;
// and the state that it reads, kept whole in snapshots.

namespace lockstep {

class Update {
 public:
  explicit Update(const RankContext& context);

  /// Rate of the step, as a fault may have changed it.
  double learning_rate(int64_t step) const;
  /// From the reduced gradients that `outcome` tells of to the next parameters; writes those into the open
  /// step. Collective where ranks share the update ("update.parameters").
  void apply(int64_t step, const TracedStep::Outcome& outcome, double rate, Keep keep);
  /// Writes parameters, optimizer state, averages and buffers whole into the open step. Collective where ranks share the update
  /// ("update.moments").
  void snapshot();
  /// The inverse. A buffer that the snapshot lacks, of a run that keeps none of that name, has the value that it had at the
  /// beginning. Throws std::runtime_error naming the parameter that the snapshot lacks.
  void load(const SnapshotBytes& snapshot);
  /// Its moments are those of this rank's parts where ranks share the update.
  Optimizer& optimizer() { return optimizer_; }
  /// By parameter, equal on all ranks; empty without average_decay.
  std::vector<at::Tensor>& averages() { return averages_; }

 private:
  struct OfOptimizer {
    std::vector<at::Tensor> first_moments, second_moments;
  };

  void clip(int64_t step, const TracedStep::Outcome& outcome);
  void update(int64_t step, const TracedStep::Outcome& outcome, double rate);
  void take_part_gradients();
  void gather_parameters();
  void average(int64_t step);
  void trace_skipped(bool skipped);
  OfOptimizer whole_moments();
  void trace_optimizer(Phase phase, Keep keep, const OfOptimizer& moments, bool of_parts);
  void trace_averages(Phase phase, const std::string& prefix, Keep keep);
  void trace_buffers(Phase phase, Keep keep);

  const RankContext& context_;
  std::optional<Shards> shards_;  ///< where ranks share the update
  ParameterList parts_;           ///< views of what this rank updates: all of the parameters, or its part of each
  Optimizer optimizer_;
  std::vector<at::Tensor> averages_;
  std::map<std::string, at::Tensor> first_buffers_;  ///< before the first load
};

/// Writes all parameters, equal on all ranks, into the open step; with `shards` this rank's part of each.
void trace_parameters(const RankContext& context, Phase phase, Keep keep, const Shards* shards = nullptr);

// What the two runs of an A/A pair differ in, beside the random streams (harness/plan/config/stream_keys.h).

/// With perturb row_order: each rank's rows of a step in another order, keyed by the seed, the step and the
/// rank, each micro-step's among themselves. Who is whose candidate stays, and so does every sum but for its
/// rounding. Otherwise `rows_of` itself.
RowsOf perturbed(RowsOf rows_of, const RunConfig& config);

/// Moves every element to the next number above or below, by signs keyed by the seed, equal on all ranks.
void move_by_one_unit(ParameterList& parameters, int64_t seed);

}  // namespace lockstep
