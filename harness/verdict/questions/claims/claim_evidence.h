#pragma once
// What the runs of a matrix left, as claims ask for it.

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "harness/verdict/evidence/run_evidence.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

/// One cell, or one reference, with what its runs left.
struct ArmEvidence {
  const CellResult* cell = nullptr;  ///< null: a reference
  std::string reference;             ///< name of the cell's reference
  std::string run;                   ///< id of the run of the first seed
  std::map<int64_t, const RunEvidence*> seeds;
  std::map<int64_t, std::string> dirs = {};  ///< by seed: folder of the run that trained
  int world_size = 1;
};

struct ClaimEvidence {
  Primary primary;
  std::map<std::string, ArmEvidence> arms;  ///< by name
  const Timing* timing = nullptr;           ///< null: nothing was timed
  /// The file that a suite of that name leaves its results in.
  std::function<std::string(const std::string& name)> results_beside = {};
};

}  // namespace lockstep
