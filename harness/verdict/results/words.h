#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/results/results.h"

// How far rounding alone carried a run, in words: the same in a summary and on the terminal.

namespace lockstep {

/// What CurveBand::metric calls the distance of the parameters; and of those whose gradient is zero by symmetry, so that
/// rounding alone moves them: under Adam by as much as any other.
inline constexpr std::string_view kParameterDrift = "parameters";
inline constexpr std::string_view kIdleParameterDrift = "parameters without a gradient";

/// "Differences by rounding alone up to step 299: parameters at most 3.1e-05 of their norm, training loss at most
/// 4.0e-06, the 24-way accuracy not at all." Empty of no drift.
std::string drift_sentence(const std::vector<CurveBand>& drift);

// Is there anything to say of how the learning rate goes with the batch?

/// Does the matrix vary the global batch, or the rule that scales the learning rate? Only then do rules, their
/// exponents and gradient noise scales answer anything; every report asks here. Power controls and A/A pairs do
/// not count; a rule changes nothing in one process, which has no ranks to scale by.
bool varies_batch_or_rate_rule(const Results& results);

}  // namespace lockstep
