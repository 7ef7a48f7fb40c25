#pragma once
// The start of training: the policy cloned from a scripted expert whose actions are noisy.

#include <cstdint>
#include <vector>

#include "harness/verdict/config/run_config.h"
#include "scenarios/flow_rl/policy.h"
#include "scenarios/flow_rl/rollout.h"

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

}  // namespace lockstep
