#pragma once
// What the process's exit status says. Other people's scripts rely on it.

#include <algorithm>
#include <vector>

namespace lockstep {

inline constexpr int kExitAsExpected = 0, kExitUnexpected = 1, kExitUsage = 2, kExitDied = 3, kExitHung = 4, kExitUndecided = 5,
                     kExitNothing = 6, kExitMachine = 7, kExitInterrupted = 130;

/// The status of several things that happened, of which each asks for one.
inline int worst_exit_code(const std::vector<int>& codes) {
  for (const int code : {kExitMachine, kExitUsage, kExitDied, kExitHung, kExitUnexpected, kExitUndecided}) {
    if (std::ranges::find(codes, code) != codes.end()) return code;
  }
  return kExitAsExpected;
}

inline constexpr const char* kExitCodes =
    "Exit codes: 0 all verdicts as expected, 1 not all, 2 usage or config, 3 a rank died, 4 a rank hung,\n"
    "5 undecided only, or a rank was too slow, 6 nothing selected, 7 the machine's or lockstep's fault, 130 interrupted (run again "
    "to resume).";

}  // namespace lockstep
