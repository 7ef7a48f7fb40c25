#pragma once
// The suite of the saver library (harness/lib/checkpoint): kills, schedules, power losses, corruption and errors, by the
// thousand, on a disk in memory and on the machine's.

#include "harness/suites/engine/kinds.h"

namespace lockstep {

const SuiteKind& saver_suite();

}  // namespace lockstep
