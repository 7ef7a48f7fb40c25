#pragma once

#include <functional>
#include <string>

#include "harness/cli/session/background.h"
#include "harness/cli/session/progress.h"

// --detach: a command that goes on while nobody waits for it.

namespace lockstep {

/// Forks: the child does `work`, whose output goes to OUT/run.out and OUT/run.err; this process says how to follow it and returns at once.
int run_detached(const std::string& out_dir, Session session, const Console& console, const std::function<int(const Console& plain)>& work);

}  // namespace lockstep
