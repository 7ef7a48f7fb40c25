#pragma once

#include "harness/answer/results/results.h"
#include "harness/judge/compare/compare.h"
#include "harness/judge/compare/forced/forced.h"

// Mechanisms with their causes: comparisons of traces, and the first divergence named.

namespace lockstep {

/// Mechanism of run B against run A, see compare_traces; its sentence begins with how they are configured otherwise. Throws
/// TraceError.
Mechanism compare_runs(const CompareOptions& options);

/// Mechanism of a cell against its reference from forced runs, see compare_forced; without any, from the free ones alone. Throws
/// TraceError.
Mechanism judge_forced(const ForcedInputs& inputs);

}  // namespace lockstep
