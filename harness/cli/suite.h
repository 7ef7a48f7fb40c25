#pragma once
// `run` and `plan` of a config that names a suite.

#include <string>

#include "harness/cli/options.h"
#include "harness/cli/session/progress.h"

namespace lockstep {

/// `text`: the config's, which has been read already. Return the exit code.
int run_suite_command(const std::string& text, const RunOptions& options, const Console& console);
int plan_suite_command(const std::string& text, const PlanOptions& options, const Console& console);

}  // namespace lockstep
