#pragma once
// The statistics of one comparison in results.json: estimates, tests, curves, steps to a target.

#include "harness/results/results.h"
#include "harness/results/results_fields.h"

namespace lockstep {

/// Adds its keys to the outcome's `statistics`.
void write_learning(const Outcome& outcome, results_fields::Json& statistics);

/// The inverse. Throws std::runtime_error or a JSON exception on what is missing or malformed.
void read_learning(const results_fields::Json& statistics, Outcome& outcome);

}  // namespace lockstep
