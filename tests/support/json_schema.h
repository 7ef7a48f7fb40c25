#pragma once
// A small JSON Schema validator: the words that the project's own schemas use, and no others.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::support {

/// Every place at which `document` breaks `schema`, as "/verdicts/0/run: is missing". Knows $ref into
/// #/definitions, type, required, properties, patternProperties, additionalProperties, items, enum, const, anyOf,
/// the limits of numbers and sizes, uniqueItems and pattern; a schema with another word that constrains gives a line too, so that nothing is
/// passed over in silence.
std::vector<std::string> schema_violations(const nlohmann::json& document, const nlohmann::json& schema);

}  // namespace lockstep::support
