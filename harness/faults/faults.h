#pragma once
// The laboratory `faults`: programs with one fault each and their correct twins, on real ranks, watched as lockstep watches its
// own runs (docs/faults.md).

#include "harness/laboratory/kinds.h"

namespace lockstep {

const LaboratoryKind& faults_laboratory();

}  // namespace lockstep
