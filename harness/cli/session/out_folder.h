#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/base/files.h"
#include "harness/verdict/plan/plan.h"
#include "harness/verdict/results/results.h"

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

}  // namespace lockstep
