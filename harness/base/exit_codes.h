#pragma once
// What a process says by its exit status (README.md, Commands).

namespace lockstep {

inline constexpr int kUsage = 2, kHung = 4, kMachine = 7;

}  // namespace lockstep
