#pragma once
// Causes that only a run of the trainer classify can have, or that it must be asked for in its own way.

#include <span>

#include "harness/causes/cause.h"
#include "harness/causes/rules.h"

namespace lockstep {

/// Of a loss that differs: mean-of-means, batch-norm-local.
std::span<const causes::Rule> classify_loss_rules();

/// Pages of the codes that no other trainer's rules name: batch-norm-local.
std::span<const CausePage> classify_cause_pages();

}  // namespace lockstep
