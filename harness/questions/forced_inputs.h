#pragma once
// Which folders a cell's forced comparison reads.

#include <functional>
#include <string>

#include "harness/compare/forced/forced.h"
#include "harness/evidence/planned_arms.h"

namespace lockstep {

/// Those of the cell's first seed. Throws std::runtime_error if the plan has no forced run of the reference at the
/// snapshots that `forced_cell` loads. The plan must outlive what is returned.
ForcedInputs forced_inputs(const PlannedArms& arms, const PlannedRun& forced_cell, const SeedPair& first,
                           const std::function<std::string(const PlannedRun&)>& dir_of);

}  // namespace lockstep
