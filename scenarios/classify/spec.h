#pragma once

#include <vector>

#include "harness/verdict/config/trainer_spec.h"

// The trainer classify as programs without LibTorch know it.

namespace lockstep {

const TrainerSpec& classify_spec();

/// Settings of it that cannot be trained, or that would change nothing.
std::vector<KeyProblem> classify_problems(const RunConfig& config, const CheckedFor& what);

}  // namespace lockstep
