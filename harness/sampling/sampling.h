#pragma once
// The laboratory of what ranks share out and must have alike: samples, tasks, initial states, counters in
// files, seeds, and the values that steer a step. Nothing trains in it.

#include "harness/laboratory/kinds.h"

namespace lockstep {

const LaboratoryKind& sampling_laboratory();

}  // namespace lockstep
