#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/matrix.h"
#include "tests/harness/plan/matrix/matrix_helpers.h"

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

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// kHead has three lines: what tests append begins at line 4.
const std::string kGood = kHead + "axes: {layout: [8x3, 3x8]}\n";

TEST(Yaml, RefusesTagsWithTheirPlace) {
  EXPECT_THAT(
      problems_of(kGood + "steps: !!str 5\n"),
      ElementsAre("m.yaml:5:8: tags (tag:yaml.org,2002:str) are not supported: the key says what its value is"));
  EXPECT_THAT(problems_of(kGood + "data: !foo {stride: 2}\n"),
              ElementsAre(HasSubstr("m.yaml:5:7: tags (!foo)")));
  EXPECT_THAT(problems_of(kGood + "seeds: !!set [1]\n"), ElementsAre(HasSubstr("m.yaml:5:8: tags (")));
  EXPECT_THAT(problems_of(kGood + "!!str steps: 5\n"), ElementsAre(HasSubstr("m.yaml:5:1: tags (")));
}

TEST(Yaml, RefusesAnchorsAliasesAndMerges) {
  EXPECT_THAT(problems_of(kGood + "data: &d {stride: 2}\n"),
              ElementsAre(HasSubstr("m.yaml:5:7: anchors (&name)")));
  EXPECT_THAT(problems_of(kGood + "lr: &a 1\nlr_scale: *a\n"),
              ElementsAre(HasSubstr("5:5: anchors"), HasSubstr("6:11: aliases (*name)"),
                          HasSubstr("lr_scale must be")));
  EXPECT_THAT(problems_of(kGood + "data: {<<: {stride: 2}}\n"),
              ElementsAre(HasSubstr("5:8: unknown key 'data.<<'")));
}

TEST(Yaml, AliasesThatWouldMultiplyAreNotFollowed) {
  std::string bomb = kGood + "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string from = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + from;
    for (int j = 1; j < 10; ++j) bomb += ", " + from;
    bomb += "]\n";
  }
  EXPECT_THAT(problems_of(bomb), testing::Contains(HasSubstr("aliases (*name) are not supported")));
}

TEST(Yaml, RefusesWhatIsNestedTooDeep) {
  for (const std::string open : {"[", "{a: "}) {
    std::string deep = kGood + "seeds: ";
    for (int i = 0; i < 100000; ++i) deep += open;
    EXPECT_THAT(problems_of(deep), testing::Contains(HasSubstr("nested deeper than 50 levels"))) << open;
  }
  std::string block = kGood + "axes2:\n";
  for (int i = 1; i < 600; ++i) block += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_THAT(problems_of(block), testing::Contains(HasSubstr("nested deeper than 50 levels")));
}

TEST(Yaml, RefusesCharactersThatNobodySees) {
  EXPECT_THAT(
      problems_of(kGood + "data.train_file: \"a\\e[31mb\"\n"),
      testing::Contains("m.yaml:5:18: 'ab' holds the control character U+001B: write visible characters only"));
  EXPECT_THAT(problems_of(kGood + "data.train_file: a\xE2\x80\xAE"
                                  "b.ts\n"),
              testing::Contains(HasSubstr("m.yaml:5:18: 'a\uFFFDb.ts' holds the direction mark U+202E")));
  EXPECT_THAT(problems_of(kGood + "x\xC2\x9By: 1\n"),
              testing::Contains(HasSubstr("the control character U+009B")));
  EXPECT_THAT(
      problems_of(kGood + "data.train_file: \"a\\nb\"\n"),
      ElementsAre("m.yaml:5:18: data.train_file must be a text of one line, without tabs, not 'a b'"));
}

TEST(Yaml, RefusesOtherEncodingsWithTheirPlace) {
  EXPECT_THAT(problems_of(kGood + "lr: 1 # caf\xE9\n"), ElementsAre("m.yaml:5:12: a byte that is not UTF-8"));
  EXPECT_THAT(problems_of(kGood + std::string("lr: 1\0", 6)),
              ElementsAre("m.yaml:5:6: a NUL byte: a config must be text"));
  EXPECT_THAT(problems_of("\xFF\xFE" + kGood), ElementsAre("m.yaml:1:1: a byte that is not UTF-8"));
  EXPECT_THAT(problems_of("\xEF\xBB\xBF" + kGood), IsEmpty()) << "a byte order mark of UTF-8";
  EXPECT_THAT(problems_of("# é ü 中 ±\r\nname: tiny\r\nreference: {layout: 1x24}\r\nlayout: 8x3\r\n"),
              IsEmpty());
}

