#pragma once
// Parts of the JSON Schema of configs, as several sections have them.

#include <string>

#include "harness/verdict/config/field.h"

namespace lockstep {

/// What `seeds` may be.
SchemaJson seeds_schema();

/// JSON Schema (draft-07) of the configs that read_matrix accepts.
std::string config_schema();

}  // namespace lockstep
