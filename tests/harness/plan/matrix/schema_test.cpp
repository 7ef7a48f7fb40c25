#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan.h"
#include "harness/plan/matrix/read_matrix.h"
#include "harness/plan/matrix/read_source.h"
#include "scenarios/energy/spec.h"
#include "tests/harness/plan/matrix/matrix_helpers.h"
#include "tests/support/json_schema.h"
#include "tests/support/suite_config.h"

namespace lockstep {
namespace {

using nlohmann::json;

const json& schema() {
  static const json parsed = json::parse(config_schema());
  return parsed;
}

json json_of(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return nullptr;
    case YamlNode::Kind::sequence: {
      json out = json::array();
      for (const YamlNode& item : node.items) out.push_back(json_of(item));
      return out;
    }
    case YamlNode::Kind::map: {
      json out = json::object();
      for (std::size_t i = 0; i < node.keys.size(); ++i) out[node.keys[i].text] = json_of(node.items[i]);
      return out;
    }
    case YamlNode::Kind::scalar:
      break;
  }
  int64_t whole = 0;
  double number = 0;
  if (node.quoted) return node.text;
  if (node.text == "true" || node.text == "false") return node.text == "true";
  if (parse_integer(node.text, whole)) return whole;
  if (parse_double(node.text, number)) return number;
  return node.text;
}

bool schema_accepts(const std::string& text) {
  Problems problems("m.yaml");
  const YamlNode root = read_yaml(text, 0, problems);
  return support::schema_violations(json_of(root), schema()).empty();
}

std::set<std::string> keys_of(const json& properties) {
  std::set<std::string> keys;
  for (const auto& [key, part] : properties.items()) {
    keys.insert(key);
    // A group's keys stand in the table with their dots.
    if (!part.contains("properties")) continue;
    for (const auto& [inner, value] : part["properties"].items()) {
      if (key != "axes" && key != "reference") keys.insert(key + "." + inner);
    }
  }
  return keys;
}

std::set<std::string> user_keys() {
  std::set<std::string> keys;
  for (const TrainerSpec* trainer : trainer_specs()) {
    for (const RunField* field : fields_of(*trainer)) {
      const std::string key(field->spec.key);
      if (field->spec.setter != Setter::user || field->is_open()) continue;
      keys.insert(key);
      if (const std::size_t dot = key.find('.'); dot != std::string::npos) keys.insert(key.substr(0, dot));
    }
    for (const OpenGroup& group : trainer->open_groups) keys.insert(std::string(group.prefix.substr(0, group.prefix.size() - 1)));
  }
  return keys;
}

TEST(Schema, HasExactlyTheKeysOfTheParser) {
  std::set<std::string> top = user_keys();
  for (const MatrixField& field : matrix_fields()) top.insert(std::string(field.spec.key));
  for (const std::string_view key : section_keys()) top.insert(std::string(key));
  top.insert({"primary", "band", "detection", "seeds_auto", "timing", "certify"});
  EXPECT_EQ(keys_of(schema()["properties"]), top);
  EXPECT_EQ(keys_of(schema()["definitions"]["rule"]["properties"]), user_keys());
  EXPECT_EQ(keys_of(schema()["definitions"]["settings"]["properties"]), user_keys());
  EXPECT_EQ(keys_of(schema()["properties"]["axes"]["properties"]), user_keys());
  std::set<std::string> reference = user_keys();
  reference.insert("same_as");
  EXPECT_EQ(keys_of(schema()["properties"]["reference"]["properties"]), reference);
}

TEST(Schema, NamesOnlyKeysThatTheParserTakes) {
  // One document a key, with a value that need not fit: the key itself must not be refused.
  for (const std::string& key : keys_of(schema()["properties"])) {
    for (const std::string& problem : problems_of("zzz: 1\n" + key + ": {}\n")) {
      EXPECT_EQ(problem.find("unknown key '" + key), std::string::npos) << problem;
      EXPECT_EQ(problem.find(key + " is set by"), std::string::npos) << problem;
    }
  }
}

TEST(Schema, DescribesEveryKeyAndRefusesOthers) {
  EXPECT_EQ(schema()["$schema"], "http://json-schema.org/draft-07/schema#");
  EXPECT_EQ(schema()["additionalProperties"], false);
  for (const RunField& field : core_fields()) {
    if (field.spec.setter != Setter::user) continue;
    const json& definition = schema()["definitions"].at(std::string(field.spec.key));
    EXPECT_FALSE(definition.at("description").get<std::string>().empty()) << field.spec.key;
  }
  EXPECT_EQ(schema()["definitions"]["optimizer"]["enum"], json({"sgd", "adam", "adamw"}));
  EXPECT_EQ(schema()["definitions"]["momentum"]["minimum"], 0);
  EXPECT_EQ(schema()["definitions"]["momentum"]["exclusiveMaximum"], 1);
  EXPECT_EQ(schema()["definitions"]["lr"]["default"], 1e-3);
}

TEST(Schema, AcceptsWhatTheParserAccepts) {
  const std::vector<std::string> good{
      kHead + "layout: 8x3\n",
      kHead +
          "axes: {layout: [8x3, 3x8], data: {stride: [1, 2]}, mutant.step: [0, 3]}\nmutant: {name: throw}\n",
      kHead + "layout: 8x3\nseeds: 0..9\nquestion: mechanism\n",
      kHead + "layout: 8x3\nseeds: [0, 4]\nquestion: mechanism\n",
      kHead + "layout: 8x3\nseeds: 0,4\nquestion: mechanism\nsnapshot_steps: [1, 2]\nforced_steps: []\n",
      kHead +
          "axes: {layout: [8x3, 3x8]}\nexclude: [{layout: [3x8]}]\ninclude: [{lr: 1}]\n"
          "expect: [{when: {lr: 1}, verdict: identical}, {verdict: [divergent, failed]}]\nranks: auto\n",
      "name: x\nlayout: 8x3\nreference: {same_as: cell, layout: 1x24, data.stride: 2}\nband: {floor: "
      "8}\n",
  };
  for (const std::string& text : good) {
    EXPECT_THAT(problems_of(text), testing::IsEmpty()) << text;
    EXPECT_TRUE(schema_accepts(text)) << text;
  }
}

TEST(Schema, RefusesWhatTheParserRefuses) {
  const std::string base = kHead + "axes: {layout: [8x3]}\n";
  const std::vector<std::string> bad{
      base + "sedes: 3\n",
      base + "lr: fast\n",
      base + "steps: 0\n",
      base + "dropout: 1\n",
      base + "optimizer: adma\n",
      base + "data: {strid: 3}\n",
      base + "forced: {from: x}\n",
      base + "stop_after: 3\n",
      base + "seed: 3\n",
      base + "seeds: []\n",
      base + "seeds: x\n",
      base + "primary: {margin: 0}\n",
      base + "band: {floor: -1}\n",
      base + "certify: {exact: -1}\n",
      base + "exclude: {lr: 3}\n",
      base + "expect: [{when: {}}]\n",
      base + "ranks: automatic\n",
      base + "include: [{}]\n",
      base + "expect: [{verdict: good}]\n",
      base + "layout: 8\n",
      base + "data: 3\n",
      base + "mutant: {bit: 32}\n",
      "name: x\n",
      "name: a/b\nreference: {layout: 1x24}\nlayout: 8x3\n",
      kHead + "axes: {lr: []}\n",
      kHead + "axes: {lr: 3}\n",
      "name: x\nreference: {same_as: cel}\n",
  };
  for (const std::string& text : bad) {
    EXPECT_THAT(problems_of(text), testing::Not(testing::IsEmpty())) << text;
    EXPECT_FALSE(schema_accepts(text)) << text;
  }
}

// The configs that stand in the repository: what each of them promises to run.

using testing::ElementsAre;

Matrix config(const std::string& name) {
  return read_matrix(LOCKSTEP_SOURCE_DIR "/configs/" + name + ".yaml", {});
}

TEST(Configs, AllReadAndAskAQuestion) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    // Those that name a suite hold no matrix; harness/cli/session reads them.
    if (support::is_suite_config(entry.path())) continue;
    ++count;
    const Matrix matrix = read_matrix(entry.path().string(), {});
    EXPECT_EQ(matrix.name, entry.path().stem().string());
    EXPECT_TRUE(matrix.question_text.ends_with("?")) << matrix.question_text;
    for (const Cell& cell : matrix.cells) {
      EXPECT_TRUE(!cell.expected.empty() || cell.noise) << cell.name;
    }
  }
  EXPECT_GE(count, 3);
}

