#pragma once
// What all comparisons print alike.

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "harness/verdict/evidence/same_question.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

nlohmann::json differences_json(const std::vector<QuestionDifference>& differences);

nlohmann::json interval_json(const Interval& interval);

}  // namespace lockstep
