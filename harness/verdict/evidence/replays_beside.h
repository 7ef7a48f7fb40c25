#pragma once
// Replays that another trainer's probe has left beside its runs: steps of the reference, computed once more from its weights and batches.

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Folders of traces, each with the gradients of the same steps.
struct ReplaysBeside {
  std::string reference, cell;            ///< in the trainers' own precision
  std::string reference_twin, cell_twin;  ///< in float64; empty where one of the two could not
  std::string reference_rows, cell_rows;  ///< steps taken apart, see rows_apart.h; empty where one of the two has none
  std::vector<std::string> repeats;       ///< of the reference with its rows in other orders, where there is no float64
  bool has_twins() const { return !reference_twin.empty(); }
};

/// Those of run A's steps in A/replay/DIGEST and B/replay/DIGEST, with the digest of A's rank-0.trace: replays of another run's steps are left
/// alone. Nothing where one of the two runs has none. Throws TraceError if A's trace cannot be read.
std::optional<ReplaysBeside> replays_beside(const std::string& reference_dir, const std::string& cell_dir);

}  // namespace lockstep
