#pragma once

#include <string>
#include <vector>

#include "reports/plots/curve_data.h"

namespace lockstep {

/// The curves of one figure in numbers, folded: a row for each, eight steps or as many as there are.
std::string curve_table(const std::vector<Curve>& curves, const CurveFrame& frame);

}  // namespace lockstep
