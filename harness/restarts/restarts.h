#pragma once
// The laboratory `trainer`: real runs of this project's own trainers, with real ranks, that are killed, told to stop and
// started again.

#include "harness/laboratory/kinds.h"

namespace lockstep {

const LaboratoryKind& trainer_laboratory();

}  // namespace lockstep
