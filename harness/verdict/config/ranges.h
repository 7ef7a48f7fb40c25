#pragma once
// Ranges that fields of configs share.

#include "harness/verdict/config/field.h"

namespace lockstep::ranges {

inline constexpr double kMostInt = 2147483647.0;
inline constexpr double kMostExact = 9007199254740991.0;  // 2^53 - 1: every reader of JSON keeps it exactly

inline constexpr Range kAny{};
// Beyond these a value is a slip of the pen, or leaves what the arithmetic holds: float32 ends at 3e38 and
// 1e-38, and what is multiplied with such a value must not leave it either. docs/config.md gives the reasons.
inline constexpr Range kNotNegative{0, 1e6};
inline constexpr Range kPositive{0, 1e6, true, false};
inline constexpr Range kScale{1e-6, 1e6};
inline constexpr Range kLength{1, 1e6};        // of series and windows, in time steps
inline constexpr Range kMetricUnits{0, 1e12};  // activation_bytes has the largest unit
inline constexpr Range kFraction{0, 1, false, true};
inline constexpr Range from(double low) { return {low, kMostInt, false, false}; }
inline constexpr Range up_to(double high) { return {1, high}; }
inline constexpr Range kStep{0, 1e9, false, false};
inline constexpr Range kSteps{1, 1e9, false, false};
inline constexpr Range kSeed{0, kMostExact, false, false};

inline constexpr Setter kPlanner = Setter::internal;

}  // namespace lockstep::ranges
