#pragma once
// JSON Schema of a suite's section, from its fields.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "harness/verdict/config/field_schema.h"

namespace lockstep {

/// A property for each field of `fields`, whose keys are SECTION.NAME, with the defaults that `defaults` has.
template <class Fields, class Owner>
void add_fields(SchemaJson& schema, const Fields& fields, const Owner& defaults) {
  for (const auto& field : fields) {
    const std::string_view key = field.spec.key;
    schema["properties"][std::string(key.substr(key.find('.') + 1))] = field_schema(field.spec, field.of(defaults));
  }
}

}  // namespace lockstep
