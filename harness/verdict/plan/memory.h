#pragma once
// How much memory a run takes, before it has run.

#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {

/// What the run's trainer says of it; zeros where it says nothing.
RunCosts costs_of(const RunConfig& config);

/// Resident bytes that the processes of a run on one machine have at their peak, together: a model, good to a factor of about 1.5.
double modelled_memory_bytes(const RunConfig& config);

/// What this process and those that it starts may have: the machine's, or the limit of their control group. 0: not to be known.
double machine_memory_bytes();

}  // namespace lockstep