TEST(Yaml, SaysTheFirstTwentyProblemsAndHowManyMore) {
  std::string text = kGood;
  for (int i = 0; i < 20000; ++i) text += "zebra" + std::to_string(i) + ": 1\n";
  try {
    parse(text);
    FAIL();
  } catch (const ConfigError& error) {
    const std::string all = error.what();
    EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 20);
    EXPECT_THAT(all, testing::StartsWith("m.yaml:5:1: unknown key 'zebra0'\n"));
    EXPECT_THAT(all, testing::EndsWith("\n… and 19,980 more"));
    EXPECT_THAT(error.problems(), SizeIs(20000));
  }
}

TEST(Numbers, HaveOneSpellingAndTheOthersAreSuggestedInIt) {
  const auto expect = [](const std::string& key, const std::string& spelling, const std::string& suggestion) {
    const std::string ending =
        suggestion.empty() ? "'" + spelling + "'" : "; did you mean " + suggestion + "?";
    EXPECT_THAT(problems_of(kGood + key + ": " + spelling + "\n"), ElementsAre(testing::EndsWith(ending)))
        << spelling;
  };
  expect("steps", "010", "10");
  expect("steps", "0x10", "16");
  expect("steps", "0o10", "8");
  expect("steps", "1_000", "1000");
  expect("steps", "1e3", "1000");
  expect("steps", "5.0", "5");
  expect("steps", "+5", "5");
  expect("steps", "-0", "0");
  expect("steps", "5.5", "");
  expect("lr", "010", "10");
  expect("lr", "0x10", "16");
  expect("lr", "1_000.5", "1000.5");
  expect("lr", "+0.5", "0.5");
  expect("lr", "1e999", "");
  for (const std::string good : {"0.5", ".5", "5.", "1e-3", "1E3", "10"}) {
    EXPECT_THAT(problems_of(kGood + "lr: " + good + "\n"), IsEmpty()) << good;
  }
  EXPECT_THAT(problems_of(kHead + "layout: 08x3\n"), ElementsAre(HasSubstr("layout must be VxB")));
  EXPECT_THAT(problems_of(kGood + "question: mechanism\nseeds: 00..03\n"),
              ElementsAre(HasSubstr("seeds are written A..B")));
}

/// `config`: that reads well, and takes a line more with one of the fields.
template <class Owner, class Fields>
void expect_bounds(const Fields& fields, Owner owner, const std::string& config) {
  for (const auto& field : fields) {
    const FieldRef ref = field.of(owner);
    const bool is_number = std::holds_alternative<int*>(ref) || std::holds_alternative<int64_t*>(ref) ||
                           std::holds_alternative<double*>(ref) ||
                           std::holds_alternative<std::vector<int64_t>*>(ref);
    if (!is_number) continue;
    EXPECT_TRUE(std::isfinite(field.spec.range.low) && std::isfinite(field.spec.range.high))
        << field.spec.key;
    if (field.spec.setter != Setter::user) continue;
    const bool is_list = std::holds_alternative<std::vector<int64_t>*>(ref);
    for (const std::string extreme :
         {"1e18", "1e300", "-1e300", "9223372036854775807", "-9223372036854775808", "99999999999999999999",
          ".nan", ".inf", "-.inf", "nan", "inf"}) {
      double number = 0;
      const Range& range = field.spec.range;
      if (parse_double(extreme, number) && number >= range.low && number <= range.high) continue;
      const std::string value = is_list ? "[" + extreme + "]" : extreme;
      EXPECT_THAT(problems_of(config + std::string(field.spec.key) + ": " + value + "\n"),
                  testing::Contains(HasSubstr(std::string(field.spec.key) + " must be")))
          << extreme;
    }
  }
}

TEST(Numbers, HaveABoundOnEitherSideAndRefuseWhatIsBeyond) {
  for (const TrainerSpec* trainer : trainer_specs()) {
    expect_bounds(trainer->fields(), RunConfig(*trainer), kGood + "trainer: " + std::string(trainer->name) + "\n");
  }
  expect_bounds(core_fields(), RunConfig(), kGood);
  expect_bounds(matrix_fields(), Matrix(), kGood);
}

