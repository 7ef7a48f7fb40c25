#pragma once
// What all comparisons print alike, and the exit code of several.

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "harness/evidence/same_question.h"
#include "harness/results/results.h"

namespace lockstep {

nlohmann::json differences_json(const std::vector<QuestionDifference>& differences);

/// The end of several comparisons: the first of 1 and 5 that occurred, else 0.
int worst_exit_code(const std::vector<int>& codes);

nlohmann::json interval_json(const Interval& interval);

}  // namespace lockstep
