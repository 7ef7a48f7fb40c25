#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/suites/engine/suite.h"

// OUT/trials.jsonl: every trial that has run, a line each, so that a suite that was interrupted goes on where it was.

namespace lockstep {

/// What is kept of a trial.
struct TrialRecord {
  std::string trial;  ///< its name
  std::vector<CaseResult> cases = {};
  Measurements measured = {};
};

/// One line of JSON, sealed, and what it says; nothing if it is damaged.
std::string to_text(const TrialRecord& record);

inline constexpr const char* kTrialJournal = "trials.jsonl";

/// Of one thread at a time.
class TrialJournal {
 public:
  /// `key`: of everything that decides what a trial finds (settings, programs). A file of another key, one of a call that came to its end, and
  /// one that cannot be read are begun anew, as with `fresh`; a line that is cut short or damaged is
  /// left out with all behind it, whose trials run again. Throws MachineError.
  TrialJournal(std::string path, const std::string& key, bool fresh = false);
  ~TrialJournal();
  TrialJournal(const TrialJournal&) = delete;
  TrialJournal& operator=(const TrialJournal&) = delete;

  /// Null: it has not run, or nothing could be said of one of its cases, so that it runs again.
  const TrialRecord* find(const std::string& trial) const;
  /// The line reaches the kernel before this returns: the end of this process loses none. Throws MachineError.
  void append(const TrialRecord& record);
  /// All selected trials have run, and are reported: the next call runs them anew.
  void end();

 private:
  void write(const std::string& text);

  std::string path_;
  std::map<std::string, TrialRecord> records_;
  int file_ = -1;
};

/// How many trials a folder's journal holds.
int64_t recorded_trials(const std::string& out_dir);

// Runs a suite's trials on its slots and counts what came of them.

/// Which trials `--only` selects: one by its name, or all of a failure, a place, or both
/// ("failure==kill && place!=rank 0, write"). Throws ConfigError on a text that is neither.
class TrialFilter {
 public:
  /// Empty: all of them.
  explicit TrialFilter(const std::string& only);
  bool takes(const Trial& trial) const;

 private:
  struct Condition {
    bool of_place = false, equal = true;
    std::string value;
  };
  std::string name_;  ///< of the one trial, if there are no conditions
  std::vector<Condition> conditions_;
};

/// How far the trials are: told after each trial, and every second while none ends; one call at a time, from any thread.
struct TrialProgress {
  std::size_t done = 0, all = 0;
  int64_t faults = 0;
  double elapsed_s = 0, left_s = 0;
  std::string longest = {};  ///< name of the trial that has run the longest; empty: none is running
  double longest_s = 0;      ///< for how long
};

struct TrialOptions {
  std::string only;
  std::function<void(const TrialProgress&)> on_progress;  ///< may be empty
  std::function<double()> clock;                          ///< seconds
  std::function<void(std::size_t recorded, std::size_t all)> on_recorded;  ///< called before the first trial if there are any; may be empty
  TrialJournal* journal = nullptr;  ///< whose trials are not run again, and which gets those that are; null: none
  std::size_t findings_a_row = 5;  ///< of each failure, place and outcome that many findings are listed
};

struct TrialsDone {
  SuiteResult result;  ///< without kind and replays
  bool interrupted = false;
  int64_t recorded = 0;             ///< trials that an earlier call had run
  std::size_t done = 0, all = 0;    ///< those that were selected; recorded ones are done
};

/// Prepares the suite and runs the selected trials. The result does not depend on the number of jobs, if trials do
/// not. Throws what the suite throws.
TrialsDone run_trials(Suite& suite, const SuiteRun& run, const TrialOptions& options);

}  // namespace lockstep
