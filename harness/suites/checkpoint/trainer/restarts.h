#pragma once
// The suite `trainer`: real runs of this project's own trainers, with real ranks, that are killed, told to stop and
// started again.

#include "harness/suites/engine/kinds.h"

namespace lockstep {

const SuiteKind& trainer_suite();

}  // namespace lockstep
