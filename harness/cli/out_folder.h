#pragma once
// OUT: who may write to it, and what stands in it beside the runs.

#include <string>

#include "harness/judge/results.h"
#include "harness/plan/plan.h"

namespace lockstep {

/// Holds OUT for this process alone, as long as it lives.
class OutFolder {
 public:
  /// Makes the folder and says whose it is. Throws ConfigError if another lockstep writes to it,
  /// MachineError.
  OutFolder(const std::string& path, const Matrix& matrix);
  ~OutFolder();
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;

  /// Removes what earlier calls left of the plan's runs. Throws MachineError.
  void remove_runs(const Plan& plan) const;
  /// Keeps the first step at which each cell parts from its reference, and notes the command that repeats it.
  /// Of a detection matrix only the trials that went wrong. Throws MachineError, TraceError.
  void write_replays(const Plan& plan, Results& results) const;
  /// results.json, report.html, junit.xml and summary.md. Throws MachineError.
  void write_reports(const Results& results) const;

 private:
  std::string path_;
  int lock_ = -1;
};

/// Appends to the file that GitHub shows beside a job. Returns what went wrong, or nothing.
std::string append_step_summary(const std::string& path, const std::string& markdown);

}  // namespace lockstep
