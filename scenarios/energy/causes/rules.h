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

std::span<const Rule> energy_value_rules();     ///< wrong energies
std::span<const Rule> energy_loss_rules();      ///< a wrong loss of right energies
std::span<const Rule> energy_gradient_rules();  ///< wrong local gradients of a right loss
std::span<const Rule> energy_role_rules();      ///< those of energy_gradient_rules that rest on roles alone

/// All of these.
const TrainerRules& energy_cause_rules();

}  // namespace lockstep::causes
