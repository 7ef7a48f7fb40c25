#pragma once
// A small chain of Gaussian transitions: a policy whose log-probabilities are known in closed form.

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::rewards {

/// The mean of a transition from x at step t is gain * x + drift * (t + 1), in every dimension.
struct ChainPolicy {
  double gain = 0.9, drift = 0.1;
  /// Of its parameters.
  uint64_t hash() const;
};

struct ChainShape {
  int64_t length = 4;  ///< transitions
  int64_t dims = 3;
};

/// Chains of some samples.
struct Rollout {
  ChainShape shape;
  std::vector<int64_t> ids;
  std::vector<double> sigmas;      ///< [length]
  std::vector<double> states;      ///< [ids, length + 1, dims]
  std::vector<double> log_probs;   ///< [ids, length], nats, of each transition when it was drawn
};

/// Draws keyed by seed, sample, step and dimension: a sample's chain does not depend on who draws it.
Rollout roll_out(const ChainPolicy& policy, std::vector<double> sigmas, std::vector<int64_t> ids, ChainShape shape, uint64_t seed);

/// How dimensions are added up: in their order, or in two halves.
enum class SumShape { in_order, in_halves };

/// [ids, length]: log-probability of each transition of the rollout under a policy and deviations; sum over dimensions of
/// -(x' - mean)^2 / (2 sigma^2) - log sigma - log(2 pi) / 2.
std::vector<double> log_probs(const ChainPolicy& policy, std::span<const double> sigmas, const Rollout& rollout,
                              SumShape sum = SumShape::in_order);

/// What a transition's log-probability holds besides the quadratic term: -dims * (log sigma + log(2 pi) / 2).
double sigma_terms(double sigma, int64_t dims);

/// A hash of each action, [ids, length].
std::vector<uint64_t> action_hashes(const Rollout& rollout);

}  // namespace lockstep::rewards
