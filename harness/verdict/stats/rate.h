#pragma once
// Shares of trials with exact intervals.

#include <cstdint>
#include <string>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// The `asked` of a rate from which nothing is required.
inline constexpr double kNothingAsked = -1;

/// Hits among trials with the exact two-sided interval of Clopper and Pearson (1934).
DetectionRate detection_rate(std::string what, int64_t hits, int64_t of, double level = 0.95);

}  // namespace lockstep
