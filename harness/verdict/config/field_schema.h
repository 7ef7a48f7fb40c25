#pragma once
// JSON Schema of fields and of what holds them.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "harness/verdict/config/field.h"

namespace lockstep {

using SchemaJson = nlohmann::ordered_json;

/// An object without properties yet; it refuses properties that are not added.
SchemaJson object_schema();
/// type: "integer" or "number".
SchemaJson number_schema(const char* type, const Range& range);
SchemaJson list_schema(SchemaJson items, const std::string& help);

/// What a field may be, with the value that `ref` holds as its default.
SchemaJson field_schema(const FieldSpec& spec, const FieldRef& ref);
/// A key under its dotted name, and inside its group if it has one.
void add_property(SchemaJson& object, const std::string& key, const SchemaJson& schema);

}  // namespace lockstep
