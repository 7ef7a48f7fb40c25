#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <set>

#include "harness/answer/results/config_table.h"
#include "harness/answer/results/results.h"
#include "harness/answer/results/results_codec.h"
#include "harness/answer/results/words.h"
#include "harness/base/json.h"
#include "scenarios/energy/spec.h"
#include "tests/support/json_schema.h"
#include "tests/support/members.h"
#include "tests/support/said.h"
#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

using support::schema_violations;
using support::SyntheticMatrix;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;

/// Every part of a document filled, with numbers that decimal text likes least.
Results full() {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.add_cell({"failed", 0.0});
  matrix.add_cell({"raced", 0.0});
  Failure& failure = matrix.options.failures["failed seed 3"];
  failure.run = "failed seed 3";
  failure.kind = FailureKind::hung;
  failure.rank = 5;
  failure.step = 77;
  failure.operation = "all_reduce";
  failure.message = "no step for 60 s";
  failure.last_lines = {"<b>one</b>", "two \"quoted\" \n", ""};
  Certification& parted = matrix.certifications["raced certify"];
  parted.steps = 3;
  parted.divergence.emplace();
  *parted.divergence = {3, "reduced_gradients", 4, "bucket 1", DivergenceKind::bits, "0x3f800000", "0x3f800001", "Step 3."};
  Mechanism& m = matrix.mechanisms["8x3 local seed 0"];
  m.verdict = VerdictKind::divergent;
  m.first_divergence = {
      0, "energies", -1, "energies", DivergenceKind::shape, "23 negatives", "2 negatives", "Another objective."};
  m.cause = {"objective", 0.1 + 0.2, "2 negatives of 23", "negatives: global"};
  m.band_used = 1.0 / 3.0;
  m.forced = {
      {0, {{"head", 0.462, 0.848, 0.25, 1e-300, 5e-324}, {"all", -0.0, 1, 0, 2, 3}}, 7.25, "head.weight"}};
  Results results = matrix.judge();
  results.cells[0].outcome->power = std::numeric_limits<double>::quiet_NaN();
  results.cells[0].outcome->primary.interval.low = -std::numeric_limits<double>::infinity();
  results.cells[0].curves[0].high[3] = std::numeric_limits<double>::infinity();
  return results;
}

TEST(ResultsJson, ComesBackAsItWas) {
  const Results results = full();
  const std::string text = results_to_json(results);
  const Results again = results_from_json(text, "results.json");
  EXPECT_EQ(results_to_json(again), text);

  // ResultsDescription looks at every key; these are values that text likes least.
  EXPECT_EQ(again.cells[1].mechanism->cause->confidence, 0.1 + 0.2);
  EXPECT_EQ(again.cells[1].mechanism->forced[0].groups[0].band, 5e-324);
  EXPECT_TRUE(std::signbit(again.cells[1].mechanism->forced[0].groups[1].ratio));
  EXPECT_TRUE(std::isnan(again.cells[0].outcome->power));
  EXPECT_TRUE(std::isinf(again.cells[0].outcome->primary.interval.low));
  EXPECT_TRUE(std::isinf(again.cells[0].curves[0].high[3]));
  EXPECT_EQ(again.cells[3].failure->last_lines, results.cells[3].failure->last_lines);
  for (const MetricDifference& other : again.cells[1].outcome->others)
    EXPECT_EQ(other.has_direction, other.metric != "temperature");
}

TEST(ResultsJson, HasWhatReadersOfAVerdictRelyOn) {
  const Json document = Json::parse(results_to_json(full()));
  for (const Json& verdict : document["verdicts"]) {
    for (const char* key :
         {"scenario", "run", "reference", "verdict", "expected", "as_expected", "first_divergence", "cause",
          "mechanism", "outcome", "statistics", "certified_steps", "rerun"}) {
      EXPECT_TRUE(verdict.contains(key)) << key;
    }
  }
  EXPECT_EQ(document["verdicts"][1]["first_divergence"]["where"], "energies");
  EXPECT_EQ(document["verdicts"][1]["certified_steps"], 20);
  EXPECT_TRUE(document["verdicts"][3]["statistics"].is_null());
  EXPECT_EQ(document["schema_version"], 2);
}

