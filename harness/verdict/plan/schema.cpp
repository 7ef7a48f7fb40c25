// The JSON Schema of matrices, from the same tables that read them.

#include "harness/verdict/plan/schema.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/plan/question.h"

namespace lockstep {
namespace {

using Json = SchemaJson;

enum class Many { one, one_or_list, list };

/// A key that users may set, with the value that it may have for each trainer that has it.
struct UserKey {
  std::string key;
  std::vector<Json> values;
};

/// The core's keys, then every trainer's own: which of them a matrix may have is its trainer's to say.
const std::vector<UserKey>& user_keys() {
  static const std::vector<UserKey> keys = [] {
    std::vector<UserKey> all;
    for (const TrainerSpec* trainer : trainer_specs()) {
      const RunConfig defaults(*trainer);
      for (const RunField* field : fields_of(*trainer)) {
        if (field->named != nullptr) continue;  // a key that some user has named: the pattern says which there may be
        if (field->spec.setter != Setter::user) continue;
        Json value = field_schema(field->spec, field->of(defaults));
        const auto known = std::ranges::find(all, field->spec.key, &UserKey::key);
        if (known == all.end()) {
          all.push_back({std::string(field->spec.key), {std::move(value)}});
        } else if (find_core_field(field->spec.key) == nullptr && known->values.back() != value) {
          known->values.push_back(std::move(value));
        }
      }
    }
    return all;
  }();
  return keys;
}

// An object of RunConfig keys, each with one value, one or several, or several.
Json settings_schema(Many many) {
  Json object = object_schema();
  const auto as_many = [many](const Json& one) -> Json {
    const Json list{{"type", "array"}, {"items", one}, {"minItems", 1}};
    return many == Many::one ? one : many == Many::list ? list : Json{{"anyOf", {one, list}}};
  };
  for (const auto& [key, values] : user_keys()) add_property(object, key, as_many({{"$ref", "#/definitions/" + key}}));
  // Keys that users name: with their group in front, or within it.
  for (const TrainerSpec* trainer : trainer_specs()) {
    for (const OpenGroup& group : trainer->open_groups) {
      const std::string word(group.prefix.substr(0, group.prefix.size() - 1)), name = "[A-Za-z_][A-Za-z0-9_]*$";
      const Json value = as_many({{"$ref", "#/definitions/" + word + ".NAME"}});
      object["patternProperties"]["^" + word + "\\." + name] = value;
      const Json within{{"type", "object"}, {"description", group.help}, {"patternProperties", {{"^" + name, value}}}, {"additionalProperties", false}};
      object["properties"][word] = within;
    }
  }
  return object;
}

Json sections() {
  const Json verdict{{"type", "string"}, {"enum", verdict_names()}};
  const Json verdicts{{"anyOf", {verdict, {{"type", "array"}, {"items", verdict}, {"minItems", 1}}}}};
  const Json rule{{"$ref", "#/definitions/rule"}};
  Json reference = settings_schema(Many::one);
  reference["properties"]["same_as"] = {
      {"type", "string"},
      {"enum", {"cell"}},
      {"description", "the cell's own config, with the other keys applied"}};
  reference["description"] = "the run that every cell should equal";
  Json axes = settings_schema(Many::list);
  axes["description"] = "keys with lists of values: every combination is a cell";
  axes["minProperties"] = 1;
  Json expectation = object_schema();
  expectation["properties"] = {{"when", rule}, {"verdict", verdicts}};
  expectation["required"] = {"verdict"};
  Json out;
  out["seeds"] = seeds_schema();
  out["reference"] = std::move(reference);
  out["axes"] = std::move(axes);
  out["exclude"] = list_schema(rule, "combinations that are left out");
  Json included = settings_schema(Many::one);
  included["minProperties"] = 1;
  included["properties"]["reference"] = {{"$ref", "#/definitions/settings"}};
  included["properties"]["reference"]["description"] = "further settings of this cell's reference";
  included["properties"]["seeds"] = out["seeds"];
  out["include"] =
      list_schema(std::move(included),
                  "further cells; an axis that a cell does not name takes its first value");
  out["power_controls"] = list_schema(rule, "cells that learn so differently that they must come out divergent");
  Json perturbation{{"$ref", "#/definitions/perturb"}};
  out["noise"] = list_schema(std::move(perturbation), "A/A pairs of the first reference: what they differ in");
  out["noise_of"] = list_schema(rule, "cells that get A/A pairs, too: each against itself, as the key noise says");
  out["expect"] =
      list_schema(std::move(expectation), "expected verdicts; the first rule that matches a cell holds");
  return out;
}

}  // namespace

Json seeds_schema() {
  const Json seed{{"type", "integer"}, {"minimum", 0}};
  const Json seed_list{{"type", "array"}, {"items", seed}, {"minItems", 1}, {"uniqueItems", true}};
  const Json seed_text{{"type", "string"}, {"pattern", "^( *[0-9]+ *(\\.\\.[0-9]+|( *, *[0-9]+)*) *|auto)$"}};
  return {{"anyOf", {seed, seed_list, seed_text}},
          {"description", "0..9 (both included), a list, one seed, or auto"}};
}

std::string config_schema() {
  const Matrix matrix;
  Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"},
              {"title", "lockstep matrix"},
              {"type", "object"},
              {"required", {"name"}},
              {"additionalProperties", false},
              {"properties", settings_schema(Many::one)["properties"]},
              {"patternProperties", settings_schema(Many::one)["patternProperties"]}};
  for (const MatrixField& field : matrix_fields()) {
    const std::string key(field.spec.key);
    Json value = field_schema(field.spec, field.of(matrix));
    // A trainer's own key of that name stands in its place where this trainer is asked for.
    const auto own = std::ranges::find(user_keys(), key, &UserKey::key);
    if (own != user_keys().end()) value = {{"anyOf", {value, own->values.front()}}};
    add_property(schema, key, value);
  }
  // Some questions derive every cell's reference; the others need it given.
  Json derived = Json::array();
  std::string asked;
  for (const QuestionPlan* question : question_plans()) {
    asked += (asked.empty() ? "" : ", ") + std::string(question->help);
    if (question->references != References::given) derived.push_back(question->name);
  }
  schema["properties"]["question"]["description"] = asked;
  schema["anyOf"] = {{{"required", {"reference"}}},
                     {{"required", {"question"}}, {"properties", {{"question", {{"enum", derived}}}}}}};
  add_property(
      schema, "timing.layouts",
      list_schema({{"$ref", "#/definitions/layout"}}, "layouts that are timed, each alone on the machine"));
  for (const QuestionPlan* question : question_plans()) {
    if (question->keys == nullptr) continue;
    for (const QuestionKey& own : question->keys()) add_property(schema, std::string(own.key), own.schema());
  }
  const Json parts = sections();
  for (const auto& [key, part] : parts.items()) schema["properties"][key] = part;
  Json settings = settings_schema(Many::one);
  settings["minProperties"] = 1;
  schema["definitions"]["rule"] = settings_schema(Many::one_or_list);
  schema["definitions"]["settings"] = std::move(settings);
  for (const TrainerSpec* trainer : trainer_specs()) {
    for (const OpenGroup& group : trainer->open_groups)
      schema["definitions"][std::string(group.prefix) + "NAME"] = {{"anyOf", {{{"type", "string"}}, {{"type", "number"}}, {{"type", "boolean"}}}},
                                                                   {"description", group.help}};
  }
  for (const auto& [key, values] : user_keys()) {
    schema["definitions"][key] = values.size() == 1 ? values.front() : Json{{"anyOf", values}};
  }
  return schema.dump(2) + "\n";
}

}  // namespace lockstep
