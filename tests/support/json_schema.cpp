#include "tests/support/json_schema.h"

#include <regex.h>

#include <algorithm>
#include <set>

namespace lockstep::support {
namespace {

using Json = nlohmann::json;

/// POSIX extended expressions: those of our schemas mean the same in both dialects. (g++ 12 warns inside
/// std::regex.)
bool matches(const std::string& text, const std::string& pattern) {
  regex_t expression;
  if (regcomp(&expression, pattern.c_str(), REG_EXTENDED | REG_NOSUB) != 0) return false;
  const bool found = regexec(&expression, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&expression);
  return found;
}

class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}

  void check(const Json& value, const Json& schema, const std::string& at) {
    refuse_unknown_words(schema, at);
    if (schema.contains("$ref")) {
      const std::string ref = schema["$ref"].get<std::string>().substr(1);
      check(value, root_.at(Json::json_pointer(ref)), at);
      return;
    }
    if (schema.contains("type") && !has_type(value, schema["type"])) {
      add(at, "is of type " + type_of(value) + ", not " + schema["type"].dump());
      return;
    }
    check_value(value, schema, at);
    if (value.is_object()) check_object(value, schema, at);
    if (value.is_array() && schema.contains("items")) {
      for (std::size_t i = 0; i < value.size(); ++i)
        check(value[i], schema["items"], at + "/" + std::to_string(i));
    }
  }

  std::vector<std::string> violations;

 private:
  void add(const std::string& at, const std::string& problem) {
    violations.push_back((at.empty() ? "/" : at) + ": " + problem);
  }

  void refuse_unknown_words(const Json& schema, const std::string& at) {
    static const std::set<std::string> known{"$schema",     "$ref",        "title",
                                             "description", "definitions", "type",
                                             "required",    "properties",  "additionalProperties",
                                             "items",       "enum",        "const",
                                             "anyOf",       "minimum",     "maximum",
                                             "pattern",     "default",     "exclusiveMinimum",
                                             "exclusiveMaximum", "minItems", "minProperties",
                                             "uniqueItems", "patternProperties"};
    for (const auto& [word, rule] : schema.items()) {
      if (!known.contains(word))
        add(at, "the schema says \"" + word + "\", which this validator does not know");
    }
  }

  static std::string type_of(const Json& value) {
    if (value.is_number_integer()) return "integer";
    return value.type_name();
  }

  static bool has_type(const Json& value, const Json& type) {
    if (type.is_array())
      return std::ranges::any_of(type, [&](const Json& one) { return has_type(value, one); });
    const std::string found = type_of(value);
    return found == type || (type == "number" && found == "integer");
  }

  void check_value(const Json& value, const Json& schema, const std::string& at) {
    if (schema.contains("const") && value != schema["const"])
      add(at, value.dump() + " is not " + schema["const"].dump());
    if (schema.contains("enum") && std::ranges::find(schema["enum"], value) == schema["enum"].end()) {
      add(at, value.dump() + " is not one of " + schema["enum"].dump());
    }
    if (schema.contains("minimum") && value.is_number() && value < schema["minimum"])
      add(at, value.dump() + " is too small");
    if (schema.contains("maximum") && value.is_number() && value > schema["maximum"])
      add(at, value.dump() + " is too large");
    if (schema.contains("exclusiveMinimum") && value.is_number() && value <= schema["exclusiveMinimum"])
      add(at, value.dump() + " is not above the least");
    if (schema.contains("exclusiveMaximum") && value.is_number() && value >= schema["exclusiveMaximum"])
      add(at, value.dump() + " is not below the most");
    if (schema.contains(value.is_array() ? "minItems" : "minProperties") && value.is_structured() &&
        value.size() < schema[value.is_array() ? "minItems" : "minProperties"])
      add(at, "has too few items");
    if (schema.contains("uniqueItems") && value.is_array() &&
        std::set<Json>(value.begin(), value.end()).size() < value.size())
      add(at, "has an item twice");
    if (schema.contains("pattern") && value.is_string() &&
        !matches(value.get<std::string>(), schema["pattern"].get<std::string>())) {
      add(at, value.dump() + " does not match " + schema["pattern"].dump());
    }
    if (!schema.contains("anyOf")) return;
    for (const Json& choice : schema["anyOf"]) {
      Validator inner(root_);
      inner.check(value, choice, at);
      if (inner.violations.empty()) return;
    }
    add(at, "fits none of the choices");
  }

  void check_object(const Json& value, const Json& schema, const std::string& at) {
    if (schema.contains("required")) {
      for (const Json& name : schema["required"]) {
        if (!value.contains(name.get<std::string>())) add(at + "/" + name.get<std::string>(), "is missing");
      }
    }
    const Json properties = schema.value("properties", Json::object());
    const Json patterns = schema.value("patternProperties", Json::object());
    for (const auto& [name, inner] : value.items()) {
      bool known = properties.contains(name);
      if (known) check(inner, properties[name], at + "/" + name);
      for (const auto& [pattern, rule] : patterns.items()) {
        if (!matches(name, pattern)) continue;
        known = true;
        check(inner, rule, at + "/" + name);
      }
      if (!known && schema.contains("additionalProperties")) {
        const Json& rule = schema["additionalProperties"];
        if (rule == false) add(at + "/" + name, "is not allowed");
        if (rule.is_object()) check(inner, rule, at + "/" + name);
      }
    }
  }

  const Json& root_;
};

}  // namespace

std::vector<std::string> schema_violations(const Json& document, const Json& schema) {
  Validator validator(schema);
  validator.check(document, schema, "");
  return validator.violations;
}

}  // namespace lockstep::support
