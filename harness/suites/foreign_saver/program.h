#pragma once
// The suite of somebody else's saver: a command that saves is run again and again, with one failure at one of its
// operations on files each time; what a command that resumes makes of the remains is compared with what it makes of a
// save without a failure.

#include "harness/suites/engine/kinds.h"

namespace lockstep {

const SuiteKind& program_suite();

}  // namespace lockstep
