#include "harness/suites/engine/mutation_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/counted.h"

namespace lockstep {

void Cases::good(const std::string& outcome, int64_t cases) {
  if (!count_alike(results_, outcome, CaseVerdict::good, cases)) results_.push_back({outcome, CaseVerdict::good, cases, ""});
}

void Cases::fault(const std::string& outcome, std::string sentence, std::vector<TimelineStep> timeline) {
  results_.push_back({outcome, CaseVerdict::fault, 1, std::move(sentence), std::move(timeline)});
}

void Cases::undecided(const std::string& outcome, std::string sentence) {
  results_.push_back({outcome, CaseVerdict::undecided, 1, std::move(sentence)});
}

void MutationCheck::saw(const std::string& code, const std::string& sentence, std::vector<TimelineStep> timeline) {
  ++acted_;
  const bool right = std::ranges::find(expected_, code) != expected_.end();
  named_ += right;
  if (right && sentence_.empty()) {
    code_ = code;
    sentence_ = sentence;
    timeline_ = std::move(timeline);
  }
  if (right || !other_sentence_.empty()) return;
  other_code_ = code.empty() ? "nothing" : code;
  other_sentence_ = sentence.empty() ? "no word" : sentence;
}

std::vector<CaseResult> MutationCheck::result(const std::string& words) const {
  CaseResult result;
  if (acted_ == 0) {
    result = {"planted, never acts", CaseVerdict::fault, 1,
              fmt::format("{}: planted, and it changes nothing in any case", words)};
  } else if (named_ == acted_) {
    result = {kFoundAndNamed, CaseVerdict::planted, 1,
              fmt::format("{}, as planted: named {} in all {} cases in which it acts. The first: {}{}", words,
                          code_, with_commas(acted_), sentence_, remark_),
              timeline_};
  } else {
    result = {other_code_ == "nothing" ? "planted, not found" : "planted, named wrongly", CaseVerdict::fault,
              1,
              fmt::format("{}: named so in {} of the {} cases in which it acts; where not, {} was found: {}",
                          words, with_commas(named_), with_commas(acted_), other_code_, other_sentence_)};
  }
  return {std::move(result)};
}

Trial planted_trial(std::string_view name, std::string_view words, std::string_view place,
                      double estimate_s, std::vector<std::string> expected, std::function<void(MutationCheck&)> check) {
  Trial planned;
  planned = {fmt::format("planted:{}", name), fmt::format("planted: {}", words), std::string(place),
                   estimate_s};
  planned.run = [words = std::string(words), expected = std::move(expected), check = std::move(check)](Slot&) {
    MutationCheck seen(expected);
    check(seen);
    return seen.result(words);
  };
  return planned;
}

}  // namespace lockstep
