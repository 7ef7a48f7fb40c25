#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "harness/lib/rewards/advantages.h"
#include "scenarios/flow_rl/config.h"
#include "scenarios/flow_rl/tasks/tasks.h"

// What the policy sees of a simulated body.

namespace lockstep {

inline constexpr int64_t kActionNumbers = 3;              ///< of a simulated step: velocity and gripper
inline constexpr int64_t kMostTasks = 12;                 ///< a test holds it equal to the suite
inline constexpr int64_t kObserved = 18 + kMostTasks;     ///< O

using Observation = std::array<double, kObserved>;

/// Places, differences of places, gripper, the task's own numbers, time as a share of the horizon, and which task it is.
Observation observe(const manipulation::Body& body, int task, int horizon);

// The policy's network in plain loops of double, for rollouts: with equal parameters they have equal bits under every layout
// and precision, on threads and on processes.
//
// O = observed numbers, C = numbers of a chunk of actions, K = transitions of its chain, W = hidden width.

/// Velocity of the flow: C numbers from what is observed, the place on the chain and the transition. Two hidden layers with
/// x / (1 + |x|), so that sums, products and quotients are all there is.
class PlainPolicy {
 public:
  /// Six tensors in the model's order, row-major [out][in] as a linear layer has them.
  PlainPolicy(const FlowConfig& flow, std::span<const std::vector<double>> parameters);

  int64_t numbers() const { return out_; }

  /// What an observation, already normalised, gives the first layer: shared by a chunk's transitions. [W]
  std::vector<double> begin_chunk(std::span<const double> observed) const;
  /// velocity [C] at the place [C] before transition k.
  void velocity(std::span<const double> begun, std::span<const double> place, int transition,
                std::span<double> velocity) const;

 private:
  struct Layer {
    std::vector<double> by_input;  ///< [in][out]: the inner loop goes over outputs, whose sums keep their order
    std::vector<double> bias;
  };
  void add_products(const Layer& layer, std::size_t first_input, std::span<const double> inputs,
                    std::span<double> sums) const;

  int64_t out_ = 0;
  Layer input_, hidden_, output_;
};

// Episodes of the policy in the simulator: data, made without LibTorch.
//
// T = chunks of an episode, K = transitions of a chunk's chain, C = numbers of a chunk, O = observed numbers.

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

/// Reward of an episode by the config: success, shaping and what its cost takes off.
double reward_of(const FlowRlConfig& own, bool success, double nearer, double cost);

}  // namespace lockstep
