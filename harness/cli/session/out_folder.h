#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/base/files.h"
#include "harness/cli/session/progress.h"
#include "harness/plan/matrix/plan.h"
#include "harness/suites/engine/run_trials.h"
#include "harness/suites/engine/suite.h"

// OUT: who may write to it, and what stands in it beside the runs.

namespace lockstep {

/// Holds OUT, for this process alone or for it and the other tasks of an array, as long as it lives.
class OutFolder {
 public:
  /// Makes the folder, notes whose it is and removes temporary files that killed processes left in it. Throws
  /// ConfigError if another lockstep writes to it, MachineError.
  enum class Hold { alone, shared };
  OutFolder(const std::string& path, const Matrix& matrix, Files& files = real_files(), Hold hold = Hold::alone);
  ~OutFolder();
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;

  /// Removes what earlier calls left of the plan's runs. Throws MachineError.
  void remove_runs(const Plan& plan) const;
  /// Keeps the first step at which each cell parts from its reference, and notes the command that repeats it.
  /// Of a detection matrix only the trials that went wrong. Returns what could not be kept and why, a line
  /// each.
  std::vector<std::string> write_replays(const Plan& plan, Results& results) const;
  /// results.json first, so that no drawing can lose it; then report.html, junit.xml and summary.md, each
  /// whatever becomes of the others. Returns which could not be made or written and why, a line each.
  std::vector<std::string> write_reports(const Results& results) const;

 private:
  void remove_temporaries() const;

  std::string path_;
  Files& files_;
  int lock_ = -1;
};

/// Writes the results in these formats (names as in report_formats()) into `dir`, results.json first, each
/// whatever becomes of the others. `made`, if not null, gets the paths. Returns what went wrong, a line each.
std::vector<std::string> write_formats(const Results& results, std::vector<std::string> names,
                                       const std::string& dir, std::vector<std::string>* made = nullptr,
                                       Files& files = real_files());

/// Appends the results in Markdown to the file that GitHub shows beside a job. Returns what went wrong, or
/// nothing.
std::string append_step_summary(const std::string& path, const Results& results,
                                Files& files = real_files());

// What a user selects of a matrix, and the command line that selects it.

/// Which cells of which matrix, and where their runs lie.
struct MatrixSelection {
  std::string config;
  std::vector<std::string> set;  ///< key=value
  std::string only, seeds;
  std::string out;  ///< empty: out/<name of the matrix>
  int jobs = 0;     ///< 0: cores
  std::string launcher;  ///< empty: as the config says
};

/// "lockstep run CONFIG …" as a shell takes it: the command that does the same once more (without --fresh and
/// --json).
std::string command_text(const MatrixSelection& selection);

// Configs that name a suite, from their text to results.json and reports.

/// JSON Schema of every config: matrices, and those that name a suite.
std::string every_config_schema();

struct PreparedSuite {
  std::string text;              ///< of the config
  std::vector<std::string> set;  ///< --set
  SuiteConfig config;
  std::string out_dir;
  int jobs = 1;
};

/// Reads the config's text and checks that OUT is its own. Throws ConfigError.
PreparedSuite prepare_suite(const std::string& text, const MatrixSelection& selection);

/// Has OUT made and found to be free; whoever runs the suite then holds it.
void make_suite_out(const PreparedSuite& prepared);

/// What would be tried, in words or as JSON.
std::string suite_plan_text(const PreparedSuite& prepared);
std::string suite_plan_json(const PreparedSuite& prepared);

/// Says on the console's stderr how far the trials are: a line that is repainted on a terminal, elsewhere one line every
/// tenth of them, and not more often than every five seconds.
class TrialsLine {
 public:
  explicit TrialsLine(const Console& console) : console_(console) {}
  ~TrialsLine() { clear(); }
  void on_progress(const TrialProgress& progress);
  void say(const std::string& line);

 private:
  void clear();
  const Console& console_;
  bool painted_ = false;
  double said_at_ = 0, painted_at_ = 0;
  std::size_t said_done_ = 0;
};

struct SuiteOutcome {
  Results results;  ///< reports are written
  bool interrupted = false;
  std::size_t done = 0, all = 0;      ///< trials that have run, also in a call before; those that were selected
  std::vector<std::string> problems;  ///< with what was to be written, a line each
};

/// Runs the trials, but those that an interrupted call with the same settings and programs had run unless `fresh`, and writes results, reports and a replay script for each finding that is listed.
SuiteOutcome run_suite(PreparedSuite& prepared, const MatrixSelection& selection,
                                 bool fresh, const Console& console, const volatile int* stop_requested);

}  // namespace lockstep
