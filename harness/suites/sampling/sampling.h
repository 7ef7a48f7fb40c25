#pragma once
// The suite of what ranks share out and must have alike: samples, tasks, initial states, counters in
// files, seeds, and the values that steer a step. Nothing trains in it.

#include "harness/suites/engine/kinds.h"

namespace lockstep {

const SuiteKind& sampling_suite();

}  // namespace lockstep
