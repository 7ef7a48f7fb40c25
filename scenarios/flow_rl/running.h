#pragma once
// Running statistics of what the policy sees and of returns: made of all ranks' rows in the batch's order, so that they are
// the same bits under every layout.

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "harness/lib/rewards/statistics.h"
#include "harness/trainers/core/task.h"
#include "scenarios/flow_rl/rollout.h"

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

}  // namespace lockstep
