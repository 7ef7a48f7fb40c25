#pragma once
// Causes that only runs of the trainer classify can have, or that need their own rules there: means of means
// over valid time steps, and statistics of a rank's own rows.

#include "harness/judge/causes/rules.h"

namespace lockstep {

const causes::TrainerRules& classify_cause_rules();

}  // namespace lockstep
