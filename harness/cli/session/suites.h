#pragma once
// Configs that name a suite, from their text to results.json and reports.

#include <functional>
#include <string>
#include <vector>

#include "harness/cli/session/out_folder.h"
#include "harness/cli/session/progress.h"
#include "harness/suites/engine/kinds.h"
#include "harness/suites/engine/run_trials.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

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
