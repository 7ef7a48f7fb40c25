#pragma once
// Which laboratories there are, and the reading of a config that names one.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/config/settings.h"
#include "harness/laboratory/laboratory.h"

namespace lockstep {

/// A config that names a laboratory.
struct LaboratorySource {
  std::string name, file, question_text, kind;
  Place place;                 ///< of the key `laboratory`
  std::vector<Entry> entries;  ///< of the kind's own section: "program.save"
  /// The entry of that key; null if it is not given.
  const Entry* find(std::string_view key) const;
};

struct LaboratoryKind {
  std::string_view name;  ///< what the key `laboratory` says; its section has the same name
  std::string_view help;
  /// From the section's entries; reports what is wrong with them. Null if nothing can be made of them.
  std::unique_ptr<Laboratory> (*make)(const LaboratorySource& source, Problems& problems);
  /// JSON Schema of the section.
  nlohmann::ordered_json (*schema)();
};

/// Every laboratory, in the order in which they are listed. Defined in harness/session/laboratories.cpp.
std::span<const LaboratoryKind* const> laboratory_kinds();

/// Does the text's top level have the key `laboratory`? Then no matrix is read from it.
bool names_a_laboratory(const std::string& text);

/// A config as read: whose it is, and what it makes.
struct LaboratoryConfig {
  LaboratorySource source;
  std::unique_ptr<Laboratory> laboratory;
};
/// `set`: key=value of the command line. Throws ConfigError with everything that is wrong.
LaboratoryConfig read_laboratory(const std::string& text, const std::string& file,
                                 const std::vector<std::string>& set, std::span<const LaboratoryKind* const> kinds);

/// Schema of configs that name one of these.
nlohmann::ordered_json laboratory_schema(std::span<const LaboratoryKind* const> kinds);

/// Reads a section's entries into the fields of `owner`: unknown keys are reported with the nearest known one.
template <class Owner>
void read_fields(const LaboratorySource& source, std::span<const Field<Owner>> fields, Owner& owner, Problems& problems) {
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
