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
#include "tests/support/members.h"

namespace lockstep {
namespace {

using support::member_count;

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

TEST(ConfigHash, IsWhatItWasBeforeThereWasAFieldUnlessOneAsksForIt) {
  const RunConfig plain;
  const struct {
    const char* key;
    bool trains_another;
    void (*ask)(RunConfig&);
  } rows[] = {{R"("watch":)", true, [](RunConfig& c) { c.watch.nan_guard = NanGuard::skip; }},
              {R"("checkpoint":)", false, [](RunConfig& c) { c.checkpoint.every = 10; }},
              {R"("average_decay":)", true, [](RunConfig& c) { c.average_decay = 0.9; }},
              {R"("update":)", false, [](RunConfig& c) { c.update = UpdatePartition::sharded; }},
              {R"("backend":)", false, [](RunConfig& c) { c.transport = Transport::nccl; }}};
  for (const auto& [key, trains_another, ask] : rows) {
    RunConfig asked;
    ask(asked);
    EXPECT_EQ(canonical_json(plain).find(key), std::string::npos) << key;
    EXPECT_NE(canonical_json(asked).find(key), std::string::npos) << key;
    EXPECT_NE(config_hash(asked), config_hash(plain)) << key;
    EXPECT_TRUE(same_config(run_config_from_json(canonical_json(asked), "run.json"), asked)) << key;
    EXPECT_EQ(training_hash(asked) != training_hash(plain), trains_another) << key;
  }
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

TEST(Yaml, RefusesOtherEncodingsWithTheirPlace) {
  EXPECT_THAT(problems_of(kGood + "lr: 1 # caf\xE9\n"), ElementsAre("m.yaml:5:12: a byte that is not UTF-8"));
  EXPECT_THAT(problems_of(kGood + std::string("lr: 1\0", 6)),
              ElementsAre("m.yaml:5:6: a NUL byte: a config must be text"));
  EXPECT_THAT(problems_of("\xFF\xFE" + kGood), ElementsAre("m.yaml:1:1: a byte that is not UTF-8"));
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

TEST(Steps, BeyondTheRunAreRefusedUnlessItWasShortenedOnTheCommandLine) {
  const std::string short_run = kHead + "layout: 8x3\nsteps: 20\n";
  const std::string snapshots = "snapshot_steps: [3, 20]\n", forced = "forced_steps: [0, 25]\n",
                    evaluations = "eval_every: 21\n";
  for (const std::string& text : {snapshots, forced, evaluations}) {
    const std::string long_run = kHead + "layout: 8x3\nsteps: 600\n" + text;
    EXPECT_THAT(problems_of(long_run), IsEmpty()) << text;
    EXPECT_THAT(problems_of(long_run, set({"steps=10"})), IsEmpty()) << text;
  }
}

}  // namespace
}  // namespace lockstep
