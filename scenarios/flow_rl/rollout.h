#pragma once
// Episodes of the policy in the simulator: data, made without LibTorch.
//
// T = chunks of an episode, K = transitions of a chunk's chain, C = numbers of a chunk, O = observed numbers.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/lib/rewards/statistics.h"
#include "scenarios/flow_rl/config.h"
#include "scenarios/flow_rl/plain_policy.h"

namespace lockstep {

/// What observations are normalised by: less the mean, over the deviation, kept within +-kMost.
struct ObservationScale {
  static constexpr double kMost = 5, kLeastDeviation = 0.01;
  std::vector<double> mean, deviation;  ///< [O]
  ObservationScale();
  explicit ObservationScale(std::span<const rewards::Moments> moments);
  /// [O] -> [O]
  void normalise(std::span<const double> seen, std::span<double> normalised) const;
};

struct Episode {
  std::vector<double> seen;        ///< [T][O], before its normalisation; 0 behind the end
  std::vector<double> chain;       ///< [T][K + 1][C]: noise, then the place after each transition
  std::vector<double> chosen;      ///< [T][K] log-probability of each transition, of its noise and deviation alone
  std::vector<uint8_t> valid;      ///< [T]: chunks that were begun before the episode ended
  bool success = false;
  double nearer = 0;               ///< 1 - remaining / remaining at the beginning, in [-1, 1]
  double cost = 0;                 ///< the second score
  int64_t steps = 0;               ///< simulated
  uint64_t draws = 0;
};

/// What an episode is made from, beside the policy.
struct EpisodeKeys {
  int task = 0;
  uint64_t state = 0;  ///< of the initial state
  uint64_t noise = 0;  ///< of all draws of its chains
};

/// The chain of a chunk: x_0 is standard noise, x_{k+1} = x_k + velocity(x_k, k) / K + sigma_k * noise; the actions taken are
/// x_K (Zhang et al. 2025, "ReinFlow", eq. 5).
Episode roll_out(const FlowConfig& flow, const PlainPolicy& policy, const ObservationScale& scale, const EpisodeKeys& keys);

/// Moments of what an episode saw, by observed number: of its valid chunks.
std::vector<rewards::Moments> seen_moments(const Episode& episode);

/// log N(x; mean, sigma^2 I) of C numbers whose squared distance from the mean is `squares`.
double log_normal(double squares, double sigma, int64_t numbers);

/// Reward of an episode by the config: success, shaping and what its cost takes off.
double reward_of(const FlowRlConfig& own, bool success, double nearer, double cost);

}  // namespace lockstep
