#pragma once
// Forced runs that a matrix has left beside two of its free runs.

#include <cstdint>
#include <optional>
#include <string>

#include "harness/verdict/evidence/arms.h"

namespace lockstep {

/// Folders of finished forced runs: gradients at one reference run's own snapshots.
struct ForcedBeside {
  int64_t seed = 0;
  std::string reference, cell;
  std::string reference_twin, cell_twin;  ///< the same in float64; of a run in float64 itself
  bool has_twins() const { return !reference_twin.empty() && !cell_twin.empty(); }
};

/// Those of both runs' settings in the folder that holds the runs: of their own seed and at the reference's own
/// snapshots, or, where the matrix forced another seed alone, of that one. Nothing where the runs lie apart, are forced
/// runs themselves, or have none that have finished.
std::optional<ForcedBeside> forced_runs_beside(const std::string& reference_dir, const RunRecord& reference,
                                               const std::string& cell_dir, const RunRecord& cell);

}  // namespace lockstep
