// What `question: claims` asks of a config: an outcome matrix with a section of what people were told.

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/verdict/config/metrics.h"
#include "harness/verdict/plan/matrix_source.h"
#include "harness/verdict/plan/question.h"
#include "harness/verdict/plan/schema.h"
#include "harness/verdict/questions/claims/claim.h"

namespace lockstep::questions::claims {
namespace {

SchemaJson condition_schema() {
  const SchemaJson text{{"type", "string"}};
  const SchemaJson word_list{{"anyOf", {text, {{"type", "array"}, {"items", text}, {"minItems", 1}}}}};
  const SchemaJson within{{"type", "array"}, {"items", {{"type", "number"}}}, {"minItems", 2}, {"maxItems", 2}};
  SchemaJson condition = object_schema();
  for (const char* key :
       {"outcome", "value", "ratio", "gradient", "mechanism", "rule", "metric", "against", "of", "to",
        "group", "at", "certified", "samples", "draws", "first", "timing", "where", "cause",
        "suite", "laboratory", "failure", "place", "written"}) {
    condition["properties"][key] = text;
  }
  for (const char* key : {"is", "gives", "are"}) condition["properties"][key] = word_list;
  for (const char* key : {"step", "steps", "rank"}) {
    condition["properties"][key] = number_schema("integer", {-1, 1e9, false, false});
  }
  condition["properties"]["within"] = within;
  condition["properties"]["margin"] =
      number_schema("number", {0, std::numeric_limits<double>::infinity(), true, true});
  return condition;
}

SchemaJson claims_schema() {
  SchemaJson claim = object_schema();
  for (const char* key : {"id", "told", "not_testable", "waiting_for"})
    claim["properties"][key] = {{"type", "string"}};
  claim["properties"]["expect"] = {
      {"type", "string"}, {"enum", {"holds", "does not hold", "undecided", "not testable here", "waiting"}}};
  claim["properties"]["shows"] = {{"type", "array"}, {"items", {{"type", "string"}}}};
  claim["properties"]["conditions"] = {{"type", "array"}, {"items", condition_schema()}, {"minItems", 1}};
  claim["required"] = {"id", "told"};
  return list_schema(std::move(claim), "claims about training; each holds if all its conditions are true");
}

const std::array kKeys{QuestionKey{
    .key = "claims",
    .read = [](const Entry& entry, MatrixSource& source,
               Problems& problems) { section_of<Claims>(source.matrix) = read_claims(entry.value, problems); },
    .schema = &claims_schema,
    .decides_cells = false}};

void check(const MatrixSource& source, const std::vector<Cell>& cells, Problems& problems) {
  const Claims& told = section_of<Claims>(source.matrix);
  check_claims(told, cells, problems);
  if (told.empty() && !source.places.contains("claims")) {
    problems.add(source.place_of("question"), "the question of claims needs a section claims");
  }
}

void check_unasked(const MatrixSource& source, const std::vector<Cell>& cells, Problems& problems) {
  const Claims& told = section_of<Claims>(source.matrix);
  check_claims(told, cells, problems);
  if (told.empty()) return;
  problems.add(source.place_of("claims"),
               "claims are judged by the question of claims; the question is " + source.matrix.question);
}

/// Keeps the claims all of whose cells were selected.
void select(Matrix& matrix, const std::vector<Cell>& cells) {
  std::erase_if(section_of<Claims>(matrix), [&cells](const Claim& claim) {
    const std::vector<std::string> names = cells_of(claim);
    return std::any_of(names.begin(), names.end(), [&cells](const std::string& name) {
      return std::none_of(cells.begin(), cells.end(), [&name](const Cell& cell) {
        return cell.name == name || cell.reference_name == name;
      });
    });
  });
}

std::vector<std::string> metrics_of(const Matrix& matrix, std::string_view arm) {
  std::vector<std::string> metrics;
  for (const Claim& claim : section_of<Claims>(matrix)) {
    for (const Condition& condition : claim.conditions) {
      if (condition.cell != arm && condition.against != arm) continue;
      for (std::string& metric : parts_of_metric(condition.metric)) metrics.push_back(std::move(metric));
    }
  }
  return metrics;
}

}  // namespace

const QuestionPlan& plan() {
  static const QuestionPlan kPlan{
      .name = "claims",
      .help = "which claims hold",
      .by_outcome = true,
      .measures_primary = true,
      .section = []() -> std::any { return Claims{}; },
      .keys = []() -> std::span<const QuestionKey> { return kKeys; },
      .check = &check,
      .check_unasked = &check_unasked,
      .select = &select,
      .metrics_of = &metrics_of,
  };
  return kPlan;
}

}  // namespace lockstep::questions::claims
