#pragma once
// The suite of collectives: every one, of every size, on real ranks, timed as nccl-tests does and looked at element for element.

#include "harness/suites/engine/kinds.h"

namespace lockstep {

const SuiteKind& collectives_suite();

}  // namespace lockstep