TEST(ParityConfig, IsDoneWithinMinutesOnTwoCores) {
  const Plan plan = make_plan(config("parity_1x24_vs_8x3"), "", {});
  EXPECT_LT(estimate_total_s(plan, 2), 150);
}

TEST(SmokeConfig, RunsRealRanksOnGeneratedDataOnly) {
  const Matrix matrix = config("smoke");
  EXPECT_THAT(names_of(matrix), ElementsAre("3x8 global", "8x3 global"));
  EXPECT_THAT(matrix.forced_steps, ElementsAre(0, 1, 2, 5, 10, 20, 29));
  const Plan plan = make_plan(matrix, "", {});
  for (const PlannedRun& run : plan.runs) {
    EXPECT_EQ(run.config.data.source, DataSource::synthetic);
    EXPECT_LT(energy(run.config).data.min_context, energy(run.config).data.context_steps);
    EXPECT_GT(energy(run.config).dropout, 0);
    EXPECT_EQ(run.config.backend == Backend::gloo, run.config.layout.world_size > 1);
  }
  EXPECT_LT(estimate_total_s(plan, 2), 60);
}

TEST(LadderConfig, CoversWhatTheRungsMustEqualOn) {
  const Matrix matrix = config("ladder");
  std::map<int, std::set<std::string>> names;
  std::map<int, std::set<std::string>> pairs;
  std::set<int> sharing;  // rungs whose ranks share the update
  for (const Cell& cell : matrix.cells) {
    const RunConfig& c = cell.config;
    EXPECT_TRUE(cell.paired);
    EXPECT_EQ(c.backend, Backend::gloo);
    EXPECT_EQ(cell.reference.backend, Backend::emulated);
    EXPECT_GT(c.bucket_cap_bytes, 0);
    EXPECT_THAT(cell.expected, ElementsAre(VerdictKind::identical));
    if (c.update == UpdatePartition::sharded) {
      sharing.insert(c.layout.world_size);
      continue;
    }
    names[c.layout.world_size].insert(cell.name);
    // Every pair of settings that a cell joins.
    for (std::size_t i = 1; i < cell.settings.size(); ++i) {
      for (std::size_t j = 1; j < i; ++j) {
        pairs[c.layout.world_size].insert(cell.settings[i].second + "+" + cell.settings[j].second);
      }
    }
  }
  EXPECT_EQ(sharing, (std::set<int>{3, 8}));
  ASSERT_EQ(names.size(), 5u);
  for (const int v : {3, 8}) EXPECT_EQ(names[v].size(), 24u);
  for (const int v : {2, 4, 5}) {
    EXPECT_EQ(names[v].size(), 6u);
    EXPECT_EQ(pairs[v], pairs[3]) << v;
  }
  const Plan plan = make_plan(matrix, "", {});
  EXPECT_EQ(plan.runs.size(), 2 * matrix.cells.size()) << "bits are compared: nothing is forced or certified";
  EXPECT_LT(estimate_total_s(plan, 2), 180);
}

}  // namespace
}  // namespace lockstep
