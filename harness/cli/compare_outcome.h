#pragma once
// What `compare --rule tost` prints.

#include <string>
#include <vector>

#include "harness/verdict/stats/compare_arms.h"

namespace lockstep {

std::string outcomes_text(const std::vector<OutcomeComparison>& comparisons,
                          const std::vector<std::string>& alone);
std::string outcomes_json(const std::vector<OutcomeComparison>& comparisons,
                          const std::vector<std::string>& alone);

}  // namespace lockstep
