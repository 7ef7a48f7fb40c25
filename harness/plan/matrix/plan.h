#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan_history.h"

// From a matrix to the list of runs, without launching anything.

namespace lockstep {

struct Plan {
  Matrix matrix;
  std::vector<PlannedRun> runs;  ///< each distinct run once, references first
};

/// Expands the matrix: references, cells, certifying prefixes, forced runs. Marks runs in `out_dir` that can
/// be reused: those whose OUT/runs/<id>/done, JSON {config_hash, build, libtorch, isa, data, seconds, files,
/// checksum}, names the same five hashes, whose files have the bytes that it noted (they are read whole), and
/// whose needs are reused too.
Plan make_plan(const Matrix& matrix, const std::string& out_dir, const BuildIdentity& identity);

/// The run of one cell by role, or null; `seed` selects among free runs; each other role has one run (of the
/// repeats the first is returned). For the roles of references `cell` is the reference's own name or that of
/// a cell that has it.
const PlannedRun* find_run(const Plan& plan, const std::string& cell, RunRole role, int64_t seed);

/// Seconds until everything that is not reused has run, `jobs` cores given (0: those of this machine).
double estimate_total_s(const Plan& plan, int jobs = 0);

/// Runs that need more memory than the machine has, in words.
std::vector<std::string> lacking_memory(const Plan& plan, double machine_bytes);

/// What would run, for people: one line for the runs that differ by seed alone, then the totals.
std::string plan_text(const Plan& plan, int jobs = 0);
/// The same as JSON, every run with its config.
std::string plan_json(const Plan& plan, int jobs = 0);

// The first steps of a cell and of its reference in exact arithmetic, beside the runs that are asked about.

struct ExactPair {
  RunConfig reference, cell;
  int64_t steps = 0;
};

/// Of the cell's first seed; nothing if the matrix asks for none, or where the two are not meant to compute the same: a
/// power control, an A/A pair, another batch, a run that must fail, a run that keeps no trace.
std::optional<ExactPair> exact_pair_of(const Matrix& matrix, const Cell& cell);

}  // namespace lockstep
