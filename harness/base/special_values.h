#pragma once
// Names of two doubles that are asked for everywhere.

#include <limits>

namespace lockstep {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace lockstep
