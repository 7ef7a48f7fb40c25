#pragma once
// A running normaliser (of observations, returns or rewards) whose ranks add rows of their own and merge from time to time.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/lib/rewards/statistics.h"

namespace lockstep::rewards {

/// What all ranks agreed on at the last merge, and what came since.
struct NormalizerState {
  Moments merged;      ///< the same bits on every rank
  int64_t merges = 0;  ///< so many
  Moments delta;       ///< this rank's own, since
};

class RunningNormalizer {
 public:
  explicit RunningNormalizer(const Convention& convention) : convention_(convention) {}

  /// Rows of this rank. Refuses, or masks, what is not finite; returns the problem, and then nothing was added.
  std::string add(std::span<const double> values);
  /// Goes to all ranks: only what came since the last merge, so that history is counted once.
  const Moments& delta() const { return state_.delta; }
  /// Deltas of all ranks, by rank: the same everywhere, merged in that order.
  void merge_deltas(std::span<const Moments> by_rank);

  /// Of the last merge: the same on every rank. What this rank has added since has no part in it.
  Statistics statistics() const { return statistics_of(state_.merged, convention_); }
  double normalized(double value) const;

  /// For a checkpoint, and from it.
  const NormalizerState& state() const { return state_; }
  void restore(const NormalizerState& state) { state_ = state; }

 private:
  Convention convention_;
  NormalizerState state_;
};

}  // namespace lockstep::rewards
