#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/verdict/config/run_config.h"
#include "harness/verdict/plan/question.h"

// Checks planted faults: those that name what their run does not have, and those that never acted in it.

namespace lockstep {

/// What is wrong with the faults that a run plants: a bug of another trainer, a rank, a step or a parameter
/// that it does not have, or a setting that changes nothing. (key, message) each.
std::vector<std::pair<std::string, std::string>> fault_problems(const RunConfig& config);

/// Of a fault under `key` ("mutant") that changed nothing in its run: what that means, and what to do.
std::string idle_fault_words(const MutantConfig& mutant, const std::string& key, const RunConfig& config);

// Combinations of one run's own fields that cannot be trained, or that would change nothing.

/// What is wrong with the learning-rate rule, the precision and the perturbation of a run in a matrix of that
/// question: (key, message) each.
std::vector<std::pair<std::string, std::string>> training_problems(const RunConfig& config,
                                                                   const QuestionPlan& asks);

}  // namespace lockstep