TEST(Numbers, MakeNoModelThatNoMachineHolds) {
  EXPECT_THAT(problems_of(kGood + "model: {width: 4096, hidden: 4096}\n"), IsEmpty());
  EXPECT_THAT(problems_of(kGood + "negatives: mixed\nmodel: {width: 8192, action_layers: 256}\n"),
              testing::Contains(HasSubstr("weights: at most 2^28")));
  EXPECT_THAT(
      problems_of(kGood +
                  "data: {source: synthetic, context_steps: 9000, min_context: 1, series_steps: 10000, "
                  "channels: 1000, series: 26}\nmodel: {hidden: 8192}\n"),
      testing::Contains(HasSubstr("weights: at most 2^28")));
}

TEST(Numbers, HaveOneZeroWhereNoSignHasAMeaning) {
  const Matrix plain = parse(kGood + "clip_norm: 0\n"), signed_zero = parse(kGood + "clip_norm: -0.0\n");
  EXPECT_EQ(config_hash(plain.cells[0].config), config_hash(signed_zero.cells[0].config));
}

TEST(ConfigDifferences, AreThoseThatCanChangeWhatIsTrained) {
  const RunConfig reference;
  RunConfig cell = reference;
  cell.layout = {8, 3};
  cell.backend = Backend::gloo;
  cell.trace = TraceLevel::full;
  cell.eval_every = 3;
  cell.bucket_cap_bytes = 1000;
  cell.checkpoint.every = 5;
  cell.watch.comm_check = true;
  cell.forced.from = "some-run";
  cell.mutant.name = "grad_scale";
  cell.stop_after = 4;
  EXPECT_THAT(config_differences(reference, cell), testing::IsEmpty());

  cell.weight_decay = 0.1;
  cell.optimizer = OptimizerKind::sgd;
  cell.data.shuffle = false;
  const std::vector<std::string> declared{"optimizer"};
  const auto found = config_differences(reference, cell, declared);
  EXPECT_EQ(differences_text(found), "data.shuffle true / false, optimizer adam / sgd, weight_decay 0 / 0.1");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_FALSE(found[0].declared);
  EXPECT_TRUE(found[1].declared);
}

TEST(ConfigDifferences, KnowAnotherNumberOfRowsAnotherSeedAndAnotherTrainer) {
  const RunConfig reference;
  RunConfig cell = reference;
  cell.layout = {8, 24};
  cell.seed = 1;
  EXPECT_EQ(differences_text(config_differences(reference, cell)), "layout 1x24 / 8x24, seed 0 / 1");
  const RunConfig other(*trainer_specs().back());
  ASSERT_NE(other.trainer, reference.trainer);
  EXPECT_EQ(differences_text(config_differences(reference, other)), "trainer " + reference.trainer + " / " + other.trainer);
}

TEST(ConfigDifferences, AreNoneOfAReferenceThatIsDerivedFromItsCell) {
  RunConfig reference, cell;
  reference.oracle_world = 8;
  reference.accumulation = 2;
  EXPECT_THAT(config_differences(reference, cell), testing::IsEmpty());
}

TEST(LearningKeys, AreAllButThoseOfExecutionAndWatching) {
  std::vector<std::string> others;
  for (const auto& [key, value] : config_fields(RunConfig(*trainer_specs().front()))) {
    if (!decides_learning(key)) others.push_back(key);
  }
  // Each stands in a config: a key that is renamed must be renamed here, or it would make other questions of
  // equal ones.
  EXPECT_THAT(others, testing::UnorderedElementsAre("seed", "trace", "snapshot_steps", "eval_every", "timeout_s", "control_guard",
                                                    "ranks", "process_start", "bucket_cap_bytes", "gradient_as_bucket_view",
                                                    "find_unused_parameters", "data.cache", "data.prefetch"));
}

