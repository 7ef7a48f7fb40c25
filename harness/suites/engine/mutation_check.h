#pragma once
// Planted mistakes, which must be named wherever they act, and cases that come out as they must.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/suites/engine/suite.h"

namespace lockstep {

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
  std::vector<CaseResult> take() { return std::move(results_); }

 private:
  std::vector<CaseResult> results_;
};

/// A mistake that was planted in many cases: in how many it acts, and what was seen there.
class MutationCheck {
 public:
  /// What it must be named: one of these codes.
  explicit MutationCheck(std::vector<std::string> expected) : expected_(std::move(expected)) {}
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

/// "planted:NAME", failure "planted: WORDS". `check` plants and looks.
Trial planted_trial(std::string_view name, std::string_view words, std::string_view place,
                      double estimate_s, std::vector<std::string> expected, std::function<void(MutationCheck&)> check);

}  // namespace lockstep
