#pragma once
// Free runs in exact arithmetic: no layout changes a bit, so every step is compared bit for bit, row by row.

#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/step_pairs.h"

namespace lockstep {

/// Did both runs compute in exact arithmetic? False where a config is not known.
bool both_exact(const RunConfig* reference, const RunConfig* cell);

/// Mechanism of two exact runs from their free traces: `identical`, `divergent` at the first bit, or `inconclusive` where the
/// traces end at different steps.
Comparison compare_exact_runs(StepPairs& pairs, const ConfigPair& configs);

}  // namespace lockstep
