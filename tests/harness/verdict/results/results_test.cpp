#include "harness/verdict/results/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/base/json.h"
#include "harness/verdict/results/document.h"
#include "tests/support/json_schema.h"
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

  // The text could lose the same thing twice: look at the values, too.
  ASSERT_EQ(again.cells.size(), 5u);
  const CellResult& local = again.cells[1];
  EXPECT_EQ(local.verdict, VerdictKind::divergent);
  EXPECT_EQ(local.mechanism->first_divergence->actual, "2 negatives");
  EXPECT_EQ(local.mechanism->first_divergence->rank, -1);
  EXPECT_EQ(local.mechanism->cause->confidence, 0.1 + 0.2);
  EXPECT_EQ(local.mechanism->band_used, 1.0 / 3.0);
  EXPECT_EQ(local.mechanism->forced[0].groups[0].band, 5e-324);
  EXPECT_TRUE(std::signbit(local.mechanism->forced[0].groups[1].ratio));
  EXPECT_EQ(local.outcome->differences, results.cells[1].outcome->differences);
  EXPECT_EQ(local.outcome->primary.sd, results.cells[1].outcome->primary.sd);
  EXPECT_EQ(local.outcome->others.size(), results.cells[1].outcome->others.size());
  EXPECT_EQ(local.curves[0].median, results.cells[1].curves[0].median);
  EXPECT_EQ(local.config, results.cells[1].config);
  EXPECT_EQ(local.settings, results.cells[1].settings);
  EXPECT_EQ(local.rerun, results.cells[1].rerun);
  EXPECT_TRUE(std::isnan(again.cells[0].outcome->power));
  EXPECT_TRUE(std::isinf(again.cells[0].outcome->primary.interval.low));
  EXPECT_TRUE(std::isinf(again.cells[0].curves[0].high[3]));
  EXPECT_EQ(again.cells[3].failure->last_lines, results.cells[3].failure->last_lines);
  EXPECT_EQ(again.cells[4].certification.divergence->actual, "0x3f800001");
  EXPECT_TRUE(again.cells[2].power_control);
  EXPECT_EQ(again.references[0].metric_means, results.references[0].metric_means);
  EXPECT_EQ(again.summary.sentence, results.summary.sentence);
  EXPECT_EQ(again.summary.exit_code, results.summary.exit_code);
  EXPECT_EQ(again.provenance, results.provenance);
  EXPECT_EQ(again.seeds, results.seeds);
  EXPECT_EQ(again.question, "outcome");
  for (const MetricDifference& other : local.outcome->others)
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

TEST(ResultsJson, RefusesWhatItDoesNotKnow) {
  Json document = Json::parse(results_to_json(full()));
  const auto broken = [&](auto change) {
    Json copy = document;
    change(copy);
    seal(copy);
    return error_of(copy.dump());
  };
  EXPECT_EQ(error_of(document.dump()), "none");
  EXPECT_THAT(error_of("{\"schema_ver"), HasSubstr("out/results.json: "));
  EXPECT_THAT(error_of("[]"), HasSubstr("out/results.json: "));
  EXPECT_THAT(broken([](Json& j) { j["schema_version"] = 3; }), HasSubstr("schema version 3 is not known"));
  EXPECT_THAT(broken([](Json& j) { j.erase("verdicts"); }), HasSubstr("verdicts"));
  EXPECT_THAT(broken([](Json& j) { j["verdicts"] = "none"; }), HasSubstr("a list was expected"));
  EXPECT_THAT(broken([](Json& j) { j["verdicts"][0]["verdict"] = "fine"; }),
              HasSubstr("unknown verdict \"fine\""));
  EXPECT_THAT(broken([](Json& j) { j["primary"]["margin"]["value"] = 0.04; }), HasSubstr("disagree"));
  EXPECT_THAT(broken([](Json& j) { j["primary"]["margin"]["bits"] = "3f9e"; }),
              HasSubstr("16 hexadecimal digits"));
  EXPECT_THAT(broken([](Json& j) { j["verdicts"][0]["statistics"] = nullptr; }),
              HasSubstr("without statistics"));
  EXPECT_THAT(broken([](Json& j) { j["verdicts"][0]["curves"][0]["low"].erase(0); }),
              HasSubstr("unequal length"));
}

TEST(ResultsJson, RefusesWhatWasChangedSinceItWasWritten) {
  const Json document = Json::parse(results_to_json(full()));
  EXPECT_EQ(error_of(document.dump(7)), "none") << "laid out anew, of the same content";
  Json changed = document;
  changed["summary"]["exit_code"] = 5;
  EXPECT_THAT(error_of(changed.dump()), HasSubstr("out/results.json: is damaged: its checksum is "));
  changed = document;
  changed.erase("checksum");
  EXPECT_THAT(error_of(changed.dump()),
              HasSubstr("out/results.json: has no checksum: an earlier lockstep or another program wrote it"));
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
