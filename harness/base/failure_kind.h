#pragma once
// Why a run did not finish, or cannot be judged.

#include <array>
#include <cstddef>
#include <ostream>
#include <string_view>

namespace lockstep {

enum class FailureKind {
  died,         ///< by a signal, or with a status and no result
  hung,         ///< stood still for longer than it may
  slow,         ///< computed without a report for longer than it may
  threw,        ///< an exception
  interrupted,  ///< stopped in order, or on request
  not_started,  ///< a run that it needs failed
  lost,         ///< nobody saw its end; there is no result, or not all of what was asked
  unreadable,   ///< it finished, and a file that it left is damaged
  nonfinite,    ///< NaN or infinity in what is judged
  unmeasured,   ///< a metric is missing
  idle,         ///< its planted fault changed nothing: no verdict is about it
};

/// As results.json and reports write them, in the order of the enumerators.
inline constexpr std::array<std::string_view, 11> kFailureKindWords{"died", "hung",       "slow",      "threw",      "interrupted", "not started",
                                                                     "lost", "unreadable", "nonfinite", "unmeasured", "idle"};

constexpr std::string_view to_word(FailureKind kind) { return kFailureKindWords[static_cast<std::size_t>(kind)]; }
inline std::ostream& operator<<(std::ostream& out, FailureKind kind) { return out << to_word(kind); }

}  // namespace lockstep
