// The description of results.json against the structs and against itself: no member forgotten, every key
// written as it was read.

#include "harness/verdict/results/document.h"
#include "harness/verdict/results/results_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "harness/base/json.h"
#include "tests/support/json_schema.h"

namespace lockstep::results_format {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

// Converts to anything: counts the members of an aggregate by trying how many initialisers it takes. An
// optional is made from what it holds, lest there be two ways.
struct Anything {
  template <class T>
    requires(!is_optional<T>)
  operator T() const;
};
template <class T, class... Some>
constexpr std::size_t member_count() {
  if constexpr (requires { T{Some{}..., Anything{}}; }) {
    return member_count<T, Some..., Anything>();
  } else {
    return sizeof...(Some);
  }
}

template <class T>
void expect_all_members(const char* name, std::initializer_list<const Object<T>*> views) {
  std::set<std::ptrdiff_t> members;
  std::set<std::string> keys;
  for (const Object<T>* view : views) {
    keys.clear();
    for (const AnyField& field : view->fields) {
      EXPECT_TRUE(keys.insert(field.key.name).second) << name << " has two keys " << field.key.name;
      members.insert(field.key.members.begin(), field.key.members.end());
    }
  }
  EXPECT_EQ(members.size(), member_count<T>()) << "a member of " << name << " has no line";
}
template <class... T>
void expect_all_members() {
  (expect_all_members<T>(typeid(T).name(), {&described<T>()}), ...);
}

TEST(ResultsDescription, CoversEveryMemberOfTheStructs) {
  expect_all_members<Layout, Interval, Divergence, Cause, GradientSignature, ForcedStep, MetricDifference,
                     Estimate, CurveDifference, TargetReach, Look, Sequential, Certification, Failure,
                     CurveBand, StepCosts, NoiseScale, CellResult, ReferenceResult, Growth::Rule, Growth,
                     TimingRow, Timing, CertificateRow, Certificate,
                     DetectionRate, DetectionRow, DetectionMiss, Detection,
                     Summary, RoundingShift, SuiteCount, TimelineStep, SuiteFinding, TableColumn, TableRow,
                     SuiteTable, ChartAxis, ChartPoint, ChartSeries, ChartPanel, ChartMark, SuiteChart,
                     SuiteResult, Primary, Results>();
  expect_all_members<Outcome>("Outcome", {&described<Outcome>(), &statistics_of_an_outcome()});
}

TEST(ResultsDescription, LeavesOfAMechanismWhatStandsInItsCell) {
  // The first divergence and the cause: of two members a cell holds the keys.
  EXPECT_EQ(described<Mechanism>().fields.size() + 2, member_count<Mechanism>());
}

/// A document that has every key of the schema, each leaf with a value of its own, each list with two.
class Filled {
 public:
  explicit Filled(const Json& schema) : schema_(schema) {}

  Json value(const Json& schema) {
    if (schema.contains("$ref")) {
      const std::string name = schema["$ref"].get<std::string>().substr(std::string("#/definitions/").size());
      if (name == "number") return next() + 0.1;
      return name == "exact" ? exact_value() : value(schema_["definitions"][name]);
    }
    if (schema.contains("anyOf")) return value(schema["anyOf"][0]);
    if (schema.contains("const")) return schema["const"];
    if (schema.contains("enum"))
      return schema["enum"][static_cast<std::size_t>(next()) % schema["enum"].size()];
    const std::string type = schema["type"];
    if (type == "array") return Json::array({value(schema["items"]), value(schema["items"])});
    if (type == "object") return object_value(schema);
    if (type == "integer") return next();
    if (type == "number") return next() + 0.25;
    if (type == "boolean") return next() % 2 == 0;
    return "text " + std::to_string(next());
  }

 private:
  int64_t next() { return ++last_; }
  Json exact_value() {
    const double value = static_cast<double>(next()) / 7;
    return exact().write(value);
  }
  Json object_value(const Json& schema) {
    Json object = Json::object();
    if (!schema.contains("properties")) return {{"some", value(schema["additionalProperties"])}};
    for (const auto& [key, part] : schema["properties"].items()) object[key] = value(part);
    return object;
  }

