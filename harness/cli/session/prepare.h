#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/base/files.h"
#include "harness/cli/session/out_folder.h"
#include "harness/cli/session/progress.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/checks.h"
#include "harness/plan/matrix/plan.h"
#include "harness/run/launch.h"

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
  LauncherChoice launcher;
  bool nothing_selected() const { return plan.matrix.cells.empty(); }
};

/// Reads the config, checks that its data can be loaded and that the output folder is its own, and plans.
/// Throws ConfigError, MachineError.
Prepared prepare(const MatrixSelection& selection);
/// The same of a config whose text has been read: a pipe can be read but once.
Prepared prepare(const MatrixSelection& selection, std::string config_text);

/// Runs that need more memory than this machine has, in words, where this machine is to run them.
std::vector<std::string> lacking_here(const Prepared& prepared);

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

// What `run` says about itself and about runs that failed.

/// Of a matrix whose runs are a command: what decides whether they are reused, and what can be judged with what finished runs recorded. Else empty.
std::string command_notes(const Prepared& prepared);

/// Printed before anything runs: seeds, build, the resolved config's hash, what there is to do.
std::string opening_text(const Prepared& prepared, int jobs);

/// "0..9" or "0, 2, 5".
std::string seeds_text(const std::vector<int64_t>& seeds);

/// What failed, where, its last words, where its files lie and the command that repeats it.
std::string failure_block(const RankFailure& failure, const std::string& out_dir, const std::string& rerun);

/// Blocks of the runs that failed by themselves; those that only needed one of them are counted.
std::string failure_blocks(const LaunchReport& report, const std::string& out_dir, const Results& results,
                           const std::string& command);

/// Results on the console, as a table or as JSON, and in GitHub's summary of the step where there is one; `problems`: with what was to be written.
void print_results(const Results& results, const std::vector<std::string>& problems, const std::string& out_dir, bool json, const Console& console);

/// The launcher's failures as the judge takes them.
std::map<std::string, Failure> failures_by_run(const LaunchReport& report);

// OUT/judged.json: what the results in OUT were judged from, so that nothing is judged twice.

/// What a judgement depends on: the config as it was read when the matrix was planned, the command, the
/// programs, the data, and the checksums of every run's files.
class Judged {
 public:
  /// Looks at the runs as they are now: construct it before they are judged.
  Judged(const Prepared& prepared, const MatrixSelection& selection);

  /// The results that stand in OUT, if they were judged from the same, and neither they nor a report nor a
  /// kept step has been touched since.
  std::optional<Results> standing() const;
  /// Notes that the results and reports now in OUT are the judgement. Throws MachineError.
  void note(const Results& results, Files& files = real_files()) const;

 private:
  std::string path() const { return out_dir_ + "/judged.json"; }

  std::string out_dir_, key_;
};

// `seeds: auto`: plan, launch, look, and again with more seeds for the cells that are undecided.

/// What a look takes, handed in so that the loop can be tried without processes.
struct InterimSteps {
  std::function<LaunchReport(const Prepared&)> launch;
  /// Judges outcomes alone.
  std::function<Results(const Prepared&, const LaunchReport&)> judge;
  std::function<void(const std::string&)> say;  ///< one line a look
  std::function<double()> clock;                ///< seconds
  Files* files = &real_files();
};

/// Launches what is planned, once OUT/declared.json says what is declared of it. Of a matrix with `seeds: auto`
/// then looks, gives the cells that are undecided the seeds of their next look, and launches again, until none
/// is undecided, all looks are taken, or the budget is spent; `prepared` is then the plan of the last look. The
/// report is that of all launches. Runs that failed are not tried again at a later look.
///
/// OUT/looks.json keeps the seconds that the looks took, and how many were begun, so that another call takes
/// the same looks from the runs that are finished and ends where the first did. Throws MachineError.
LaunchReport launch_interim_analyses(Prepared& prepared, const InterimSteps& steps);

/// The plan if no cell is decided before the last look: all runs that looks can ask for.
Plan plan_of_all_analyses(const Prepared& prepared);

/// Forgets the looks that earlier calls took in this folder. Throws MachineError.
void forget_interim_analyses(const std::string& out_dir, Files& files = real_files());

}  // namespace lockstep
