#pragma once
// The table of planted bugs in two parts, by where in a step they act.

#include <span>

#include "harness/config/mutants.h"

namespace lockstep {

/// From the sampler to the local gradients.
std::span<const MutantEntry> forward_mutants();
/// From the first collective to the next parameters.
std::span<const MutantEntry> exchange_mutants();

}  // namespace lockstep
