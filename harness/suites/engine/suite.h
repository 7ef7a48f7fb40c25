#pragma once

#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/answer/results/suite_results.h"
#include "harness/base/text.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/settings.h"
#include "harness/run/supervisor.h"

// What trials measure beside their cases: counts, greatest values, samples, and entries by key. Those of a trial are recorded with it, so that
// a suite that was interrupted goes on with them; reports show their sum over all trials.

namespace lockstep {

class Measurements {
 public:
  void add(const std::string& name, int64_t count = 1) { counts_[name] += count; }
  void at_least(const std::string& name, double value);
  void sample(const std::string& name, double value) { samples_[name].push_back(value); }
  /// The last entry of a key counts.
  void keep(const std::string& name, const std::string& key, nlohmann::json value = true) { entries_[name][key] = std::move(value); }

  int64_t count(const std::string& name) const;
  /// 0 where nothing was measured.
  double greatest(const std::string& name) const;
  const std::map<std::string, std::vector<double>>& samples() const { return samples_; }
  /// By key.
  const std::map<std::string, nlohmann::json>& entries(const std::string& name) const;

  void merge(const Measurements& other);
  nlohmann::json to_json() const;
  /// Throws nlohmann::json::exception.
  static Measurements from_json(const nlohmann::json& json);

 private:
  std::map<std::string, int64_t> counts_;
  std::map<std::string, double> greatest_;
  std::map<std::string, std::vector<double>> samples_;
  std::map<std::string, std::map<std::string, nlohmann::json>> entries_;
};

/// Of the trial that this thread runs.
Measurements& measured();

/// The trial of this thread writes into `measurements` as long as this lives.
class MeasuredTrial {
 public:
  explicit MeasuredTrial(Measurements& measurements);
  ~MeasuredTrial();
  MeasuredTrial(const MeasuredTrial&) = delete;
  MeasuredTrial& operator=(const MeasuredTrial&) = delete;

 private:
  Measurements* before_;
};

// A suite: trials of a library or of a program under failures, each on its own, many at once. It is named in a
// config by the key `suite` and has a section of its own; harness/suites/engine/kinds.h lists what there is.
//
// To add one: a class of Suite and its SuiteKind in a room of its own, a line in
// harness/cli/session/suites.cpp, a config, a test. How trials are spread over slots, counted, recorded, reported, replayed and
// selected by --only is none of its business.

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

/// Counts a case with those of its trial that ended alike. False: none did yet.
bool count_alike(std::vector<CaseResult>& cases, const std::string& outcome, CaseVerdict verdict);

/// So many of them, evenly spread; all if `wanted` is 0.
template <class T>
std::vector<T> even_sample(const std::vector<T>& all, int64_t wanted) {
  const auto count = static_cast<std::size_t>(wanted);
  if (count == 0 || count >= all.size()) return all;
  std::vector<T> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(all[i * all.size() / count]);
  return some;
}

/// Figures for a report's head, by what they are of.
using Facts = std::vector<std::pair<std::string, std::string>>;

class Suite {
 public:
  virtual ~Suite() = default;
  /// What is tried, in a few words.
  virtual std::string subject() const { return ""; }
  /// What would be tried, a line each; runs nothing.
  virtual std::vector<std::string> plan() const = 0;
  /// What decides what trials find beside the config's own text: other files that it names. Of equal text an interrupted call's trials count.
  virtual std::string identity() const { return ""; }
  /// Every trial, in the order in which they are counted; runs before them what they are judged against. Throws
  /// ConfigError (what is to be tried fails without a failure), MachineError.
  virtual std::vector<Trial> trials(const SuiteRun& run) = 0;
  /// From what all trials measured: a few figures for the report's head, and what could not be seen.
  virtual Facts facts(const Measurements& /*measured*/) const { return {}; }
  virtual std::vector<std::string> notes(const Measurements& /*measured*/) const { return {}; }
  /// The same, for every report to show alike: tables of short texts, and charts of numbers.
  virtual std::vector<SuiteTable> tables(const Measurements& /*measured*/) const { return {}; }
  virtual std::vector<SuiteChart> charts(const Measurements& /*measured*/) const { return {}; }
};

// JSON Schema of a suite's section, from its fields.

/// A property for each field of `fields`, whose keys are SECTION.NAME, with the defaults that `defaults` has.
template <class Fields, class Owner>
void add_fields(SchemaJson& schema, const Fields& fields, const Owner& defaults) {
  for (const auto& field : fields) {
    const std::string_view key = field.spec.key;
    schema["properties"][std::string(key.substr(key.find('.') + 1))] = field_schema(field.spec, field.of(defaults));
  }
}

// Real ranks for a suite: runs of a rank program, one after the other, under the supervisor that `lockstep run` has (harness/run/supervisor.h).

/// What a suite asks of one run beside its ranks' job.
struct RankRun {
  int world_size = 1;
  int processes = 0;                    ///< 0: one for each rank
  Thresholds thresholds = no_thresholds();  ///< how long a rank may stand still
  double failure_grace_s = 1, stop_grace_s = 1;
  double deadline_s = 60;               ///< after which all ranks are killed
  std::function<bool(int rank)> kills = nullptr;  ///< may the suite, or the rank itself at its wish, kill that rank? Empty: none

