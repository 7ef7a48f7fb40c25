#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/plan/config/run_config.h"
#include "harness/trainers/comm/comm.h"
#include "harness/trainers/core/task.h"
#include "scenarios/flow_rl/config.h"
#include "scenarios/flow_rl/exchange.h"
#include "scenarios/flow_rl/rollout.h"

// The flow-matching policy as tensors, and the log-probability of its chains.
//
// B = rows, T = chunks of an episode, K = transitions of a chunk's chain, C = numbers of a chunk, O = observed numbers,
// W = hidden width, N = B * T * K.

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

// The start of training: the policy cloned from a scripted expert whose actions are noisy.

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

// Rollouts made by the ranks to which their tasks are partitioned, by measured cost, and handed to the ranks that have the rows. An
// episode is the same bits whoever makes it.

/// Simulated steps of each task's episodes so far: what one costs. Equal on all ranks, as it is made of what all of them know.
class TaskCosts {
 public:
  TaskCosts();
  /// Of each of these tasks, so far; `horizon` where none was measured.
  std::vector<double> of(std::span<const int> tasks, int horizon) const;
  void add(const StepRows& rows, std::span<const double> steps);
  NamedBuffer buffer() const { return {"buffer/task_costs", sums_}; }

 private:
  at::Tensor sums_;  ///< [tasks of the suite, episodes and steps] float64
};

/// Whose rows' rollouts each rank makes, and how even that is.
struct RolloutPartition {
  std::vector<std::vector<std::size_t>> rows;  ///< by rank, rows of StepRows; whole groups
  double imbalance = 1;                        ///< when the last rank ends, over when all would at best
};
RolloutPartition partition_rollouts(const FlowRlConfig& own, const StepRows& rows, const TaskCosts& costs, int ranks);

/// Episodes of this rank's own rows, of which others made some. Collective ("rl.rollouts").
///
///   made  this rank's of the partition, in its order
std::vector<Episode> hand_over(Comm& comm, int64_t step, const FlowConfig& flow, const StepRows& rows,
                               std::span<const std::size_t> made_rows, std::span<const Episode> made);

}  // namespace lockstep
