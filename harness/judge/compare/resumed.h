#pragma once
// Where a run that was resumed begins: with which of the reference's weights and moments.

#include <optional>
#include <string>

#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/forced/update.h"

namespace lockstep {

/// Where a difference says that a resumed run's optimizer begins without its moments.
inline constexpr const char* kMoments = "moments";

/// Moments that the cell's step before left, and that its step begins without.
std::optional<Difference> judge_lost_moments(ForcedContext& context);

/// A run whose trace begins with a later step than the first, and with another state than the reference begins that step with: its weights are much nearer
/// to those of another step; one tensor is far away and most are not; or its optimizer's moments are 0. What is known around that step. Nothing where
/// weights were not kept, or where they are as near as a resumption in another layout comes, or as training further apart leaves them. Throws TraceError.
std::optional<CauseInputs> begins_elsewhere(const std::string& reference_dir, const std::string& cell_dir);

}  // namespace lockstep
