#pragma once
// The laboratory of rewards: random cases from samples to loss weights on emulated and on real Gloo ranks, held against one
// process, and mistakes that are planted to be named.

#include "harness/laboratory/kinds.h"

namespace lockstep {

const LaboratoryKind& rewards_laboratory();

}  // namespace lockstep
