#pragma once

#include <functional>
#include <optional>
#include <string>

#include "harness/base/files.h"
#include "harness/cli/session/prepare.h"
#include "harness/run/launch.h"
#include "harness/verdict/results/results.h"

// OUT/judged.json: what the results in OUT were judged from, so that nothing is judged twice.

namespace lockstep {

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
