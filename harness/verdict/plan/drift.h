#pragma once
// Cells that are their reference in another arithmetic: what parts the two runs is rounding alone, and how far it
// carries them can be followed step by step.

#include <cstdint>
#include <vector>

#include "harness/verdict/plan/matrix.h"

namespace lockstep {

/// Is `arithmetic` the one key in which the cell differs from its reference?
bool rounds_alone(const Cell& cell);

/// Steps before which both runs keep their parameters whole: 1, 2, 5, 10, 20, 50, ... and the last.
std::vector<int64_t> drift_steps(int64_t steps);

/// Adds these to the snapshots of such cells and their references, and to every cell of the same reference, so that they go
/// on sharing its runs.
void keep_drift_snapshots(std::vector<Cell>& cells);

}  // namespace lockstep
