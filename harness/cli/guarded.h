#pragma once
// Where every exception of a command ends.

#include <functional>

#include "harness/cli/session/progress.h"

namespace lockstep {

/// The exit status of `command`. What it throws is printed and becomes one: 2 for the user's mistakes, 7 for the machine's
/// and our own.
int guarded(const std::function<int()>& command, const Console& console);

}  // namespace lockstep
