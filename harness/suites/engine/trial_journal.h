#pragma once
// OUT/trials.jsonl: every trial that has run, a line each, so that a suite that was interrupted goes on where it was.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/suites/engine/suite.h"

namespace lockstep {

/// What is kept of a trial.
struct TrialRecord {
  std::string trial;  ///< its name
  std::vector<CaseResult> cases = {};
  Measurements measured = {};
};

/// One line of JSON, sealed, and what it says; nothing if it is damaged.
std::string to_text(const TrialRecord& record);
std::optional<TrialRecord> trial_record(const std::string& text);

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

}  // namespace lockstep
