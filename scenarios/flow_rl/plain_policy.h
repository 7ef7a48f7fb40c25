#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

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

}  // namespace lockstep
