#pragma once
// Where a planted fault may act inside the trainer flow_rl. The trainer asks once, when it is made, whether its mutant is one of
// these; every call stands behind a null check.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/flow_rl/config.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {

/// What a rank knows of a step's rows when it computes advantages: those of all ranks, in the batch's order.
struct AdvantageRows {
  const std::vector<double>&rewards, &costs;
  const std::vector<int64_t>& groups;
  const std::vector<int>& owners;           ///< the rank that has the row
  const std::vector<int64_t>& micro_steps;  ///< in which its rank has it
  int64_t padded = 0;                       ///< rows that fill the ranks' parts up to one length in a gather
};

/// What a pass's loss may be divided by.
struct WeightCounts {
  double of_pass = 0, of_rank = 0, micro_steps = 0, of_step = 0;
};

/// A mutant that is also a FlowRlFault gets these calls, from its rank's own thread, once or more a step.
class FlowRlFault {
 public:
  /// The trainer that the table's entry of such a bug must name.
  static constexpr std::string_view kTrainer = "flow_rl";

  virtual ~FlowRlFault() = default;

  /// Rollouts are made by the cloned policy instead of the one that is trained.
  virtual bool never_synchronised(int64_t /*step*/) { return false; }
  /// The chain as the rollout draws it.
  virtual FlowConfig acted_flow(int64_t /*step*/, FlowConfig flow) { return flow; }
  /// Key of a row's noise as its rollout draws it.
  virtual uint64_t noise_key(int64_t /*step*/, uint64_t key) { return key; }
  /// [rows, T, K + 1, C]: the chains whose log-probability the trained policy computes.
  virtual at::Tensor trained_chains(int64_t /*step*/, at::Tensor chains) { return chains; }
  /// Deviations of the transitions that the trained policy is given: the points of its schedule.
  virtual std::vector<double> schedule(int64_t /*step*/, std::vector<double> points) { return points; }
  /// Deviations of the transitions, as the trained policy's log-probability takes them.
  virtual std::vector<double> trained_sigmas(int64_t /*step*/, std::vector<double> sigmas) { return sigmas; }
  /// The trained policy's log-probability goes without its deviations' terms.
  virtual bool without_sigma(int64_t /*step*/) { return false; }
  /// [rows, T, K]: log-probabilities of the transitions under the policy that made the rollout.
  virtual at::Tensor old_log_pi(int64_t /*step*/, at::Tensor log_pi) { return log_pi; }
  /// The same under the trained policy, with gradient.
  virtual at::Tensor log_pi(int64_t /*step*/, at::Tensor log_pi) { return log_pi; }
  /// Whose rewards are broadcast; below 0: nobody's, each rank keeps what it has.
  virtual int reward_root(int64_t /*step*/, int root) { return root; }
  /// Before the root computes rewards: it may throw or never return.
  virtual void score(int64_t /*step*/) {}
  /// [rows of all ranks, 2]: reward and cost in the batch's order, as this rank has them after the exchange.
  virtual at::Tensor scores(int64_t /*step*/, at::Tensor scores) { return scores; }
  /// Advantages are made of this rank's rewards alone.
  virtual bool local_statistics(int64_t /*step*/) { return false; }
  /// Advantages of all ranks' rows, as this rank computes them.
  virtual std::vector<double> advantages(int64_t /*step*/, const AdvantageRows& /*rows*/, std::vector<double> right) {
    return right;
  }
  /// Of each row's loss in the pass's, before the mean over ranks.
  virtual double row_weight(int64_t /*step*/, const WeightCounts& /*counts*/, double right) { return right; }
  /// Weight of the divergence from the cloned policy.
  virtual double kl_weight(int64_t /*step*/, double weight) { return weight; }
};

/// What a bug inside the trainer derives from.
class PlantedInFlowRl : public Planted, public FlowRlFault {
 public:
  using Planted::Planted;
};

/// A bug in how advantages are computed, from its step on.
class PlantedInAdvantages : public PlantedInFlowRl {
 public:
  using PlantedInFlowRl::PlantedInFlowRl;
  virtual std::vector<double> wrong(const AdvantageRows& rows, std::vector<double> right) = 0;
  std::vector<double> advantages(int64_t step, const AdvantageRows& rows, std::vector<double> right) override {
    return acts(step) ? wrong(rows, std::move(right)) : right;
  }
};

}  // namespace lockstep
