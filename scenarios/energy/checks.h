#pragma once
// Settings of the energy trainer that cannot be trained, or that would change nothing.

#include <vector>

#include "harness/config/trainer_spec.h"

namespace lockstep {

std::vector<KeyProblem> energy_problems(const RunConfig& config, const CheckedFor& what);

}  // namespace lockstep
