#pragma once
// Combinations of one run's own fields that cannot be trained, or that would change nothing.

#include <string>
#include <utility>
#include <vector>

#include "harness/verdict/plan/question.h"

namespace lockstep {

/// What is wrong with the learning-rate rule, the precision and the perturbation of a run in a matrix of that
/// question: (key, message) each.
std::vector<std::pair<std::string, std::string>> training_problems(const RunConfig& config,
                                                                   const QuestionPlan& asks);

}  // namespace lockstep
