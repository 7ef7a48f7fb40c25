#pragma once
// What the policy sees of a simulated body.

#include <array>
#include <cstdint>

#include "scenarios/flow_rl/tasks/body.h"

namespace lockstep {

inline constexpr int64_t kActionNumbers = 3;              ///< of a simulated step: velocity and gripper
inline constexpr int64_t kMostTasks = 12;                 ///< a test holds it equal to the suite
inline constexpr int64_t kObserved = 18 + kMostTasks;     ///< O

using Observation = std::array<double, kObserved>;

/// Places, differences of places, gripper, the task's own numbers, time as a share of the horizon, and which task it is.
Observation observe(const manipulation::Body& body, int task, int horizon);

}  // namespace lockstep
