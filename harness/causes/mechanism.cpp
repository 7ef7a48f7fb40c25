#include "harness/causes/mechanism.h"

#include <utility>

#include "harness/causes/cause.h"

namespace lockstep {
namespace {

Mechanism named(Comparison comparison) {
  if (comparison.around) comparison.mechanism.cause = name_cause(*comparison.around);
  return std::move(comparison.mechanism);
}

}  // namespace

Mechanism compare_runs(const CompareOptions& options) { return named(compare_traces(options)); }

Mechanism judge_forced(const ForcedInputs& inputs) {
  if (!inputs.forced_reference.empty()) return named(compare_forced(inputs));
  CompareOptions free;
  free.run_a = inputs.reference_free;
  free.run_b = inputs.cell_free;
  free.steps = inputs.steps;
  return compare_runs(free);
}

}  // namespace lockstep
