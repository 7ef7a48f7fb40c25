#pragma once
// The laboratory of resuming: the light trainer is stopped, restarted on other numbers of ranks, killed and told to
// end, by the thousand, and held against the run that was never interrupted.

#include "harness/laboratory/kinds.h"

namespace lockstep {

const LaboratoryKind& resume_laboratory();

}  // namespace lockstep