  const Json& schema_;
  int64_t last_ = 100;
};

Json filled_document() {
  const Json schema = Json::parse(results_schema());
  Json document = Filled(schema).value(schema);
  for (Json& cell : document["verdicts"]) cell["certified_steps"] = cell["certification"]["steps"];
  seal(document);
  return document;
}

std::string again(const Json& document) {
  return results_to_json(results_from_json(document.dump(), "results.json"));
}

TEST(ResultsDescription, ReadsAndWritesEveryKey) {
  const Json document = filled_document();
  EXPECT_EQ(again(document), document.dump(1) + "\n");
  EXPECT_THAT(support::schema_violations(nlohmann::json::parse(document.dump()),
                                         nlohmann::json::parse(results_schema())),
              IsEmpty());
}

TEST(ResultsDescription, ReadsAndWritesEveryFlagTheOtherWay) {
  std::string text = filled_document().dump();
  for (const auto& [from, to] : {std::pair{":true", ":TRUE"}, {":false", ":true"}, {":TRUE", ":false"}}) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; ++at)
      text.replace(at, std::strlen(from), to);
  }
  Json document = Json::parse(text);
  seal(document);
  EXPECT_EQ(again(document), document.dump(1) + "\n");
}

TEST(ResultsDescription, PutsTheCauseOfADivergenceIntoTheMechanism) {
  Json document = filled_document();
  for (Json& cell : document["verdicts"]) cell["failure"] = nullptr;
  seal(document);
  EXPECT_EQ(again(document), document.dump(1) + "\n");
  const Results results = results_from_json(document.dump(), "results.json");
  EXPECT_FALSE(results.cells[0].cause);
  EXPECT_EQ(results.cells[0].mechanism->cause->code, document["verdicts"][0]["cause"]["code"]);
}

/// What reading says of a document with one value changed.
std::string problem_with(const std::string& pointer, const Json& value) {
  Json document = filled_document();
  Json& parent = document[Json::json_pointer(pointer).parent_pointer()];
  if (value.is_discarded() && parent.is_array())
    parent.erase(parent.size() - 1);
  else if (value.is_discarded())
    parent.erase(Json::json_pointer(pointer).back());
  else
    document[Json::json_pointer(pointer)] = value;
  seal(document);
  try {
    results_from_json(document.dump(), "out/results.json");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "none";
}
const Json kMissing(Json::value_t::discarded);

TEST(ResultsDescription, NamesTheKeyThatCannotBeRead) {
  EXPECT_EQ(problem_with("/verdicts/1/statistics/power", nullptr),
            "out/results.json: verdicts[1].statistics.power: a number as an object of value and bits was "
            "expected, found null");
  EXPECT_EQ(problem_with("/verdicts/0/rerun", kMissing),
            "out/results.json: verdicts[0]: the key \"rerun\" is missing");
  EXPECT_EQ(problem_with("/summary/runs", 1.5),
            "out/results.json: summary.runs: a whole number was expected, found 1.5");
  EXPECT_EQ(problem_with("/summary/runs", int64_t{1} << 40),
            "out/results.json: summary.runs: 1099511627776 is out of range");
  EXPECT_EQ(problem_with("/name", 7), "out/results.json: name: a text was expected, found 7");
  EXPECT_EQ(problem_with("/question", "why"), "out/results.json: question: unknown question \"why\"");
  EXPECT_EQ(problem_with("/verdicts/0/failure/kind", "bored"),
            "out/results.json: verdicts[0].failure.kind: unknown kind \"bored\"");
  EXPECT_EQ(problem_with("/references/0/metric_means/some/bits", "3f9e"),
            "out/results.json: references[0].metric_means.some: \"3f9e\" is not 16 hexadecimal digits");
  EXPECT_EQ(problem_with("/verdicts/0/curves/1", "flat"),
            "out/results.json: verdicts[0].curves[1]: an object was expected, found \"flat\"");
  for (const char* key : {"/verdicts/1/statistics", "/verdicts/1/outcome"}) {
    EXPECT_EQ(problem_with(key, nullptr), "out/results.json: verdicts[1].statistics: an outcome without "
                                          "statistics, or the reverse");
  }
  EXPECT_THAT(problem_with("/verdicts/1/noise_scale/at/0", kMissing), HasSubstr("lists of unequal length"));
}

TEST(ResultsDescription, DoesWithoutTheKeysOfOtherQuestions) {
  for (const char* key : {"/growth", "/timing", "/detection", "/verdicts/0/noise_scale", "/laboratory/tables", "/laboratory/charts"})
    EXPECT_EQ(problem_with(key, kMissing), "none") << key;
}

TEST(ResultsSchema, RefusesEveryDocumentThatLacksARequiredKey) {
  const Json document = filled_document();
  const auto schema = nlohmann::json::parse(results_schema());
  for (const auto& key : schema["required"]) {
    Json lacking = document;
    lacking.erase(key.get<std::string>());
    EXPECT_FALSE(support::schema_violations(nlohmann::json::parse(lacking.dump()), schema).empty()) << key;
  }
}

}  // namespace
}  // namespace lockstep::results_format
