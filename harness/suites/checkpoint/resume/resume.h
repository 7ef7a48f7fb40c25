#pragma once
// The suite of resuming: the toy trainer is stopped, restarted on other numbers of ranks, killed and told to
// end, by the thousand, and compared with the run that was never interrupted.

#include "harness/suites/engine/kinds.h"

namespace lockstep {

const SuiteKind& resume_suite();

}  // namespace lockstep
