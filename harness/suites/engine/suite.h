#pragma once
// A suite: trials of a library or of a program under failures, each on its own, many at once. It is named in a
// config by the key `suite` and has a section of its own; harness/suites/engine/kinds.h lists what there is.
//
// To add one: a class of Suite and its SuiteKind in a room of its own, a line in
// harness/cli/session/suites.cpp, a config, a test. How trials are spread over slots, counted, recorded, reported, replayed and
// selected by --only is none of its business.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/errors.h"
#include "harness/suites/engine/measurements.h"
#include "harness/verdict/results/suite_results.h"

namespace lockstep {

class Slot;
struct CaseResult;

/// A process of a trial was ended by a SIGKILL that no suite had sent: the machine is out of memory, or an administrator did it. Nothing is
/// known of what was tried. Thrown by what runs a trial's processes; the trial runs again, and is undecided where that does not help.
class TrialDisturbed : public MachineError {
 public:
  /// "rank 2"
  explicit TrialDisturbed(const std::string& who);
};

/// One trial: a row of a suite's table of cases.
struct Trial {
  std::string name;     ///< unique, of letters, digits and ._:@,+-/: `--only` takes it
  std::string failure;  ///< what is done: "kill", "write fails with ENOSPC"; a row of the table
  std::string place;    ///< at what kind of place: "rank 1, rename"; a row of the table
  double estimate_s = 0;
  std::function<std::vector<CaseResult>(Slot&)> run = {};  ///< on any slot's thread
};

/// How one case of a trial, or several that ended alike, came out.
struct CaseResult {
  std::string outcome;  ///< a column of the table: "whole, new", "torn"
  CaseVerdict verdict = CaseVerdict::good;
  int64_t cases = 1;
  std::string sentence;  ///< of all but good ones: who did what, what was expected, what was found
  std::vector<TimelineStep> timeline = {};
};

/// What a suite is run with.
struct SuiteRun {
  std::string out_dir;  ///< exists, and is this process's own
  int jobs = 1;         ///< workers at once
  const volatile int* stop_requested = nullptr;  ///< not null; other than 0: end soon, whatever is unfinished
  std::function<void(const std::string&)> say;   ///< a line for people; from the calling thread of trials() alone
};

/// Where trials run one after the other, on one thread. What a trial measures beside its cases it writes into measured() (measurements.h);
/// nothing else that it leaves may show in a report, since an interrupted suite goes on in another process.
class Slot {
 public:
  Slot(const SuiteRun& run, int number) : run_(run), number_(number) {}
  const SuiteRun& run() const { return run_; }
  int number() const { return number_; }
  /// A folder of this slot's own; nobody has made it yet.
  std::string folder() const { return run_.out_dir + "/work/slot-" + std::to_string(number_); }
  /// What the slot's trials share (ranks that are loaded, a program that waits): made by the first one that asks, ended with the slot. One
  /// type a suite.
  template <class T, class Make>
  T& keep(Make make) {
    if (kept_ == nullptr) kept_ = std::shared_ptr<T>(new T(make()));
    return *static_cast<T*>(kept_.get());
  }

 private:
  const SuiteRun& run_;
  int number_;
  std::shared_ptr<void> kept_;
};

/// Counts a case, or several, with those of its trial that ended alike. False: none did yet.
bool count_alike(std::vector<CaseResult>& cases, const std::string& outcome, CaseVerdict verdict, int64_t more = 1);

class Suite {
 public:
  virtual ~Suite() = default;
  /// What is tried, in a few words; of a part of a suite nothing.
  virtual std::string subject() const { return ""; }
  /// What would be tried, a line each; runs nothing.
  virtual std::vector<std::string> plan() const = 0;
  /// What decides what trials find beside the config's own text: other files that it names. Of equal text an interrupted call's trials count.
  virtual std::string identity() const { return ""; }
  /// Every trial, in the order in which they are counted; runs before them what they are judged against. Throws
  /// ConfigError (what is to be tried fails without a failure), MachineError.
  virtual std::vector<Trial> trials(const SuiteRun& run) = 0;
  /// From what all trials measured: a few figures for the report's head, and what could not be seen.
  virtual std::vector<std::pair<std::string, std::string>> facts(const Measurements& /*measured*/) const { return {}; }
  virtual std::vector<std::string> notes(const Measurements& /*measured*/) const { return {}; }
  /// The same, for every report to show alike: tables of short texts, and charts of numbers.
  virtual std::vector<SuiteTable> tables(const Measurements& /*measured*/) const { return {}; }
  virtual std::vector<SuiteChart> charts(const Measurements& /*measured*/) const { return {}; }
  /// Files of its own beside the reports. Throws MachineError.
  virtual void write_files(const Measurements& /*measured*/, const std::string& /*out_dir*/) const {}
};

/// Several parts as one suite, their trials in the order of the parts.
std::unique_ptr<Suite> combined(std::string subject, std::vector<std::unique_ptr<Suite>> parts);

}  // namespace lockstep
