#include "harness/verdict/config/field_schema.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Json = SchemaJson;

std::string description(const FieldSpec& spec) {
  std::string text(spec.help);
  if (!spec.unit.empty()) text += " [" + std::string(spec.unit) + "]";
  return text;
}

void add_range(Json& schema, const Range& range) {
  if (std::isfinite(range.low)) schema[range.low_open ? "exclusiveMinimum" : "minimum"] = range.low;
  if (std::isfinite(range.high)) schema[range.high_open ? "exclusiveMaximum" : "maximum"] = range.high;
}

}  // namespace

Json object_schema() {
  return {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
}

Json number_schema(const char* type, const Range& range) {
  Json schema{{"type", type}};
  add_range(schema, range);
  return schema;
}

Json list_schema(Json items, const std::string& help) {
  return {{"description", help}, {"type", "array"}, {"items", std::move(items)}};
}

SchemaJson field_schema(const FieldSpec& spec, const FieldRef& ref) {
  Json schema;
  if (const auto* const* flag = std::get_if<bool*>(&ref)) {
    schema = {{"type", "boolean"}, {"default", **flag}};
  } else if (const auto* const* small = std::get_if<int*>(&ref)) {
    schema = number_schema("integer", spec.range);
    schema["default"] = **small;
  } else if (const auto* const* whole = std::get_if<int64_t*>(&ref)) {
    schema = number_schema("integer", spec.range);
    schema["default"] = **whole;
  } else if (const auto* const* period = std::get_if<EvaluationPeriod*>(&ref)) {
    schema = {{"anyOf", {number_schema("integer", spec.range), {{"const", "never"}}}}, {"default", (**period).steps()}};
  } else if (const auto* const* number = std::get_if<double*>(&ref)) {
    schema = number_schema("number", spec.range);
    schema["default"] = **number;
  } else if (std::holds_alternative<std::vector<int64_t>*>(ref)) {
    schema = {{"type", "array"}, {"items", number_schema("integer", spec.range)}, {"uniqueItems", true}};
  } else {
    schema["type"] = "string";
    for (const std::string_view choice : choices_of(spec, ref)) schema["enum"].push_back(std::string(choice));
    if (std::holds_alternative<Layout*>(ref)) schema["pattern"] = "^([0-9]+|fit)x[0-9]+$";
    if (spec.words == Words::name) schema["pattern"] = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$";
    // An empty text is no default worth offering in an editor.
    if (const std::string text = text_of(ref); !text.empty()) schema["default"] = text;
  }
  schema["description"] = description(spec);
  return schema;
}

void add_property(Json& object, const std::string& key, const Json& schema) {
  object["properties"][key] = schema;
  const std::size_t dot = key.find('.');
  if (dot == std::string::npos) return;
  Json& group = object["properties"][key.substr(0, dot)];
  if (group.is_null()) group = object_schema();
  group["properties"][key.substr(dot + 1)] = schema;
}

}  // namespace lockstep