TEST(ResultsJson, WritesNoNumberAsNull) {
  const Json document = Json::parse(results_to_json(full()));
  EXPECT_EQ(document["verdicts"][0]["statistics"]["power"]["value"], "nan");
  EXPECT_EQ(document["verdicts"][0]["statistics"]["primary"]["interval"]["low"]["value"], "-inf");
  EXPECT_EQ(document["verdicts"][0]["statistics"]["primary"]["interval"]["low"]["bits"], "fff0000000000000");
  EXPECT_EQ(document["primary"]["margin"]["bits"], "3f9eb851eb851eb8");
}

TEST(ResultsJson, SurvivesBytesThatAreNotText) {
  Results results = full();
  results.cells[3].failure->last_lines[0] = "\xff\xfe torn \xc3";
  EXPECT_NO_THROW(results_from_json(results_to_json(results), "results.json"));
}

std::string error_of(const std::string& text) {
  try {
    results_from_json(text, "out/results.json");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "none";
}

TEST(ResultsJson, RefusesWhatItDoesNotKnowOrWasChangedSinceItWasWritten) {
  const Json document = Json::parse(results_to_json(full()));
  support::Said said;
  said("as it is", error_of(document.dump()));
  said("laid out anew, of the same content", error_of(document.dump(7)));
  for (const char* text : {"{\"schema_ver", "[]"}) said(text, error_of(text));
  const std::pair<const char*, void (*)(Json&)> changes[] = {
      {"version", [](Json& j) { j["schema_version"] = 3; }},
      {"no verdicts", [](Json& j) { j.erase("verdicts"); }},
      {"verdicts that are no list", [](Json& j) { j["verdicts"] = "none"; }},
      {"a verdict", [](Json& j) { j["verdicts"][0]["verdict"] = "fine"; }},
      {"a value", [](Json& j) { j["primary"]["margin"]["value"] = 0.04; }},
      {"bits", [](Json& j) { j["primary"]["margin"]["bits"] = "3f9e"; }},
      {"no statistics", [](Json& j) { j["verdicts"][0]["statistics"] = nullptr; }},
      {"a shorter curve", [](Json& j) { j["verdicts"][0]["curves"][0]["low"].erase(0); }},
  };
  for (const auto& [what, change] : changes) {
    Json copy = document;
    change(copy);
    seal(copy);
    said(what, error_of(copy.dump()));
  }
  Json changed = document;
  changed["summary"]["exit_code"] = 5;
  EXPECT_THAT(error_of(changed.dump()), HasSubstr("out/results.json: is damaged: its checksum is "));
  changed = document;
  changed.erase("checksum");
  said("no checksum", error_of(changed.dump()));
}
TEST(ResultsJson, TakesFactsOfTheConfigWhereADocumentHasNoKeyForThem) {
  Json document = Json::parse(results_to_json(full()));
  for (Json& verdict : document["verdicts"]) {
    for (const char* key : {"short_name", "layout", "real_ranks", "no_negatives"}) verdict.erase(key);
    for (Json& row : verdict["config"]) {
      if (row["key"] == "layout") row["value"] = "24x1";
      if (row["key"] == "negatives") row["value"] = "local";
      if (row["key"] == "ranks") row["value"] = "real";
    }
  }
  for (Json& reference : document["references"]) reference.erase("layout");
  document["summary"].erase("sentences");
  seal(document);
  EXPECT_THAT(schema_violations(document, Json::parse(results_schema())), IsEmpty());
  const Results results = results_from_json(document.dump(), "results.json");
  for (const CellResult& cell : results.cells) {
    EXPECT_EQ(cell.layout, (Layout{24, 1}));
    EXPECT_TRUE(cell.real_ranks);
    EXPECT_TRUE(cell.no_negatives);
    EXPECT_EQ(cell.short_name, "");
  }
  EXPECT_EQ(results.references[0].layout, full().references[0].layout);
  EXPECT_TRUE(results.summary.sentences.empty());
}

TEST(ResultsSchema, FitsWhatIsWritten) {
  const Json schema = Json::parse(results_schema());
  EXPECT_THAT(schema_violations(Json::parse(results_to_json(full())), schema), IsEmpty());
  EXPECT_THAT(schema_violations(Json::parse(results_to_json(SyntheticMatrix(2).judge())), schema), IsEmpty());
}

TEST(ResultsSchema, RefusesWhatIsNotAResult) {
  const Json schema = Json::parse(results_schema()), document = Json::parse(results_to_json(full()));
  const auto problems = [&](auto change) {
    Json copy = document;
    change(copy);
    return schema_violations(copy, schema);
  };
  EXPECT_THAT(problems([](Json& j) { j["verdicts"][0].erase("rerun"); }), Not(IsEmpty()));
  EXPECT_THAT(problems([](Json& j) { j["verdicts"][0]["verdict"] = "fine"; }), Not(IsEmpty()));
  EXPECT_THAT(problems([](Json& j) { j["verdicts"][0]["as_expected"] = "yes"; }), Not(IsEmpty()));
  EXPECT_THAT(problems([](Json& j) { j["verdicts"][0]["statistics"]["power"]["value"] = nullptr; }),
              Not(IsEmpty()));
  EXPECT_THAT(problems([](Json& j) { j["schema_version"] = 3; }), Not(IsEmpty()));
  EXPECT_THAT(problems([](Json& j) { j["surprise"] = 1; }), Not(IsEmpty()));
}

}  // namespace
}  // namespace lockstep

