#pragma once
// What rows hold, by sample id: inputs and labels are the same at any layout.

#include <optional>

#include "harness/verdict/evidence/align.h"
#include "harness/verdict/evidence/difference.h"

namespace lockstep {

/// The first sample of the step that both runs have and that holds other inputs or labels in run B. Nothing where values or ids were
/// not kept.
std::optional<Difference> inputs_difference(const StepOfRun& a, const StepOfRun& b);

}  // namespace lockstep
