#pragma once
// The energy trainer as programs without LibTorch know it.

#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {

const TrainerSpec& energy_spec();

}  // namespace lockstep
