#pragma once
// What the two runs of an A/A pair differ in, beside the random streams (harness/verdict/config/stream_keys.h).

#include "harness/trainers/core/parameters.h"
#include "harness/trainers/core/rank_context.h"
#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// With perturb row_order: each rank's rows of a step in another order, keyed by the seed, the step and the
/// rank, each micro-step's among themselves. Who is whose candidate stays, and so does every sum but for its
/// rounding. Otherwise `rows_of` itself.
RowsOf perturbed(RowsOf rows_of, const RunConfig& config);

/// Moves every element to the next number above or below, by signs keyed by the seed, equal on all ranks.
void move_by_one_unit(ParameterList& parameters, int64_t seed);

}  // namespace lockstep
