#pragma once
// A suite's chart as it stands on the page: lines in small panels, or rows of dots.

#include <string>

#include "harness/verdict/results/suite_results.h"

namespace lockstep {

/// The drawing with its legend, without title and explanation. Empty if there is no point to draw.
std::string chart_drawing(const SuiteChart& chart);

}  // namespace lockstep
