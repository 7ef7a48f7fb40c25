#pragma once
// Holds what a run left against what it should have left.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/verdict/config/run_config.h"

namespace lockstep::restarts {

/// The checkpoints in a run's folder, as a load would find them.
struct Kept {
  std::vector<int64_t> whole;  ///< steps, newest first
  int64_t damaged = 0;         ///< committed, and not what was committed
  int64_t newest() const { return whole.empty() ? 0 : whole.front(); }
};
Kept kept_in(const std::string& run_dir);

/// Of a run that has ended: what is wrong with `best_model`, which must name a whole checkpoint whose evaluation is not
/// worse than that of any step that is both evaluated and saved: "best_model: step 12 expected, found 8". Empty: nothing.
std::string best_model_problem(const std::string& run_dir, const RunConfig& config);

/// Where the two runs part: results, curves, metrics, last parameters and traces of all ranks, byte for byte. Empty: they
/// do not. "rank 1: step 12: parameters, w: …"
std::string first_difference(const std::string& expected_dir, const std::string& found_dir, int ranks);
/// The same of their traces alone, up to that step.
std::string trace_difference_before(const std::string& expected_dir, const std::string& found_dir, int ranks, int64_t step);
/// The same of runs of other numbers of ranks: last parameters, and rank 0's curves and metrics.
std::string training_difference(const std::string& expected_dir, const std::string& found_dir);

}  // namespace lockstep::restarts
