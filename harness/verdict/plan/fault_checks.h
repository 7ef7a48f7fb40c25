#pragma once
// Checks planted faults: those that name what their run does not have, and those that never acted in it.

#include <string>
#include <utility>
#include <vector>

#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// What is wrong with the faults that a run plants: a bug of another trainer, a rank, a step or a parameter
/// that it does not have, or a setting that changes nothing. (key, message) each.
std::vector<std::pair<std::string, std::string>> fault_problems(const RunConfig& config);

/// Of a fault under `key` ("mutant") that changed nothing in its run: what that means, and what to do.
std::string idle_fault_words(const MutantConfig& mutant, const std::string& key, const RunConfig& config);

}  // namespace lockstep
