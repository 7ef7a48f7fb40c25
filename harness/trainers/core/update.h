#pragma once
// The second half of a step, which training and the forced comparison do alike: clip, update, buffers;
// and the state that it reads, kept whole in snapshots.

#include <map>
#include <string>

#include "harness/trainers/core/optimizer.h"
#include "harness/trainers/core/rank_context.h"
#include "harness/trainers/core/snapshots.h"
#include "harness/trainers/core/step.h"

namespace lockstep {

class Update {
 public:
  explicit Update(const RankContext& context);

  /// Rate of the step, as a fault may have changed it.
  double learning_rate(int64_t step) const;
  /// From the reduced gradients that `outcome` tells of to the next parameters; writes those into the open
  /// step.
  void apply(int64_t step, const TracedStep::Outcome& outcome, double rate, Keep keep);
  /// Writes parameters, optimizer state and buffers whole into the open step.
  void snapshot();
  /// The inverse. A buffer that the snapshot lacks, of a run that keeps none of that name, has the value that it had at the
  /// beginning. Throws std::runtime_error naming the parameter that the snapshot lacks.
  void load(const Snapshot& snapshot);
  Optimizer& optimizer() { return optimizer_; }

 private:
  void clip(int64_t step, const TracedStep::Outcome& outcome);
  void trace_optimizer(Phase phase, Keep keep);
  void trace_buffers(Phase phase, Keep keep);

  const RankContext& context_;
  Optimizer optimizer_;
  std::map<std::string, at::Tensor> first_buffers_;  ///< before the first load
};

/// Writes all parameters, equal on all ranks, into the open step.
void trace_parameters(const RankContext& context, Phase phase, Keep keep);

}  // namespace lockstep