TEST(BitKeys, AreAllButThoseOfWatchingAndPlanting) {
  std::vector<std::string> others;
  for (const auto& [key, value] : config_fields(RunConfig(*trainer_specs().front()))) {
    const bool of_a_group = key.starts_with("mutant.") || key.starts_with("second_mutant.") || key.starts_with("forced.") ||
                            key.starts_with("checkpoint.") || key.starts_with("watch.");
    if (!decides_bits(key) && !of_a_group) others.push_back(key);
  }
  EXPECT_THAT(others, testing::UnorderedElementsAre("seed", "stop_after", "resume_from", "resume_step", "trace", "snapshot_steps", "eval_every",
                                                    "timeout_s", "process_start", "data.cache", "data.prefetch"));
  EXPECT_TRUE(decides_bits("watch.nan_guard"));
}

TEST(BitKeys, PromiseEqualBitsToConfigsThatDifferInNoOther) {
  const RunConfig one(*trainer_specs().front());
  RunConfig other = one;
  other.trace = TraceLevel::full;
  other.mutant.name = "sign_flipped";
  EXPECT_TRUE(promise_equal_bits(one, other)) << "what is planted is found, not excused";
  for (const auto change : {+[](RunConfig& it) { it.bucket_cap_bytes = 100; }, +[](RunConfig& it) { it.accumulation = 2; },
                            +[](RunConfig& it) { it.precision = Precision::bfloat16; }, +[](RunConfig& it) { it.backend = Backend::gloo; },
                            +[](RunConfig& it) { it.layout = {1, 12}; }, +[](RunConfig& it) { it.perturb = Perturbation::epsilon; }}) {
    other = one;
    change(other);
    EXPECT_FALSE(promise_equal_bits(one, other));
  }
  RunConfig on_gpus = one;
  on_gpus.transport = Transport::nccl;
  EXPECT_FALSE(promise_equal_bits(on_gpus, on_gpus)) << "nobody says in which order it adds";
}

TEST(LearningKeys, MakeTheSameTextInAnyOrder) {
  EXPECT_EQ(learning_text({{"lr", "0.1"}, {"seed", "1"}, {"layout", "1x24"}}),
            learning_text({{"layout", "1x24"}, {"trace", "full"}, {"lr", "0.1"}}));
  EXPECT_NE(learning_text({{"lr", "0.1"}}), learning_text({{"lr", "0.2"}}));
}

TEST(Catalogue, GivesEveryEntryAnOwnNameAndALineOfHelp) {
  for (const auto entries : {catalogue_scenarios(), catalogue_losses(), catalogue_mutants()}) {
    std::set<std::string_view> names;
    for (const CatalogueEntry& entry : entries) {
      EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
      EXPECT_FALSE(entry.help.empty()) << entry.name;
      EXPECT_EQ(entry.help.find('\n'), std::string_view::npos) << entry.name;
    }
    EXPECT_FALSE(names.empty());
  }
}

constexpr std::array<std::string_view, 5> kWords{"seeds", "steps", "layout", "negatives", "lr"};

TEST(Nearest, FindsAWordWithOneLetterMissingWrongOrSwapped) {
  EXPECT_EQ(nearest("seds", kWords), "seeds");
  EXPECT_EQ(nearest("stepz", kWords), "steps");
  EXPECT_EQ(nearest("sedes", kWords), "seeds");
  EXPECT_EQ(nearest("lt", kWords), "lr");
  EXPECT_EQ(nearest("negatves", kWords), "negatives");
}

TEST(Nearest, GivesNothingForAWordThatIsFarFromAll) {
  EXPECT_EQ(nearest("optimizer", kWords), "");
  EXPECT_EQ(nearest("x", kWords), "");
  EXPECT_EQ(nearest("", kWords), "");
  EXPECT_EQ(nearest(std::string(100000, 's'), kWords), "");
}

TEST(Nearest, AllowsAThirdOfTheWordsLength) {
  constexpr std::array<std::string_view, 1> names{"abcdef"};
  EXPECT_EQ(nearest("abcdxy", names), "abcdef");
  EXPECT_EQ(nearest("abcxyz", names), "");
}

TEST(ConfigProblem, NamesThePlaceTheProblemAndTheSuggestion) {
  ConfigProblem problem;
  problem.file = "a.yaml";
  problem.line = 3;
  problem.column = 7;
  problem.message = "unknown key 'sedes'";
  problem.suggestion = "seeds";
  EXPECT_EQ(problem.text(), "a.yaml:3:7: unknown key 'sedes'; did you mean seeds?");
  problem.line = 0;
  problem.suggestion.clear();
  EXPECT_EQ(problem.text(), "a.yaml: unknown key 'sedes'");
}

