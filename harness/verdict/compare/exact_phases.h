#pragma once
// What must agree exactly at any layout: sample ids, random streams, control values.

#include <optional>

#include "harness/verdict/evidence/align.h"
#include "harness/verdict/evidence/difference.h"

namespace lockstep {

/// The first difference of two runs of different layouts at one step, in the exact phases: samples as a multiset, random streams by the
/// sum of their hashes, control values on every rank.
std::optional<Difference> first_exact_difference(const StepOfRun& a, const StepOfRun& b);

/// Two steps of one layout whose batches hold the same samples in another order, on the same ranks or on others.
bool rows_reordered(const StepOfRun& a, const StepOfRun& b);

}  // namespace lockstep
