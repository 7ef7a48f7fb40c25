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

}  // namespace lockstep
