#pragma once
// Causes that only runs of the trainer flow_rl can have: of its rollouts, its rewards and advantages, and its log-probabilities.

#include "harness/judge/causes/rules.h"

namespace lockstep {

const causes::TrainerRules& flow_rl_cause_rules();

}  // namespace lockstep
