#pragma once
// What `compare --rule mlperf` prints.

#include <string>
#include <vector>

#include "harness/verdict/stats/mlperf/compare_groups.h"

namespace lockstep {

std::string mlperf_text(const std::vector<MlperfComparison>& comparisons);
std::string mlperf_json(const std::vector<MlperfComparison>& comparisons);

}  // namespace lockstep
