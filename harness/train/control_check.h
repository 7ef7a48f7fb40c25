#pragma once
// What steers a step, compared by the ranks before its first collective (harness/sharding/control_guard.h).

#include <cstdint>

#include "harness/train/rank_context.h"
#include "harness/train/training_state.h"

namespace lockstep {

/// Fingerprints of all parameters, folded in their order.
uint64_t parameters_hash(const ParameterList& parameters);

/// Collective: two gathers of few bytes ("control.guard"), one more pair where ranks differ. Compares the step, the counters, the
/// rate, whether the rank goes on, the trainer's own control values, and a hash of the parameters. Throws
/// std::runtime_error, on every rank with the same words: the first value that differs, and who has not what most have.
void check_controls(const RankContext& context, int64_t step, const StepCounters& counters, double learning_rate, bool stop);

}  // namespace lockstep
