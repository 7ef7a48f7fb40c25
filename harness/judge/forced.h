#pragma once
// The forced comparison: gradients of a cell at its reference's weights and batches, against a measured band.

#include <string>
#include <vector>

#include "harness/judge/results.h"
#include "harness/plan/matrix.h"

namespace lockstep {

/// Run folders of one cell's forced comparison.
struct ForcedInputs {
  std::string reference_dir, cell_dir, forced_reference_dir;
  std::vector<std::string> forced_repeat_dirs;
  std::string forced_cell_dir;
  BandConfig band;
};

/// Mechanism of a cell from its forced gradients and the free traces. Throws TraceError.
Mechanism judge_forced(const ForcedInputs& inputs);

}  // namespace lockstep
