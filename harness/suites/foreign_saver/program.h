#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/suites/engine/suite.h"
#include "harness/suites/foreign_saver/failures.h"
#include "harness/suites/foreign_saver/power_loss.h"
#include "harness/suites/foreign_saver/tracer.h"

// The suite of somebody else's saver: a command that saves is run again and again, with one failure at one of its
// operations on files each time; what a command that resumes makes of the remains is compared with what it makes of a
// save without a failure.

namespace lockstep {

const SuiteKind& program_suite();

}  // namespace lockstep

// What became of a save: the end result of a resumption compared with those of undisturbed saves.

namespace lockstep::program {

/// What a resume command made, in parts: a folder's files by path, each with its hash; of a single file its lines.
struct EndResult {
  std::vector<std::pair<std::string, std::string>> parts;
  bool operator==(const EndResult&) const = default;
};

/// What may be found. A list is empty where the resume command refuses, as it may.
struct Expected {
  std::optional<EndResult> fresh;   ///< resumed from an empty folder
  std::optional<EndResult> before;  ///< resumed from what stands there before the save
  bool had_before = false;          ///< something did, and could be resumed
  std::vector<EndResult> after;     ///< resumed after an undisturbed save; several writers may end in several orders
};

/// What a trial left.
struct Observed {
  bool may_lose = false;  ///< the save was not acknowledged: what stood before may stand now
  bool must_succeed = false;  ///< nothing was done to it but that its writers were held in an order
  bool undisturbed = false;   ///< nothing was done to it, and it has one writer
  bool save_hung = false;
  int save_status = 0;
  bool resume_hung = false;
  int resume_status = 0;
  std::optional<EndResult> result;  ///< of the resumption, if it ended with status 0
  std::string said;                 ///< its last line
};

/// Outcomes of a killed save after which the same save must work.
inline constexpr const char* kWholeOld = "whole, old";
inline constexpr const char* kRefused = "refused";

/// The first part in which a result is not the expected one.
std::string difference(const EndResult& expected, const EndResult& found);

/// Two undisturbed saves that ended differently: `differs`, in words.
CaseResult unsteady(const std::string& differs);

/// Outcome and sentence; `failure`: what was done, in words without a full stop.
CaseResult judge_save(const Expected& expected, const Observed& observed, const std::string& failure);
/// The same by the user's own check: status 0 is whole.
CaseResult judge_check(const Observed& observed, const std::string& failure);

/// The last line that is not empty, at most 300 bytes of it.
std::string last_line(const std::string& text);

// One slot's folders and processes: what is saved to, what stood there before, and the program that does both.

class Bench {
 public:
  /// In OUT/work/<slot>, which is emptied. Runs the setup command. Throws ConfigError if that fails.
  Bench(const ProgramConfig& config, const SuiteRun& run, int slot);

  /// The folder that is saved to, absolute.
  const std::string& out() const { return out_; }
  void empty();    ///< the folder that is saved to
  void restore();  ///< what stood there before the save
  TracedRun save(const Intervention& intervention);
  /// After a restore(): with what stands there before it and after it, if `with_files`.
  Recording record(const Intervention& intervention, bool with_files);
  /// Resumes, or checks, from what stands in out(): fills the later half of `observed`.
  void resume(Observed& observed);
  /// What the last command printed: the last bytes.
  std::string printed() const { return tracer_.printed(); }

 private:
  TracedRun command(const std::string& text, const TraceOptions& options);
  TraceOptions options() const;
  TraceOptions watching(const Intervention& intervention) const;

  const ProgramConfig& config_;
  const SuiteRun& run_;
  std::string folder_, out_, before_, resumed_;
  Tracer tracer_;
};

}  // namespace lockstep::program
