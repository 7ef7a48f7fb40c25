#pragma once

#include "harness/suites/engine/suite.h"

// The suite `faults`: programs with one fault each and their control runs, on real ranks, watched as lockstep watches its
// own runs (docs/faults.md).

namespace lockstep {

const SuiteKind& faults_suite();

}  // namespace lockstep
