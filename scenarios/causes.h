#pragma once

#include "harness/judge/causes/rules.h"

// Causes that only runs of one trainer can have, or that need their own rules there: its table, roles and pages.

namespace lockstep {

/// Of its negatives, its candidates and their gather, its temperature, its encoders.
const causes::TrainerRules& energy_cause_rules();
/// Of means of means over valid time steps, and of statistics of a rank's own rows.
const causes::TrainerRules& classify_cause_rules();
/// Of its rollouts, its rewards and advantages, and its log-probabilities.
const causes::TrainerRules& flow_rl_cause_rules();

}  // namespace lockstep
