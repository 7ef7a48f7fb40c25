#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/suites/engine/suite.h"
#include "harness/verdict/config/settings.h"

// Which suites there are, and the reading of a config that names one.

namespace lockstep {

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
  std::string_view old_name = "";  ///< accepted for `name` until the next version
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

// Planted mistakes, which must be named wherever they act, and cases that come out as they must.

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
