#pragma once
// Where a run that was resumed begins: with which of the reference's weights.

#include <optional>
#include <string>

#include "harness/verdict/compare/cause_inputs.h"

namespace lockstep {

/// A run whose trace begins with a later step than the first, with weights that are much nearer to those with which the reference begins another
/// step: what is known around that step. Nothing where weights were not kept, or where they are as near to those of the same step as a
/// resumption in another layout comes, or as training further apart leaves them. Throws TraceError.
std::optional<CauseInputs> begins_with_other_weights(const std::string& reference_dir, const std::string& cell_dir);

}  // namespace lockstep
