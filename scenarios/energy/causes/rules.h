#pragma once

#include <span>

#include "harness/judge/causes/rules.h"

// Causes that only the energy trainer has: of its negatives, its candidates and their gather, its
// temperature, its encoders.

namespace lockstep::causes {

/// Roles of the energy model's groups of parameters.
struct EnergyRole {
  enum : Role { context, action, head, temperature, action_head, other };
};

/// Their table, roles and pages.
const TrainerRules& energy_cause_rules();

}  // namespace lockstep::causes
