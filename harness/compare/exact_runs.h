#pragma once
// Free runs in exact arithmetic: no layout changes a bit, so every step is compared bit for bit, row by row.

#include <cstdint>
#include <optional>

#include "harness/compare/cause_inputs.h"
#include "harness/compare/compared.h"
#include "harness/compare/step_pairs.h"

namespace lockstep {

/// Did both runs compute in exact arithmetic? False where a config is not known.
bool both_exact(const RunConfig* reference, const RunConfig* cell);

/// The first difference of two exact runs at one step, whatever their layouts: rows by their place in the whole batch, with
/// sample, rank and tensor; then what all ranks hold alike, on each rank of B against rank 0 of A. `before` is B's step
/// before and may be null; `compared` takes what was looked at, or is null.
struct ExactFinding {
  std::optional<Difference> difference;
  std::optional<LedgerFinding> ledger;  ///< if that is what was found first
};
ExactFinding exact_finding(const StepOfRun& a, const StepOfRun& b, const StepOfRun* before, Compared* compared = nullptr);

/// Mechanism of two exact runs from their free traces: `identical`, `divergent` at the first bit, or `inconclusive` where the
/// traces end at different steps.
Comparison compare_exact_runs(StepPairs& pairs, const RunConfig* reference_config, const RunConfig* cell_config);

}  // namespace lockstep
