#pragma once
// The suite `faults`: programs with one fault each and their control runs, on real ranks, watched as lockstep watches its
// own runs (docs/faults.md).

#include "harness/suites/engine/kinds.h"

namespace lockstep {

const SuiteKind& faults_suite();

}  // namespace lockstep
