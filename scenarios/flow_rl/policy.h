#pragma once
// The flow-matching policy as tensors, and the log-probability of its chains.
//
// B = rows, T = chunks of an episode, K = transitions of a chunk's chain, C = numbers of a chunk, O = observed numbers,
// W = hidden width, N = B * T * K.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "harness/trainers/core/task.h"
#include "scenarios/flow_rl/config.h"
#include "scenarios/flow_rl/plain_policy.h"

namespace lockstep {

/// Rollouts of rows, in double; the policy casts what it takes.
struct ChainTensors {
  at::Tensor seen_BTO;      ///< normalised observations
  at::Tensor chain_BTKC;    ///< [B, T, K + 1, C]: the noise, then the place after each transition
  at::Tensor valid_BT;      ///< bool; false: behind the episode's end
};

class FlowPolicy {
 public:
  /// Weights are drawn, keyed by the seed, each uniform in +-1/sqrt(fan_in), as float32 at any `dtype`.
  FlowPolicy(const FlowConfig& flow, int64_t seed, at::ScalarType dtype);

  ParameterList& parameters() { return parameters_; }
  const ParameterList& parameters() const { return parameters_; }
  at::ScalarType dtype() const { return dtype_; }
  const FlowConfig& flow() const { return flow_; }

  /// A view that computes with other tensors in the parameters' order, cast to `dtype`; gradients come back through the
  /// casts.
  FlowPolicy with(const std::vector<at::Tensor>& tensors, at::ScalarType dtype) const;

  /// Where each transition's Gaussian has its middle: x_k + velocity(x_k, k) / K. [B, T, K, C], float32 at least.
  at::Tensor means(const ChainTensors& chains) const;

  /// The same network in plain loops of double.
  PlainPolicy plain() const;

 private:
  const at::Tensor& tensor(std::size_t index) const { return tensors_[index]; }

  FlowConfig flow_;
  at::ScalarType dtype_;
  ParameterList parameters_;
  std::vector<at::Tensor> tensors_;  ///< what is computed with
};

/// log pi of each transition: log N(x_{k+1}; mean_k, sigma_k^2 I), the terms whose sum is the log-probability of a chain given
/// its noise (Zhang et al. 2025, "ReinFlow", eq. 6). [B, T, K]; 0 where a chunk is not valid.
///
///   sigma_K  [K]  deviations of the transitions
///   without_sigma: leaves out -C log sigma_k, for a planted bug alone
at::Tensor log_transitions(const at::Tensor& means_BTKC, const ChainTensors& chains, const std::vector<double>& sigma_K,
                           bool without_sigma = false);

/// Divergence of Gaussians with equal deviations: sum over transitions of |mean - other|^2 / (2 sigma_k^2). [B, T]; 0 where
/// a chunk is not valid.
at::Tensor divergence(const at::Tensor& means_BTKC, const at::Tensor& other_BTKC, const ChainTensors& chains,
                      const std::vector<double>& sigma_K);

/// Deviations of all transitions.
std::vector<double> sigmas_of(const FlowConfig& flow);

}  // namespace lockstep