TEST(ConfigError, SaysAllProblemsOneALine) {
  ConfigProblem first, second;
  first.message = "one";
  second.message = "two";
  EXPECT_STREQ(ConfigError({first, second}).what(), "one\ntwo");
  EXPECT_EQ(ConfigError("three").problems().size(), 1u);
}

TEST(CheckDeathTest, AbortsWithTheReason) {
  EXPECT_DEATH(LOCKSTEP_CHECK(1 == 2, "numbers are broken"), "numbers are broken \\(1 == 2\\)");
  LOCKSTEP_CHECK(1 == 1, "never said");
}

using testing::AllOf;
using testing::Contains;
using testing::Not;

const std::string kOutcome =
    kHead +
    "question: outcome\nseeds: 0..4\naxes: {layout: [8x3], negatives: [global, local]}\n"
    "power_controls: [{negatives: local}]\n";

TEST(Metrics, AMisspeltOneIsRefusedWithItsPlaceAndTheNearest) {
  EXPECT_THAT(
      problems_of(kOutcome + "primary: {metric: acuracy_24}\n"),
      ElementsAre(AllOf(HasSubstr("m.yaml:8:19: primary.metric must be one of the"),
                        HasSubstr("of `lockstep list`, not 'acuracy_24'; did you mean accuracy_24?"))));
  EXPECT_THAT(problems_of(kOutcome, set({"primary.metric=acuracy_24"})),
              ElementsAre(HasSubstr("--set primary.metric=acuracy_24: primary.metric must be one of")));
  EXPECT_THAT(problems_of(kHead + "layout: 8x3\nprimary: {metric: loss}\n"),
              ElementsAre(HasSubstr("5:19: primary.metric")))
      << "a curve is no metric, whatever the question";
}

TEST(Metrics, AllOfTheListAreAccepted) {
  const std::string explicit_too =
      kHead +
      "question: outcome\nseeds: 0..4\nnegatives: mixed\naxes: {layout: [8x3], lr: [1, 2]}\n"
      "power_controls: [{lr: 2}]\n";
  for (const CatalogueEntry& entry : catalogue_metrics()) {
    EXPECT_FALSE(entry.help.empty()) << entry.name;
    EXPECT_THAT(problems_of(explicit_too + "primary: {metric: " + std::string(entry.name) + "}\n"), IsEmpty())
        << entry.name;
  }
}

TEST(Metrics, OneThatTheRunsDoNotMeasureIsRefused) {
  EXPECT_THAT(problems_of(kOutcome + "primary: {metric: accuracy_24_permuted_context}\n"),
              ElementsAre(HasSubstr(
                  "8:11: cell '8x3 global' and 1 more: accuracy_24_permuted_context is measured where "
                  "negatives are made, by negatives layer or mixed")));
  const std::string area = kOutcome + "primary: {metric: auc_accuracy_24}\n";
  EXPECT_THAT(problems_of(area), IsEmpty());
  EXPECT_THAT(problems_of(area + "eval_every: 0\n"),
              Contains(HasSubstr("two evaluations or more, and there is one: eval_every is 0")));
  EXPECT_THAT(problems_of(area + "steps: 25\n"), Contains(HasSubstr("eval_every is 25, steps 25")));
  EXPECT_THAT(problems_of(area + "steps: 26\n"), IsEmpty()) << "after 25 steps and at the end";
}

TEST(Metrics, OneThatTheDataAreTooFewForIsRefused) {
  const std::string few =
      "data: {source: synthetic, series: 6, holdout_series: 2, series_steps: 60}\n";  // 19 each
  EXPECT_THAT(problems_of(kOutcome + few), IsEmpty()) << "114 test pairs";
  EXPECT_THAT(problems_of(kOutcome + few + "primary: {metric: accuracy_256}\n"),
              Contains(AllOf(
                  HasSubstr("accuracy_256 needs 256 test pairs, and there are 114; more come with a smaller "
                            "data.context_steps (16), data.action_steps (8) or data.stride (2)"),
                  HasSubstr("data.series (6)"))));
  const std::string unfitted = "data: {source: synthetic, holdout_series: 1, series_steps: 60}\n";
  EXPECT_THAT(problems_of(kOutcome + unfitted + "primary: {metric: cross_entropy_24_fitted}\n"),
              Contains(AllOf(HasSubstr("needs 24 held-out pairs, and there are 19"),
                             HasSubstr("a larger data.holdout_series (1)"))));
}

