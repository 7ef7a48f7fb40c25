#pragma once

#include <optional>

#include "harness/judge/evidence/ledger.h"
#include "harness/judge/evidence/parts.h"

// What must agree exactly at any layout: sample ids, what rows hold, random streams, control values.

namespace lockstep {

/// The first difference of two runs of different layouts at one step, in the exact phases: samples as a multiset, random streams by the
/// sum of their hashes, control values on every rank. Of runs of another program than `one_program` of ours, a stream or value that no
/// rank of one of them records is not compared.
std::optional<Difference> first_exact_difference(const StepOfRun& a, const StepOfRun& b, bool one_program);

/// Two steps of one layout whose batches hold the same samples in another order, on the same ranks or on others.
bool rows_reordered(const StepOfRun& a, const StepOfRun& b);

/// Of a step, as the header declares, or the parts of rank 0's gradient show.
int64_t micro_steps_of(const StepOfRun& step);

/// Do ranks and micro-steps of both hold the same rows in the same order? Else one is compared with the other as with another layout.
bool same_partition(const StepOfRun& a, const StepOfRun& b);

}  // namespace lockstep
