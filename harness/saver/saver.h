#pragma once
// The laboratory of the saver library (harness/checkpoint): kills, schedules, power losses, corruption and errors, by the
// thousand, on a disk in memory and on the machine's.

#include "harness/laboratory/kinds.h"

namespace lockstep {

const LaboratoryKind& saver_laboratory();

}  // namespace lockstep