  /// Of ranks that may stand still for as long as the run lasts.
  static Thresholds no_thresholds();
};

class RankRuns {
 public:
  /// `work`: a folder of its own, which is emptied. The rank program is loaded at the first run. For one thread.
  RankRuns(std::string rank_program, std::string work, const volatile int* stop_requested);

  /// An empty folder for a run.
  std::string folder(const std::string& name) const;
  /// Writes `run_json` as the run's run.json, sealed, and supervises the run in `dir` to its end. Throws MachineError, and
  /// TrialDisturbed where a rank was killed that `asked.kills` does not name.
  EndedRun run(const std::string& dir, nlohmann::json run_json, const RankRun& asked, RunHooks hooks = {});
  /// To all ranks of the run that goes on; as lockstep passes a signal on.
  void signal(int number);

 private:
  std::string rank_program_, work_;
  const volatile int* stop_requested_;
  std::unique_ptr<Supervisor> supervisor_;
  std::string going_;
  int64_t runs_ = 0;
};

/// "rank 1: killed by signal 9; rank 0: status 1"
std::string in_words(const std::vector<RankEnd>& ends);

// Which suites there are, and the reading of a config that names one.

/// A config that names a suite.
struct SuiteSource {
  std::string name, file, question_text, kind;
  Place place;                 ///< of the key `suite`
  std::vector<Entry> entries;  ///< of the kind's own section: "program.save"
  /// The entry of that key; null if it is not given.
  const Entry* find(std::string_view key) const;
};

struct SuiteKind {
  std::string_view name;  ///< what the key `suite` says; its section has the same name
  std::string_view help;
  /// From the section's entries; reports what is wrong with them. Null if nothing can be made of them.
  std::unique_ptr<Suite> (*make)(const SuiteSource& source, Problems& problems);
  /// JSON Schema of the section.
  nlohmann::ordered_json (*schema)();
};

/// Every suite, in the order in which they are listed. Defined in harness/cli/session/suites.cpp.
std::span<const SuiteKind* const> suite_kinds();

/// Does the text's top level have the key `suite`, or `laboratory`, its old name? Then no matrix is read from it.
bool names_a_suite(const std::string& text);

/// A config as read: whose it is, and what it makes.
struct SuiteConfig {
  SuiteSource source;
  std::unique_ptr<Suite> suite;
};
/// `set`: key=value of the command line. Throws ConfigError with everything that is wrong.
SuiteConfig read_suite(const std::string& text, const std::string& file,
                                 const std::vector<std::string>& set, std::span<const SuiteKind* const> kinds);

/// Schema of configs that name one of these.
nlohmann::ordered_json suite_schema(std::span<const SuiteKind* const> kinds);

/// Reads a section's entries into the fields of `owner`: unknown keys are reported with the nearest known one.
template <class Owner>
void read_fields(const SuiteSource& source, std::span<const Field<Owner>> fields, Owner& owner, Problems& problems) {
  std::vector<std::string_view> known;
  for (const Field<Owner>& field : fields) known.push_back(field.spec.key);
  for (const Entry& entry : source.entries) {
    const Field<Owner>* found = nullptr;
    for (const Field<Owner>& field : fields) {
      if (field.spec.key == entry.key) found = &field;
    }
    if (found == nullptr)
      report_unknown_key(entry.key, entry.place, known, problems);
    else
      read_field(found->spec, found->of(owner), entry.value, problems);
  }
}

/// The texts of the list under a key, which is taken out of the entries. Reports what is no list, and words that are not `known`; where
/// none is, any word is. The other one: its schema.
std::vector<std::string> take_words(SuiteSource& source, std::string_view key, const std::vector<std::string_view>& known,
                                    Problems& problems);
SchemaJson words_schema(const std::vector<std::string_view>& known, const std::string& help);

}  // namespace lockstep
