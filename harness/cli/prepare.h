#pragma once
// From a selection to a plan: what `run` and `plan` do alike.

#include <string>
#include <vector>

#include "harness/cli/options.h"
#include "harness/plan/plan.h"

namespace lockstep {

struct Prepared {
  std::string config_text;  ///< of the config file, which is read once: it may be a pipe
  std::string out_dir;
  std::string rank_program;
  BuildIdentity identity;
  Plan plan;
  bool nothing_selected() const { return plan.matrix.cells.empty(); }
};

/// Reads the config, checks that its data can be loaded and that the output folder is its own, and plans.
/// Throws ConfigError, MachineError.
Prepared prepare(const MatrixSelection& selection);

/// "no cell of CONFIG is selected by --only '…'; it has these: …"
std::string nothing_selected_text(const Prepared& prepared, const MatrixSelection& selection);

/// One hash for all data that the matrix's configs read. Throws ConfigError if a file is missing or corrupt.
std::string check_data(const Matrix& matrix);

/// Throws ConfigError if a claim names a cause that there is not, with the nearest. Their codes stand in a
/// room that the planner does not know.
void check_causes(const Matrix& matrix);

/// 16 hex digits over the hashes of all planned runs: two matrices with equal ones run the same.
std::string plan_hash(const Plan& plan);

}  // namespace lockstep
