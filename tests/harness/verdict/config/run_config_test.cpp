#include "harness/verdict/config/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/base/errors.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/field.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {
namespace {

// Converts to anything: counts the members of an aggregate by trying how many initialisers it takes.
struct Anything {
  template <class T>
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

std::string json_problem(const std::string& text) {
  try {
    run_config_from_json(text, "run.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::size_t keys_in_group(std::string_view prefix) {
  return static_cast<std::size_t>(std::ranges::count_if(
      core_fields(), [prefix](const RunField& field) { return field.spec.key.starts_with(prefix); }));
}

TEST(CoreFields, CoverEveryMemberOfTheStructs) {
  constexpr std::size_t kGroups = 6, kTrainer = 1;
  std::size_t grouped = 0;
  for (const char* group : {"data.", "forced.", "checkpoint.", "watch.", "mutant.", "second_mutant."}) grouped += keys_in_group(group);
  EXPECT_EQ(keys_in_group("second_mutant."), member_count<MutantConfig>());
  EXPECT_EQ(keys_in_group("data."), member_count<DataConfig>());
  EXPECT_EQ(keys_in_group("forced."), member_count<ForcedConfig>());
  EXPECT_EQ(keys_in_group("checkpoint."), member_count<CheckpointConfig>());
  EXPECT_EQ(keys_in_group("watch."), member_count<WatchConfig>());
  EXPECT_EQ(keys_in_group("mutant."), member_count<MutantConfig>());
  EXPECT_EQ(core_fields().size() - grouped, member_count<CoreConfig>() - kGroups + kTrainer);
}

TEST(RunFields, HaveAKeyOfTheirOwnAndALineOfHelp) {
  for (const TrainerSpec* trainer : trainer_specs()) {
    std::set<std::string_view> keys;
    for (const RunField* field : fields_of(*trainer)) {
      EXPECT_TRUE(keys.insert(field->spec.key).second) << trainer->name << ": " << field->spec.key;
      EXPECT_GT(field->spec.help.size(), 5u) << field->spec.key;
      EXPECT_EQ(find_field(*trainer, field->spec.key), field);
    }
    EXPECT_EQ(find_field(*trainer, "nonsense"), nullptr);
  }
}

TEST(RunFields, OfATrainerAreRefusedOfAnother) {
  EXPECT_EQ(find_core_field("negatives"), nullptr);
  EXPECT_EQ(owner_of_key("negatives"), find_trainer_spec("energy"));
  EXPECT_EQ(owner_of_key("lr"), nullptr);
  EXPECT_THAT(json_problem(R"({"trainer": "nosuch"})"), testing::HasSubstr("unknown trainer 'nosuch'"));
}

TEST(RunFields, HaveDefaultsInsideTheirRanges) {
  RunConfig config;
  // Reading the canonical text of a default config checks the type and range of every field.
  EXPECT_NO_THROW(run_config_from_json(canonical_json(config), "defaults"));
}

// Another legal value of the field: a different word, or a number next to it that its range allows.
void change(const RunField& field, RunConfig& config) {
  const FieldRef ref = field.of(config);
  const std::vector<std::string_view> choices = choices_of(field.spec, ref);
  const auto retry = [&](const std::string& text) {
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    node.text = text;
    Problems problems("");
    return read_field(field.spec, ref, node, problems);
  };
  const std::string before = text_of(ref);
  for (const std::string_view choice : choices) {
    if (choice != before && retry(std::string(choice))) return;
  }
  if (auto* list = std::get_if<std::vector<int64_t>*>(&ref)) {
    (*list)->push_back(7);
  } else if (auto* text = std::get_if<std::string*>(&ref)) {
    **text += "x";
  } else if (auto* flag = std::get_if<bool*>(&ref)) {
    **flag = !**flag;
  } else if (auto* number = std::get_if<double*>(&ref)) {
    // The smallest change there is: one unit in the last place.
    **number = std::bit_cast<double>(std::bit_cast<uint64_t>(**number) + 1);
  } else if (std::holds_alternative<Layout*>(ref)) {
    std::get<Layout*>(ref)->world_size += 1;
  } else {
    ASSERT_TRUE(retry("17")) << field.spec.key;
  }
}

TEST(ConfigHash, ChangesWithEveryFieldAndByTheLastBitOfADouble) {
  const std::string unchanged = config_hash(RunConfig{});
  std::map<std::string, std::string_view> seen{{unchanged, "nothing"}};
  for (const RunField* field : fields_of(spec_of(RunConfig{}))) {
    if (field->spec.key == "trainer") continue;  // Its value says which fields there are.
    RunConfig config;
    change(*field, config);
    const auto [at, is_new] = seen.emplace(config_hash(config), field->spec.key);
    EXPECT_TRUE(is_new) << field->spec.key << " hashes like " << at->second;
    EXPECT_FALSE(same_config(config, RunConfig{})) << field->spec.key;
  }
}

TEST(ConfigHash, IsWhatItWasBeforeRunsWereWatchedUnlessOneAsksForIt) {
  RunConfig config;
  const std::string before = config_hash(config);
  EXPECT_EQ(canonical_json(config).find(R"("watch":)"), std::string::npos);
  config.watch.nan_guard = NanGuard::skip;
  EXPECT_NE(config_hash(config), before);
  const RunConfig back = run_config_from_json(canonical_json(config), "run.json");
  EXPECT_EQ(back.watch, config.watch);
  config.watch = WatchConfig{};
  EXPECT_EQ(config_hash(config), before);
}

TEST(ConfigHash, IsWhatItWasBeforeThereWereCheckpointsUnlessTheyAreOn) {
  RunConfig config;
  EXPECT_EQ(canonical_json(config).find(R"("checkpoint":)"), std::string::npos);
  config.checkpoint.every = 10;
  EXPECT_NE(canonical_json(config).find(R"("checkpoint":{"async":false,"best":"","every":10)"), std::string::npos);
}

TEST(ConfigHash, IsWhatItWasBeforeUpdatesWereSharedOrWeightsAveragedUnlessTheyAre) {
  RunConfig config;
  const std::string before = config_hash(config);
  for (const auto& [key, value] : config_fields(config)) EXPECT_TRUE(key != "update" && key != "average_decay") << key;
  config.update = UpdatePartition::sharded;
  const std::string sharded = config_hash(config);
  EXPECT_NE(sharded, before);
  EXPECT_EQ(training_hash(config), training_hash(RunConfig{})) << "who updates a parameter changes nothing that is trained";
  config.average_decay = 0.9;
  EXPECT_NE(config_hash(config), sharded);
  EXPECT_EQ(run_config_from_json(canonical_json(config), "run.json").average_decay, 0.9);
  config.update = UpdatePartition::whole;
  config.average_decay = 0;
  EXPECT_EQ(config_hash(config), before);
}

TEST(ConfigHash, IsWhatItWasBeforeTransportsWereChosenUnlessOneIs) {
  RunConfig config;
  const std::string before = config_hash(config);
  EXPECT_EQ(canonical_json(config).find(R"("backend":)"), std::string::npos);
  config.transport = Transport::nccl;
  EXPECT_NE(canonical_json(config).find(R"("backend":"nccl")"), std::string::npos);
  EXPECT_NE(config_hash(config), before);
  EXPECT_EQ(run_config_from_json(canonical_json(config), "run.json").transport, Transport::nccl);
  EXPECT_EQ(training_hash(config), training_hash(RunConfig{}));
  config.transport = Transport::gloo;
  EXPECT_EQ(config_hash(config), before);
  EXPECT_THAT(json_problem(R"({"backend": "nncl"})"), testing::HasSubstr("did you mean nccl?"));
}

TEST(TrainingHash, IsThatOfWhatIsTrainedWhereverAndByHoweverManyRanks) {
  RunConfig config;
  const std::string hash = training_hash(config);
  config.layout = {8, 3};
  config.backend = Backend::gloo;
  config.checkpoint.every = 10;
  config.stop_after = 7;
  config.trace = TraceLevel::full;
  EXPECT_EQ(training_hash(config), hash);
  config.layout = {8, 4};
  EXPECT_NE(training_hash(config), hash);
  config.layout = {8, 3};
  config.lr = 0.5;
  EXPECT_NE(training_hash(config), hash);
}

TEST(ConfigHash, IsSixteenHexDigitsAndStaysTheSame) {
  EXPECT_THAT(config_hash(RunConfig{}), testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(config_hash(RunConfig{}).size(), 16u);
  EXPECT_EQ(config_hash(RunConfig{}), config_hash(RunConfig{}));
}

TEST(CanonicalJson, IsJsonWithSortedKeysAtEveryLevel) {
  const std::string text = canonical_json(RunConfig{});
  // nlohmann::json sorts keys: what it parses and dumps compactly must be the very same text.
  EXPECT_EQ(nlohmann::json::parse(text).dump(), text);
}

TEST(CanonicalJson, ComesBackFieldForFieldAndBitForBit) {
  RunConfig config;
  for (const RunField* field : fields_of(spec_of(config))) {
    if (field->spec.key != "trainer") change(*field, config);
  }
  config.lr = 0.1 + 0.2;
  config.lr_scale = 5e-324;
  config.weight_decay = 999999.99999999988;  // the largest below its bound
  config.mutant.factor = -0.0;
  config.mutant.tensor = "a \"b\" \\ \n\t \u00fc";
  const RunConfig back = run_config_from_json(canonical_json(config), "text");
  EXPECT_TRUE(same_config(config, back));
  EXPECT_EQ(canonical_json(config), canonical_json(back));
  EXPECT_EQ(std::bit_cast<uint64_t>(back.lr), std::bit_cast<uint64_t>(config.lr));
  EXPECT_TRUE(std::signbit(back.mutant.factor));
}

TEST(RunConfigFromJson, RefusesUnknownKeysWrongTypesAndValuesOutOfRange) {
  EXPECT_EQ(json_problem(R"({"stpes": 3})"), "run.json: unknown key 'stpes'; did you mean steps?");
  EXPECT_EQ(json_problem(R"({"data": {"strid": 3}})"),
            "run.json: unknown key 'data.strid'; did you mean data.stride?");
  EXPECT_EQ(json_problem(R"({"steps": "3"})"), "run.json: steps must be a whole number, not '3'");
  EXPECT_EQ(json_problem(R"({"steps": null})"), "run.json: steps must be a whole number, not nothing");
  EXPECT_EQ(json_problem(R"({"dropout": 1.0})"), "run.json: dropout must be in [0, 1), not 1.0");
  EXPECT_EQ(json_problem(R"({"lr": 0, "steps": 0})"),
            "run.json: lr must be in (0, 1000000], not 0\n"
            "run.json: steps must be in [1, 1000000000] (steps), not 0");
  EXPECT_EQ(json_problem("[]"), "run.json: a run's config must be a JSON object");
  EXPECT_EQ(json_problem("{\n  \"lr\" 3}"), "run.json:2:8: not JSON, or cut short");
  EXPECT_EQ(json_problem("{}"), "");
}

TEST(ConfigFields, ListEveryFieldInWords) {
  RunConfig config;
  config.layout = {8, 3};
  config.lr_scale = 0.125;
  config.snapshot_steps = {0, 5};
  const auto fields = config_fields(config);
  ASSERT_EQ(fields.size(), fields_of(spec_of(config)).size() - keys_in_group("checkpoint.") - keys_in_group("watch.") - 4);
  config.checkpoint.every = 10;
  config.checkpoint.required = true;
  config.transport = Transport::gloo_cuda;
  config.watch.comm_check = true;
  config.forced.chosen_by = "twin";
  config.update = UpdatePartition::sharded;
  config.average_decay = 0.9;
  EXPECT_EQ(config_fields(config).size(), fields_of(spec_of(config)).size());
  const std::map<std::string, std::string> by_key(fields.begin(), fields.end());
  EXPECT_EQ(by_key.at("layout"), "8x3");
  EXPECT_EQ(by_key.at("lr_scale"), "0.125");
  EXPECT_EQ(by_key.at("data.source"), "basic_motions");
  EXPECT_EQ(by_key.at("data.shuffle"), "true");
  EXPECT_EQ(by_key.at("snapshot_steps"), "[0, 5]");
  EXPECT_EQ(by_key.at("mutant.name"), "none");
}

TEST(StepsToRun, FollowStopAfterAndForcedSteps) {
  RunConfig config;
  EXPECT_EQ(steps_to_run(config), 600);
  config.stop_after = 50;
  EXPECT_EQ(steps_to_run(config), 50);
  config.steps = 20;
  EXPECT_EQ(steps_to_run(config), 20);
  config.forced.from = "x";
  config.forced.steps = {0, 1, 2};
  EXPECT_EQ(steps_to_run(config), 3);
}

}  // namespace
}  // namespace lockstep
