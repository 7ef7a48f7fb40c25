#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cli/commands.h"

// lockstep check: one command that starts what is needed and says whether two layouts of a trainer train the same.

namespace lockstep {

/// 0: the same, 1: different, 5: undecided; 3 or 4 where a run died or hung.
int check_command(const CheckOptions& options, const Console& console);

struct CheckDocument;
struct ResumedFindings;
/// What `--resumed` found. `folder`: of the run that was stopped.
CheckDocument resumed_document(const ResumedFindings& found, const std::string& folder);

}  // namespace lockstep
