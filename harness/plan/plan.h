#pragma once
// From a matrix to the list of runs, without launching anything.

#include <string>
#include <vector>

#include "harness/plan/matrix.h"

namespace lockstep {

enum class RunRole {
  reference,         ///< trains freely; the reference of one or more cells, one seed
  cell,              ///< trains freely; one seed of a cell
  certify,           ///< the real prefix of a cell whose long runs are emulated
  forced_reference,  ///< gradients of the reference at its own snapshots, with the sums of |terms|
  forced_repeat,     ///< the same, rows or ranks permuted: measures the band
  forced_cell,       ///< gradients of the cell at the reference's snapshots
};

struct PlannedRun {
  std::string id;          ///< folder under OUT/runs: readable, then the first 8 digits of the hash
  RunRole role = RunRole::cell;
  std::string cell;        ///< the cell's name; a reference's own name
  RunConfig config;
  std::string hash;        ///< config_hash(config)
  std::vector<std::string> needs;  ///< ids that must have finished before (snapshots)
  double estimate_s = 0;   ///< expected duration, alone on this machine
  bool reused = false;
  std::string why;         ///< why it is or is not reused, in words
};

struct Plan {
  Matrix matrix;
  std::vector<PlannedRun> runs;  ///< each distinct run once, references first
};

/// Identifies what besides the config decides a run's bits: build, LibTorch, instruction set, data.
struct BuildIdentity {
  std::string build;       ///< hash of the programs
  std::string libtorch;
  std::string isa;         ///< instruction sets that ATen picks from
  std::string data;        ///< hash of the data files
};

/// Expands the matrix: references, cells, certifying prefixes, forced runs. Marks runs in `out_dir` that can be reused.
Plan make_plan(const Matrix& matrix, const std::string& out_dir, const BuildIdentity& identity);

/// Ids of the runs of one cell by role; `seed` selects among free runs.
const PlannedRun* find_run(const Plan& plan, const std::string& cell, RunRole role, int64_t seed);

const char* name_of(RunRole role);

}  // namespace lockstep
