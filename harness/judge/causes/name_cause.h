#pragma once

#include <string_view>

#include "harness/judge/compare/compared.h"

// Mechanisms with their causes: comparisons of traces, and the first divergence named.

namespace lockstep {

/// Mechanism of run B against run A, see compare_traces; its sentence begins with how they are configured otherwise. Throws
/// TraceError.
Mechanism compare_runs(const CompareOptions& options);

/// Mechanism of a cell against its reference from forced runs, see compare_forced; without any, from the free ones alone. Throws
/// TraceError.
Mechanism judge_forced(const ForcedInputs& inputs);

/// Of a led run whose loss or gradients differ at a step: the cause in the contents of rows that forward passes get.
std::optional<Cause> name_cause_of_rows(const std::string& reference, const std::string& run, int64_t step);

/// And in a generator that began an earlier step on every rank as the reference's did, and gave more draws, or fewer;
/// else another name for a `code` that would show from the first step on. Throws TraceError.
std::optional<Cause> name_cause_of_draws(const std::string& reference, const std::string& run, int64_t step,
                                         std::string_view code);

}  // namespace lockstep
