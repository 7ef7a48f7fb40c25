#pragma once
// Which planned runs are the arms of a cell: pairs by seed, the certifying prefix, the forced runs.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "harness/verdict/plan/plan.h"

namespace lockstep {

/// One seed of a cell and of its reference; null where the plan has no such run.
struct SeedPair {
  int64_t seed = 0;
  const PlannedRun* cell = nullptr;
  const PlannedRun* reference = nullptr;
};

class PlannedArms {
 public:
  /// The plan must outlive it.
  explicit PlannedArms(const Plan& plan);
  const Plan& plan() const { return plan_; }

  std::vector<SeedPair> pair_seeds(const Cell& cell) const;
  /// The certifying or forced run of a cell, or of another cell of equal config (of forced runs: and
  /// reference) in whose name it is planned; null if none.
  const PlannedRun* single_run(const Cell& cell, RunRole role) const;
  /// The forced run of the cell, then those of the reference at whose snapshots it was taken, each with its twin; empty
  /// if none is planned.
  std::vector<const PlannedRun*> forced_runs(const Cell& cell) const;
  /// The planned run of that config, whatever it is called and there for; null if none.
  const PlannedRun* run_of(const RunConfig& config) const;
  /// The same in float64: of a run in float64 itself. Null where the matrix judges without twins.
  const PlannedRun* twin_of(const PlannedRun& forced) const;

 private:
  const Plan& plan_;
  std::unordered_map<std::string, std::string> cell_hashes_;  ///< by name
};

}  // namespace lockstep