// The description of results.json against the structs and against itself: no member forgotten, every key
// written as it was read.

namespace lockstep::results_format {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

using support::member_count;

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

TEST(ResultsDescription, NamesTheKeyThatCannotBeReadAndDoesWithoutThoseOfOtherQuestions) {
  support::Said said;
  const std::pair<const char*, Json> changes[] = {{"/verdicts/1/statistics/power", nullptr},
                                                  {"/verdicts/0/rerun", kMissing},
                                                  {"/summary/runs", 1.5},
                                                  {"/summary/runs", int64_t{1} << 40},
                                                  {"/name", 7},
                                                  {"/question", "why"},
                                                  {"/verdicts/0/failure/kind", "bored"},
                                                  {"/references/0/metric_means/some/bits", "3f9e"},
                                                  {"/verdicts/0/curves/1", "flat"},
                                                  {"/verdicts/1/statistics", nullptr},
                                                  {"/verdicts/1/outcome", nullptr},
                                                  {"/verdicts/1/noise_scale/at/0", kMissing},
                                                  {"/growth", kMissing},
                                                  {"/timing", kMissing},
                                                  {"/detection", kMissing},
                                                  {"/verdicts/0/noise_scale", kMissing},
                                                  {"/laboratory/tables", kMissing},
                                                  {"/laboratory/charts", kMissing}};
  for (const auto& [key, value] : changes)
    said(key + std::string(value.is_discarded() ? " missing" : ": " + value.dump()), problem_with(key, value));
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

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Pair;

TEST(ConfigRows, AreDottedKeys) {
  RunConfig config;
  energy(config).data.stride = 7;
  const Rows rows = config_rows(config);
  EXPECT_THAT(rows, Contains(Pair("data.stride", "7")));
  EXPECT_THAT(rows, Contains(Pair("seed", "0")));
}

Matrix two_cells() {
  Matrix matrix;
  matrix.cells.resize(2);
  matrix.cells[0].name = "8x3 local";
  matrix.cells[0].settings = {{"layout", "8x3"}, {"negatives", "local"}};
  matrix.cells[1].name = "8x3 it's \"global\"";
  matrix.cells[1].settings = {{"layout", "8x3"}, {"negatives", "it's global"}};
  return matrix;
}

TEST(RerunLine, NarrowsTheCommandToTheCell) {
  support::Said said;
  const auto lines = [&](const char* what, const std::function<void(Matrix&)>& change,
                         const std::string& command = "lockstep run a.yaml") {
    Matrix matrix = two_cells();
    change(matrix);
    for (const Cell& cell : matrix.cells) said(what, rerun_line(command, matrix, cell));
  };
  lines("by its settings, quoted for the expression and the shell", [](Matrix&) {}, "lockstep run a.yaml --out o");
  lines("settings that do not tell cells apart", [](Matrix& m) { m.cells[1].settings = m.cells[0].settings; });
  lines("another cell sets more besides", [](Matrix& m) {
    m.cells[1].settings = m.cells[0].settings;
    m.cells[1].settings.emplace_back("lr_scale", "0.125");
  });
  lines("a value that cannot be quoted", [](Matrix& m) { m.cells[1].settings[1].second = m.cells[1].name; });
  for (const std::string only : {"--only 'negatives==local || name==\"a b\"'", "--only=lr==1", "--only negatives\\ x"})
    lines("an earlier selection", [](Matrix&) {}, "lockstep run 'my file.yaml' " + only + " --seeds 0..3");
}
class Provenance : public testing::Test {
 protected:
  Provenance() : out_(testing::TempDir() + "lockstep_provenance_" + std::to_string(::getpid())) {
    for (const char* id : {"a", "b", "c"}) {
      PlannedRun run;
      run.id = id;
      plan_.runs.push_back(run);
    }
    plan_.runs[2].reused = true;
  }
  ~Provenance() override { std::filesystem::remove_all(out_); }
  void write_text(const std::string& id, const std::string& text) {
    std::filesystem::create_directories(out_ + "/runs/" + id);
    std::ofstream(out_ + "/runs/" + id + "/run.json") << text;
  }
  void write(const std::string& id, const std::string& text) {
    nlohmann::json run = nlohmann::json::parse(text);
    seal(run);
    write_text(id, run.dump());
  }

  std::string out_;
  Plan plan_;
};

TEST_F(Provenance, PutsWhatDiffersFirst) {
  write("a", R"({"provenance": {"build": "b1", "host": "one", "threads": "1"}})");
  write("b", R"({"provenance": {"build": "b2", "host": "one", "threads": "1"}})");
  write("c", R"({"provenance": {"build": "b1", "host": "one"}})");
  EXPECT_THAT(
      gather_provenance(plan_, out_),
      ElementsAre(Pair("build", "2 runs: b1; 1 run: b2"), Pair("threads", "2 runs: 1; 1 run: not said"),
                  Pair("host", "one"), Pair("plan", "3 runs, 1 of them reused")));
}

TEST_F(Provenance, NamesRunsThatSayNothing) {
  write("a", R"({"provenance": {"host": "one"}})");
  write_text("b", R"({"provenance": {"host")");
  EXPECT_THAT(gather_provenance(plan_, out_),
              ElementsAre(Pair("without run.json", "b, c"), Pair("host", "one"),
                          Pair("plan", "3 runs, 1 of them reused")));
}

TEST_F(Provenance, TakesNothingFromADamagedDescription) {
  for (const char* id : {"a", "b", "c"}) write(id, R"({"provenance": {"host": "one"}})");
  write_text("b", R"({"provenance": {"host": "two"}, "checksum": "0123456789abcdef"})");
  EXPECT_THAT(gather_provenance(plan_, out_), ElementsAre(Pair("without run.json", "b"), Pair("host", "one"),
                                                          Pair("plan", "3 runs, 1 of them reused")));
}

}  // namespace
}  // namespace lockstep
