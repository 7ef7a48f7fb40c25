#pragma once
// Did every rank get the root's rewards, and if not, what did it get? Answered from what ranks show.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/lib/rewards/failure.h"

namespace lockstep::rewards {

/// What one rank shows of a step after the broadcast.
struct ShownRewards {
  int64_t step = 0;
  int64_t root = 0;        ///< that it takes for the root
  int64_t broadcasts = 0;  ///< of this step's rewards that it took part in
  int64_t scored = 0;      ///< calls of the reward function in this step
  std::vector<int64_t> ids;    ///< samples, in its order
  std::vector<double> held;    ///< their rewards, as it holds them; poison where none came
  std::vector<double> source;  ///< what the reward function gave it, by its ids; empty: not called
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.step, s.root, s.broadcasts, s.scored, s.ids, s.held, s.source);
  }
};

class BroadcastAudit {
 public:
  explicit BroadcastAudit(int root) : root_(root) {}
  /// What is wrong in this step; `by_rank` is of all ranks. Steps come in ascending order.
  std::vector<Finding> step(std::span<const ShownRewards> by_rank);

 private:
  int root_;
  int64_t last_step_ = -1;
  std::vector<std::vector<double>> last_;  ///< by rank: what it should have held then, in its order
};

}  // namespace lockstep::rewards
