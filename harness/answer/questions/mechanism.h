#pragma once

#include <string>

#include "harness/answer/results/results.h"
#include "harness/judge/evidence/run_evidence.h"

// Two runs of one layout of which at least one kept no trace: what their ranks' results say.

namespace lockstep {

/// Compares, of every rank, the fingerprint of the final parameters, and the curves and final metrics that
/// both runs have, bit for bit: `identical`, or `divergent` at the first step of a curve that differs. The
/// sentence says that no traces were compared. Throws std::runtime_error if a result cannot be read or has no
/// fingerprint.
Mechanism compare_results(const std::string& reference_dir, const std::string& cell_dir, int world_size,
                          const RankResultReader& read);

}  // namespace lockstep
