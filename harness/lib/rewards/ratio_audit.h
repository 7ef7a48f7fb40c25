#pragma once
// At the first update after a rollout exp(log pi - log pi_old) is exactly 1 on every rank: the policy has not moved yet. If
// not: at which element and step of the chain first, and why? Free of any policy: ranks show hashes and log-probabilities.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/lib/rewards/failure.h"

namespace lockstep::rewards {

/// What one rank shows at the first update. Elements are [ids, length].
struct ShownRatio {
  int64_t step = 0;
  int64_t length = 0;  ///< transitions of a chain
  int64_t dims = 0;    ///< of an action: so many terms hold log sigma
  std::vector<int64_t> ids;
  uint64_t policy_rollout = 0, policy_update = 0;          ///< hashes of the parameters
  std::vector<double> sigmas_rollout, sigmas_update;       ///< [length]
  std::vector<uint64_t> taken, scored;                     ///< hashes of actions: drawn, and scored at the update
  std::vector<double> log_old, log_new;                    ///< nats
  std::vector<double> probe;  ///< the ratio with the policy moved a little: 1 where it does not move with the policy
  int64_t rows_rollout = 0, rows_update = 0;               ///< rows that were computed at once
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.step, s.length, s.dims, s.ids, s.policy_rollout, s.policy_update, s.sigmas_rollout, s.sigmas_update, s.taken,
      s.scored, s.log_old, s.log_new, s.probe, s.rows_rollout, s.rows_update);
  }
};

/// What is wrong, by rank.
std::vector<Finding> audit_ratio(std::span<const ShownRatio> by_rank);

}  // namespace lockstep::rewards
