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
  timing,            ///< real ranks, alone on the machine, for its speed
};

struct PlannedRun {
  std::string id;  ///< folder under OUT/runs: readable, then the first 8 digits of the hash
  RunRole role = RunRole::cell;
  std::string cell;  ///< the cell's name; a reference's own name
  RunConfig config;
  std::string hash;                ///< config_hash(config)
  std::vector<std::string> needs;  ///< ids that must have finished before (snapshots)
  double estimate_s = 0;           ///< expected duration, alone on this machine
  bool exclusive = false;          ///< runs alone, and is never reused
  bool reused = false;
  bool damaged = false;  ///< finished with the same everything, but its files are not what it left
  std::string why;  ///< why it is or is not reused, in words
};

struct Plan {
  Matrix matrix;
  std::vector<PlannedRun> runs;  ///< each distinct run once, references first
};

/// Identifies what besides the config decides a run's bits: build, LibTorch, instruction set, data.
struct BuildIdentity {
  std::string build;  ///< hash of the rank program
  std::string libtorch;
  std::string isa;   ///< instruction sets that ATen picks from
  std::string data;  ///< hash of the data files
};

/// Expands the matrix: references, cells, certifying prefixes, forced runs. Marks runs in `out_dir` that can
/// be reused: those whose OUT/runs/<id>/done, JSON {config_hash, build, libtorch, isa, data, seconds, files,
/// checksum}, names the same five hashes, whose files have the bytes that it noted (they are read whole), and
/// whose needs are reused too.
Plan make_plan(const Matrix& matrix, const std::string& out_dir, const BuildIdentity& identity);

/// The run of one cell by role, or null; `seed` selects among free runs, of the others there is one (of
/// repeats: the first is given). For the roles of references `cell` is the reference's own name or that of a
/// cell that has it.
const PlannedRun* find_run(const Plan& plan, const std::string& cell, RunRole role, int64_t seed);

/// Seconds until everything that is not reused has run, `jobs` cores given (0: those of this machine).
double estimate_total_s(const Plan& plan, int jobs = 0);

/// Bytes of all runs' traces on disk, by a rough model of the energy model on synthetic data.
double estimate_trace_bytes(const Plan& plan);

/// What would run, for people: one line for the runs that differ by seed alone, then the totals.
std::string plan_text(const Plan& plan, int jobs = 0);
/// The same as JSON, every run with its config.
std::string plan_json(const Plan& plan, int jobs = 0);

/// "out/<name>".
std::string default_out_dir(const Matrix& matrix);

/// Content of OUT/matrix.json, which says whose folder OUT is: {"file": …, "name": …, "schema_version": 1}.
std::string matrix_stamp(const Matrix& matrix);

/// Throws ConfigError naming both matrices if `out_dir` holds the results of a matrix of another name. A
/// folder that is not there yet or has no matrix.json is free to take.
void check_out_dir(const Matrix& matrix, const std::string& out_dir);

const char* name_of(RunRole role);

}  // namespace lockstep
