#pragma once
// How far rounding alone carries a run from another that means the same.

#include <string>
#include <vector>

#include "harness/verdict/evidence/run_evidence.h"
#include "harness/verdict/results/drift_words.h"

namespace lockstep {

/// One seed, trained twice. Both traces' rank 0 kept snapshots of the same steps.
struct DriftPair {
  const RunEvidence* reference = nullptr;
  const RunEvidence* cell = nullptr;
  std::string reference_dir, cell_dir;
};

/// Distances by step; median, smallest and largest over the pairs: |p_cell - p_ref| / |p_ref| over the parameters, before
/// each step of which both runs kept a snapshot, and apart from these over those whose gradient is zero in the trainer of
/// `config`, as a share of the length of all; then of "loss" and of the primary metric the absolute difference, where both runs have the value.
/// What a pair lacks is left out. Throws TraceError.
std::vector<CurveBand> drift_of(const std::vector<DriftPair>& pairs, const RunConfig& config,
                                const std::string& primary_metric);

}  // namespace lockstep
