#pragma once
// What the trials of this laboratory have in common: they carry what they run, and planted mistakes must be
// named wherever they act.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/laboratory/planned.h"
#include "harness/sampling/sampling_config.h"
#include "harness/sharding/finding.h"

namespace lockstep::sampling {

/// What most good cases come to, and planted mistakes that were found: few words, each of which is a column
/// of the table.
inline constexpr const char* kAsItMust = "as it must be";
inline constexpr const char* kFoundAndNamed = "planted, found and named";

/// Cases of one trial; good ones that end alike are one.
class Cases {
 public:
  void good(const std::string& outcome = kAsItMust, int64_t cases = 1);
  void fault(const std::string& outcome, std::string sentence, std::vector<TimelineStep> timeline = {});
  void undecided(const std::string& outcome, std::string sentence);
  /// Good if nothing was found.
  void audit(const sharding::Finding& finding, const std::string& of);
  std::vector<CaseResult> take() { return std::move(results_); }

 private:
  std::vector<CaseResult> results_;
};

/// A mistake that was planted in many cases: in how many it acts, and what was seen there.
class Hunt {
 public:
  /// What it must be named: one of these codes.
  explicit Hunt(std::vector<std::string> expected) : expected_(std::move(expected)) {}
  /// A case in which the mistake changes what is done.
  void saw(const std::string& code, const std::string& sentence, std::vector<TimelineStep> timeline = {});
  /// Stands behind the sentence of a mistake that was found.
  void remark(std::string text) { remark_ = std::move(text); }
  int64_t acted() const { return acted_; }
  /// Planted where every case was named as expected; the fault where one was not, or where it never acted.
  std::vector<CaseResult> result(const std::string& words) const;

 private:
  std::vector<std::string> expected_;
  int64_t acted_ = 0, named_ = 0;
  std::string code_, sentence_, other_code_, other_sentence_, remark_;
  std::vector<TimelineStep> timeline_;
};

/// "planted:NAME", failure "planted: WORDS". `hunt` plants and looks.
Planned planted_trial(std::string_view name, std::string_view words, std::string_view place,
                      double estimate_s, std::vector<std::string> expected, std::function<void(Hunt&)> hunt);

/// One kind of trials. Made once for each run of the laboratory; outlives its trials.
class Kind {
 public:
  virtual ~Kind() = default;
  virtual std::vector<std::string> plan() const = 0;
  virtual std::vector<Planned> planned() = 0;
  /// After all trials.
  virtual std::vector<std::pair<std::string, std::string>> facts() const { return {}; }
  virtual std::vector<std::string> notes() const { return {}; }
};

std::unique_ptr<Kind> make_sampler_trials(const SamplingConfig& config);
std::unique_ptr<Kind> make_task_trials(const SamplingConfig& config);
std::unique_ptr<Kind> make_state_trials(const SamplingConfig& config);
std::unique_ptr<Kind> make_counter_trials(const SamplingConfig& config);
std::unique_ptr<Kind> make_seed_trials(const SamplingConfig& config);
std::unique_ptr<Kind> make_control_trials(const SamplingConfig& config);

}  // namespace lockstep::sampling