TEST(Metrics, TooFewTrainingPairsSayWhatGivesMore) {
  EXPECT_THAT(
      problems_of(kHead + "layout: 8x3\ndata: {source: synthetic, series: 5, stride: 50}\n"),
      ElementsAre(
          AllOf(HasSubstr("2 training pairs are fewer than the 24 rows of a step; more come with a smaller"),
                HasSubstr("data.stride (50)"), HasSubstr("data.holdout_series (4)"),
                HasSubstr("data.series (5)"))));
  EXPECT_THAT(
      problems_of(kHead +
                  "layout: 8x3\ndata: {source: synthetic, series: 5, stride: 50, drop_last: false}\n"),
      IsEmpty())
      << "without drop_last a step takes what there is";
}

TEST(TargetMetric, IsOfAMetricThatIsFollowed) {
  EXPECT_THAT(problems_of(kOutcome + "primary: {target: 0.4}\n"), IsEmpty());
  EXPECT_THAT(
      problems_of(kOutcome + "primary: {metric: accuracy_3, target: 0.4}\n"),
      ElementsAre(
          "m.yaml:8:31: steps to a target come from evaluations during the run, and these do not measure "
          "accuracy_3"));
}

TEST(Expectations, ThatEarlierOnesCoverAreRefused) {
  const std::string cells = kHead + "axes: {layout: [8x3, 4x6], negatives: [global, local]}\nexpect:\n";
  EXPECT_THAT(problems_of(cells + "  - {when: {negatives: local}, verdict: divergent}\n"
                                  "  - {when: {layout: 8x3, negatives: local}, verdict: identical}\n"),
              ElementsAre("m.yaml:7:5: this expectation never applies: the one cell that it matches is taken "
                          "by the one at 6:5"));
  EXPECT_THAT(
      problems_of(cells +
                  "  - {when: {layout: 8x3}, verdict: divergent}\n"
                  "  - {when: {layout: 4x6}, verdict: divergent}\n  - {when: {}, verdict: identical}\n"),
      ElementsAre("m.yaml:8:5: this expectation never applies: all 4 cells that it matches are taken by those "
                  "at 6:5, 7:5"));
  const std::string last_for_the_rest =
      cells + "  - {when: {layout: 8x3}, verdict: divergent}\n  - {when: {}, verdict: identical}\n";
  EXPECT_THAT(problems_of(last_for_the_rest), IsEmpty());
  EXPECT_THAT(problems_of(last_for_the_rest, set({"layout=8x3"})), IsEmpty())
      << "an axis that was narrowed is no mistake of the file";
}

TEST(Steps, BeyondTheRunAreRefusedUnlessItWasShortenedOnTheCommandLine) {
  const std::string short_run = kHead + "layout: 8x3\nsteps: 20\n";
  EXPECT_THAT(problems_of(short_run), IsEmpty()) << "defaults are not meant";
  const std::string snapshots = "snapshot_steps: [3, 20]\n", forced = "forced_steps: [0, 25]\n",
                    evaluations = "eval_every: 21\n";
  EXPECT_THAT(problems_of(short_run + snapshots),
              Contains("m.yaml:6:1: cell '8x3': snapshot_steps names step 20; a run of 20 steps has steps 0 to 19"));
  EXPECT_THAT(problems_of(short_run + forced),
              ElementsAre("m.yaml:6:1: forced_steps names step 25; runs of 20 steps have steps 0 to 19"));
  EXPECT_THAT(problems_of(short_run + evaluations),
              Contains(HasSubstr("6:1: cell '8x3': eval_every 21 exceeds the 20 steps of the run")));
  for (const std::string& text : {snapshots, forced, evaluations}) {
    const std::string long_run = kHead + "layout: 8x3\nsteps: 600\n" + text;
    EXPECT_THAT(problems_of(long_run), IsEmpty()) << text;
    EXPECT_THAT(problems_of(long_run, set({"steps=10"})), IsEmpty()) << text;
  }
  EXPECT_THAT(problems_of(short_run, set({"forced_steps=[25]"})),
              ElementsAre(HasSubstr("--set forced_steps=[25]: forced_steps names")));
}

}  // namespace
}  // namespace lockstep
