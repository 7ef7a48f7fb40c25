#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/files.h"
#include "harness/cli/session/out_folder.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/plan.h"
#include "harness/verdict/results/results.h"

// From a selection to a plan: what `run` and `plan` do alike.

namespace lockstep {

/// The data of the matrix's configs, as they were when it was planned.
class PlannedData {
 public:
  void add(const RunConfig& config, DataFacts facts);
  /// Null if the plan has no such data.
  const DataFacts* find(const RunConfig& config) const;
  /// Empty if the plan has no such data.
  std::string hash_of(const RunConfig& config) const;
  /// One hash for all of it.
  std::string hash() const;

 private:
  std::vector<std::pair<std::string, DataFacts>> facts_;  ///< by the trainer and what a config says of its data
};

struct Prepared {
  std::string config_text;  ///< the config's bytes, read once: everything is made from these
  std::string out_dir;
  std::string rank_program;
  BuildIdentity identity;
  PlannedData data;
  Plan plan;
  bool nothing_selected() const { return plan.matrix.cells.empty(); }
};

/// Reads the config, checks that its data can be loaded and that the output folder is its own, and plans.
/// Throws ConfigError, MachineError.
Prepared prepare(const MatrixSelection& selection);
/// The same of a config whose text has been read: a pipe can be read but once.
Prepared prepare(const MatrixSelection& selection, std::string config_text);

/// Runs that need more memory than this machine has, in words, where this machine is to run them.
std::vector<std::string> lacking_here(const Plan& plan);

/// "no cell of CONFIG is selected by --only '…'; it has these: …"
std::string nothing_selected_text(const Prepared& prepared, const MatrixSelection& selection);

/// Reads all data of the matrix's configs. Throws ConfigError if a file is missing or corrupt, or if a part
/// has fewer samples than its steps or metrics need.
PlannedData check_data(const Matrix& matrix);

/// Throws ConfigError if the config is wrong in a way that only the judge of its question can know.
void check_question(const Matrix& matrix);

/// 16 hex digits over the hashes of all planned runs: two matrices with equal ones run the same.
std::string plan_hash(const Plan& plan);

// OUT/declared.json: what a matrix declared (question, metric, margin, alpha, target, test) when each of its
// runs was first planned, so that nothing is said to be declared before the runs that was changed after them.

/// Notes for each of the plan's runs that has no record what is declared now; of a run whose folder lies there
/// already, that it is not known. Call it before the runs start. A record is never replaced, not even where the
/// run is done anew: its numbers were the same. Writes nothing if nothing is new. A file that cannot be
/// understood begins anew, and `say` (may be null) is told. Throws MachineError.
void note_declared(const Plan& plan, const std::string& out_dir,
                   const std::function<void(const std::string&)>& say = nullptr, Files& files = real_files());

/// Notes of the plan's runs that lie there without a record that it is not known. Call it before they are
/// removed. Throws MachineError.
void note_undeclared(const Plan& plan, const std::string& out_dir, Files& files = real_files());

/// What the record says of the plan's runs that outcomes are judged from, against what is declared now.
Declaration declaration_of(const Plan& plan, const std::string& out_dir);

}  // namespace lockstep
