#pragma once
// The labelled suite: every fault that is planted in a small program, what its control run does, and what has to be said of
// it (docs/faults.md). The program stands in harness/jobs/faults/fault_program.cpp.

#include <span>
#include <string>
#include <string_view>

namespace lockstep::faults {

/// How a fault comes out.
enum class Notice {
  died,      ///< the process of the rank ended; the launcher names it
  hung,      ///< the watch finds a rank that is stopped, asleep or blocked
  slow,      ///< the watch finds a rank that computes for longer than it may
  threw,     ///< the rank itself says what is wrong
  check,     ///< the ranks' headers differ; every rank names who calls what
  guard,     ///< a gradient is not finite; every rank names rank, tensor and element
  audit,     ///< ranks compare rows or state; every rank names who has what
  preflight_check, ///< ranks compare themselves before the first collective; every rank names who differs
  compared,  ///< the run ends well, and differs from the control run's
};
std::string_view to_word(Notice notice);

struct FaultKind {
  std::string_view name, family;
  std::string_view wrong;  ///< what the program does: "rank R sends SIGKILL to itself"
  std::string_view control;   ///< what the correct program does in its place
  Notice notice = Notice::died;
  /// What must be said, with {rank}, {step}, {next} (the rank behind it) and {line} filled in.
  std::string_view says;
  bool checked = true;     ///< the program runs with the check of collectives
};

std::span<const FaultKind> fault_kinds();

}  // namespace lockstep::faults
