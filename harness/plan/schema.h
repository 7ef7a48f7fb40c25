#pragma once
// Parts of the JSON Schema of configs, as several sections have them.

#include <nlohmann/json.hpp>
#include <string>

#include "harness/config/field.h"

namespace lockstep {

using SchemaJson = nlohmann::ordered_json;

/// An object without properties yet; it refuses properties that are not added.
SchemaJson object_schema();
/// type: "integer" or "number".
SchemaJson number_schema(const char* type, const Range& range);
SchemaJson list_schema(SchemaJson items, const std::string& help);
/// What `seeds` may be.
SchemaJson seeds_schema();

/// JSON Schema (draft-07) of the configs that read_matrix accepts.
std::string config_schema();

}  // namespace lockstep
