#pragma once

#include <vector>

#include "harness/plan/config/trainer_spec.h"

// The trainer flow_rl as programs without LibTorch know it.

namespace lockstep {

const TrainerSpec& flow_rl_spec();

/// Settings of it that cannot be trained, or that would change nothing.
std::vector<KeyProblem> flow_rl_problems(const RunConfig& config, const CheckedFor& what);

}  // namespace lockstep
