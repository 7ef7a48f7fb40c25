#pragma once
// The suite of rewards: random cases from samples to loss weights on emulated and on real Gloo ranks, compared with one
// process, and mistakes that are planted to be named.

#include "harness/suites/engine/kinds.h"

namespace lockstep {

const SuiteKind& rewards_suite();

}  // namespace lockstep
