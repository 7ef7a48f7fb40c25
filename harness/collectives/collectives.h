#pragma once
// The laboratory of collectives: every one, of every size, on real ranks, timed as nccl-tests does and looked at element for element.

#include "harness/laboratory/kinds.h"

namespace lockstep {

const LaboratoryKind& collectives_laboratory();

}  // namespace lockstep
