#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "harness/judge/causes/name_cause.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/trace/record.h"
#include "harness/plan/config/trainer_spec.h"
#include "scenarios/energy/spec.h"
#include "tests/support/planted_causes.h"
#include "tests/support/temp_folder.h"
#include "tests/support/whole.h"

// Every cause planted in a toy run, caught at its place and named; and the run without it silent.

namespace lockstep {
namespace {

using support::all_faults;
using support::alone;
using support::flipped;
using support::on_local;
using support::parts_at;
using support::Planted;
using support::scale;
using support::toy_config;
using support::ToyFaults;
using support::ToyStep;

class Causes : public ::testing::Test {
 protected:
  /// `faults` act in the cell's free and forced run alike.
  Mechanism judged(const RunConfig& config, const ToyFaults& faults, const std::string& name,
                   const std::function<void(RunConfig&)>& to_reference = {}) {
    RunConfig reference = alone(config);
    if (to_reference) to_reference(reference);
    return judge_forced(support::toy_runs(folder_ / name, reference, config, faults));
  }
  TempFolder folder_;
};

TEST_F(Causes, EveryPlantedFaultIsCaughtAtItsPlaceAndNamed) {
  int number = 0;
  for (const Planted& planted : all_faults()) {
    SCOPED_TRACE(planted.name);
    RunConfig config = toy_config();
    if (planted.config) planted.config(config);
    const Mechanism result = judged(config, planted.faults, std::to_string(number++));
    ASSERT_THAT(result, parts_at({.step = planted.step, .phase = planted.phase}));
    if (!planted.where.empty()) {
      EXPECT_THAT(result.first_divergence->where, ::testing::StartsWith(planted.where));
    }
    ASSERT_THAT(result, parts_at({.cause = planted.code}));
    EXPECT_FALSE(result.cause->evidence.empty());
    EXPECT_FALSE(result.cause->remedy.empty());
    if (!planted.config) continue;
    const Mechanism clean = judged(config, {}, "twin-" + std::to_string(number));
    EXPECT_EQ(clean.verdict, VerdictKind::within_envelope) << clean.sentence;
    EXPECT_FALSE(clean.cause.has_value());
  }
}

TEST_F(Causes, AgreeingRunsHaveNone) {
  int number = 0;
  std::vector<RunConfig> configs(5, toy_config());
  configs[1].optimizer = OptimizerKind::sgd;
  configs[1].clip_norm = 0.3;
  configs[2].optimizer = OptimizerKind::adamw;
  configs[2].weight_decay = 0.1;
  configs[3].layout = {2, 3};
  configs[4].layout = {6, 1};
  for (const RunConfig& config : configs) {
    const Mechanism result = judged(config, {}, "clean-" + std::to_string(number++));
    EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
    EXPECT_FALSE(result.cause.has_value());
    EXPECT_LT(result.band_used, 1);
  }
}

TEST_F(Causes, AnotherSetOfSamplesIsNoOtherSeed) {
  ToyFaults faults;
  faults.on_samples = [](support::ToyStep& it) {
    for (int64_t& id : it.ranks[1].samples) id = (id * 13 + 50) % 101;
  };
  RunConfig config = toy_config();
  config.data.source = DataSource::synthetic;
  const Mechanism same = judged(config, faults, "same-set");
  ASSERT_THAT(same, parts_at({.cause = "sampler-seed-differs"}));
  const Mechanism other = judged(config, faults, "other-set", [](RunConfig& reference) { reference.data.series += 10; });
  ASSERT_TRUE(other.cause);
  EXPECT_NE(other.cause->code, "sampler-seed-differs") << other.cause->evidence;
}

TEST_F(Causes, ABatchAgainInTheSameEpochIsNoForgottenEpoch) {
  // A run that is resumed two steps too early, in the first epoch and in the second.
  for (const int64_t step : {2, 6}) {
    ToyFaults faults;
    faults.on_samples = [step](support::ToyStep& it) {
      if (it.step < step) return;
      for (support::ToyRank& rank : it.ranks)
        for (std::size_t k = 0; k < rank.samples.size(); ++k)
          rank.samples[k] = support::toy_sample(it.step - 2, rank.rank + 3 * static_cast<int64_t>(k), 6);
    };
    const Mechanism result = judged(toy_config(), faults, "resumed-" + std::to_string(step));
    ASSERT_THAT(result, parts_at({.step = step}));
    ASSERT_TRUE(result.cause);
    EXPECT_NE(result.cause->code, "set-epoch-forgotten") << result.cause->evidence;
  }
}

TEST_F(Causes, TheRankOfAFlippedBitIsNamed) {
  const RunConfig config = toy_config();
  const Mechanism result = judged(config, on_local([](ToyStep& it) {
                                    float& value = it.ranks.back().local["context_encoder.weight"][0];
                                    if (it.step == 1 && it.ranks.size() > 1) value = flipped(value, 30);
                                  }),
                                  "rank");
  ASSERT_THAT(result, parts_at({.rank = 2}));
  ASSERT_TRUE(result.cause);
  EXPECT_THAT(result.cause->evidence, ::testing::HasSubstr("bit 30 of rank 2"));
}

TEST_F(Causes, OfTwoReplicasTheUpdateTellsWhichIsWrong) {
  RunConfig config = toy_config();
  config.layout = {2, 3};
  for (const std::size_t wrong : {0u, 1u}) {
    ToyFaults faults;
    faults.on_parameters = [wrong](ToyStep& it) {
      if (it.step != 1 || it.ranks.size() < 2) return;
      // None has the reference's bits, and by the size of the difference either may be right.
      for (support::ToyRank& rank : it.ranks) {
        float& rounded = rank.parameters["energy_head.key"][1];
        rounded = std::nextafter(rounded, 2.0F);
      }
      it.ranks[wrong].parameters["energy_head.key"][2] *= 1 + 1e-4F;
    };
    const Mechanism result = judged(config, faults, "two-" + std::to_string(wrong));
    ASSERT_THAT(result, parts_at({.step = 1, .rank = static_cast<int>(wrong), .cause = "replica-corrupted"}));
    EXPECT_THAT(result.sentence, ::testing::HasSubstr("from its own gradient"));
  }
}

TEST_F(Causes, RowsTellTheRankOfAWrongLoss) {
  for (const bool one_rank : {true, false}) {
    ToyFaults faults;
    faults.on_forward = [&](ToyStep& it) {
      if (it.step != 1 || it.ranks.size() < 2) return;
      for (support::ToyRank& rank : it.ranks) {
        if (one_rank && rank.rank != 1) continue;
        rank.row_losses[1] += 0.5;
        support::toy_loss(rank);
      }
    };
    const Mechanism result = judged(toy_config(), faults, one_rank ? "row" : "rows");
    ASSERT_THAT(result, parts_at({.phase = "loss", .rank = one_rank ? 1 : kRankUnknown}));
    EXPECT_EQ(result.first_divergence->sample.has_value(), one_rank);
    EXPECT_THAT(result.sentence, ::testing::HasSubstr(one_rank ? "on rank 1" : "loss, rank unknown"));
  }
}

/// What a float64 twin tells of local gradients of three ranks, of which one has another value.
CauseInputs beside_twin(const std::vector<float>& of_ranks, double right) {
  CauseInputs inputs;
  inputs.difference.phase = Phase::local_gradients;
  inputs.difference.divergence = {1, "local gradients", -1, "head.weight", DivergenceKind::band, "", "", ""};
  ForcedEvidence& evidence = inputs.forced.emplace();
  evidence.reference.gradients = {{"head.weight", {2}, {right, 0.25}, 0x1p-52}};
  double mean = 0;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    evidence.cell.local.push_back({{"head.weight", {2}, {of_ranks[rank], 0.25}}});
    evidence.cell.local_ranks.push_back(static_cast<int>(rank));
    mean += of_ranks[rank] / static_cast<double>(of_ranks.size());
  }
  evidence.cell.gradients = {{"head.weight", {2}, {mean, 0.25}}};
  evidence.local.tensors = {{"head.weight", {std::abs(mean - right), 1e-7}, right, mean}};
  return inputs;
}

TEST_F(Causes, AFlippedBitHasTheNumberOfTheTypeThatHoldsIt) {
  for (const int bit : {22, 25, 27, 28, 30, 31}) {
    const std::vector<float> values{0.3F, -0.7F, 0.011F};
    const double right = (static_cast<double>(values[0]) + values[1] + values[2]) / 3;
    const std::optional<Cause> cause = name_cause(beside_twin({values[0], values[1], flipped(values[2], bit)}, right));
    ASSERT_TRUE(cause.has_value()) << bit;
    EXPECT_EQ(cause->code, "bit-flip") << cause->evidence;
    EXPECT_THAT(cause->evidence, ::testing::HasSubstr("bit " + std::to_string(bit) + " of rank 2"));
  }
}

/// A reduction of one number over ranks.
CauseInputs one_number(const std::vector<double>& of_ranks, double reduced) {
  CauseInputs inputs;
  inputs.difference.phase = Phase::reduced_gradients;
  inputs.difference.divergence = {1, "reduced gradients", -1, "temperature.log_tau", DivergenceKind::reduction, "", "", ""};
  ForcedEvidence& evidence = inputs.forced.emplace();
  evidence.cell.gradients = {{"temperature.log_tau", {1}, {reduced}}};
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    evidence.cell.local.push_back({{"temperature.log_tau", {1}, {of_ranks[rank]}}});
    evidence.cell.local_ranks.push_back(static_cast<int>(rank));
  }
  return inputs;
}

TEST_F(Causes, RanksThatFitByChanceAreAllNamed) {
  const double tied = -0.1377;
  const std::vector<double> values{0.5123, tied, 0.7611, tied};
  const double others = values[0] + values[2];
  for (const auto& [sum, code, evidence] : {std::tuple(others + tied, "rank-missing", "without rank 1 or 3's gradient"),
                                            {others + 3 * tied, "rank-counted-twice", "with rank 1 or 3's gradient added twice"},
                                            {values[0] + 2 * tied, "rank-missing", "without rank 2's gradient"}}) {
    const std::optional<Cause> cause = name_cause(one_number(values, sum / 4));
    ASSERT_TRUE(cause.has_value()) << evidence;
    EXPECT_EQ(cause->code, code) << cause->evidence;
    EXPECT_THAT(cause->evidence, ::testing::HasSubstr(evidence));
  }
}

TEST_F(Causes, ABitThatNoMistakeExplainsIsNamedInANumberThatStandsAlone) {
  const std::vector<double> values{0.5123F, -0.1377F, 0.7611F, 0.29F};
  double sum = 0;
  for (const double value : values) sum += value;
  const std::optional<Cause> cause = name_cause(one_number(values, (sum - values[2] + flipped(0.7611F, 21)) / 4));
  ASSERT_TRUE(cause.has_value());
  EXPECT_EQ(cause->code, "message-corrupted") << cause->evidence;
  EXPECT_THAT(cause->evidence, ::testing::HasSubstr("bit 21"));
}

TEST_F(Causes, AnotherPrecisionIsNamedWhereItExplainsWhatIsSeen) {
  int judged_faults = 0;
  for (const Planted& planted : all_faults()) {
    const std::string code(planted.code);
    if (code != "candidates-in-low-precision" && code != "candidates-misordered") continue;
    SCOPED_TRACE(planted.name);
    RunConfig config = toy_config();
    if (planted.config) planted.config(config);
    config.precision = Precision::bfloat16;
    const Mechanism result = judged(config, planted.faults, "precision-" + code, [](RunConfig& reference) { reference.precision = Precision::float32; });
    ASSERT_THAT(result, parts_at({.cause = code == "candidates-misordered" ? code : "precision-differs"}));
    ++judged_faults;
  }
  EXPECT_GE(judged_faults, 2);
}

TEST_F(Causes, AnExactBandNeedsNoRepeats) {
  const RunConfig config = toy_config(), reference = alone(config);
  support::toy_run(folder_ / "a", reference, true);
  support::toy_run(folder_ / "b", config, true,
                   on_local([](ToyStep& it) { scale(it, "energy_head", 1.00001F); }));
  ForcedInputs inputs;
  inputs.forced_reference = folder_ / "a";
  inputs.forced_cell = folder_ / "b";
  EXPECT_EQ(judge_forced(inputs).verdict, VerdictKind::within_envelope);
  inputs.band.exact = 1e-6;
  const Mechanism result = judge_forced(inputs);
  EXPECT_EQ(result.verdict, VerdictKind::divergent);
  EXPECT_THAT(result.first_divergence->where, ::testing::StartsWith("energy_head"));
}

/// A code that two tables answer with has two meanings, but for mechanisms that a trainer's own config tells, too.
TEST(Hypotheses, EachCodeIsDecidedInOneTable) {
  const std::set<std::string> in_two = {"dropout-not-replayed", "mask-ignored", "mean-of-means"};
  std::map<std::string, std::set<const void*>> tables;
  for (const auto table : causes::all_hypotheses()) {
    for (const causes::Hypothesis& row : table) {
      std::istringstream codes{std::string(row.codes)};
      for (std::string code; codes >> code;) {
        EXPECT_NE(find_cause_page(code), nullptr) << code;
        tables[code].insert(table.data());
      }
    }
  }
  std::set<std::string> found;
  for (const auto& [code, where] : tables)
    if (where.size() > 1) found.insert(code);
  EXPECT_EQ(found, in_two);
}

TEST(CausePages, SayWhatProvesThem) {
  EXPECT_THAT(proved_by("stale-gradient"), ::testing::AllOf(::testing::HasSubstr("mutant "), ::testing::HasSubstr("tests/probe/mistakes.py")));
}

TEST(CausePages, EveryCodeHasOnePageAndEveryPageSaysWhatItMust) {
  std::set<std::string_view> codes;
  for (const CausePage& page : cause_pages()) {
    EXPECT_TRUE(codes.insert(page.code).second) << page.code;
    EXPECT_FALSE(page.what.empty()) << page.code;
    EXPECT_FALSE(page.recognised.empty()) << page.code;
    EXPECT_FALSE(page.remedy.empty()) << page.code;
    EXPECT_EQ(page.wrong.empty(), page.right.empty()) << page.code;
  }
  for (const Planted& planted : all_faults())
    EXPECT_NE(find_cause_page(planted.code), nullptr) << planted.code;
  EXPECT_EQ(find_cause_page("no-such-code"), nullptr);
}

TEST(FailureCauses, AreNamedByKindAndByTheHeaderExchange) {
  const std::tuple<FailureKind, const char*, const char*> all[] = {
      {FailureKind::died, "killed by signal 9 (SIGKILL)", "rank-died"},
      {FailureKind::hung, "no step for 62 s", "rank-hung"},
      {FailureKind::threw, "planted", "rank-threw"},
      {FailureKind::threw,
       "step 3: row 5 of the step's batch (sample 9, rank 1) has NaN or infinity in its loss: exact", "non-finite"},
      {FailureKind::threw, "loss.candidates: rank 2 is at step 5, not 4 (seen from rank 0)", "step-differs"},
      {FailureKind::threw, "loss.candidates: rank 2 sends tensor 0 as Double, not Float (seen from rank 0)",
       "dtype-differs"},
      {FailureKind::threw,
       "loss.candidates: rank 2 sends tensor 0 with rows of shape [3, 4], not [4, 4] (seen from rank 0)", "shapes-differ"},
      {FailureKind::threw, "loss.candidates: rank 1 calls another collective (seen from rank 0)", "collective-order"},
      {FailureKind::unreadable, "rank-0.trace: at offset 96, after step 3: a frame is damaged", "file-damaged"},
      {FailureKind::interrupted, "stopped on request", ""},
  };
  for (const auto& [kind, message, code] : all) {
    Failure failure;
    failure.kind = kind;
    failure.message = message;
    EXPECT_EQ(name_failure_cause(failure, 2).value_or(Cause()).code, code) << message;
  }
}

// Runs that are configured otherwise: judged by the reference's config, and named by the key.

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class ConfigKeys : public ::testing::Test {
 protected:
  /// A cell with this config against a reference with that one, each alone or on ranks.
  Mechanism judged(const RunConfig& of_reference, const RunConfig& config, std::vector<std::string> declared = {},
                   const ToyFaults& faults = {}) {
    const RunConfig reference = alone(of_reference);
    ForcedInputs inputs = support::toy_runs(folder_ / std::to_string(number_++), reference, config, faults);
    inputs.declared = std::move(declared);
    return judge_forced(inputs);
  }
  TempFolder folder_;
  int number_ = 0;
};

TEST_F(ConfigKeys, AnotherOptimizerIsADivergenceAndItsKeyTheCause) {
  struct Changed {
    const char* told;
    void (*change)(RunConfig&);
  };
  const Changed all[] = {
      {"optimizer adam / sgd", [](RunConfig& c) { c.optimizer = OptimizerKind::sgd; }},
      {"weight_decay 0 / 0.1", [](RunConfig& c) { c.weight_decay = 0.1; }},
      {"beta1 0.9 / 0.5", [](RunConfig& c) { c.beta1 = 0.5; }},
      {"beta2 0.999 / 0.9", [](RunConfig& c) { c.beta2 = 0.9; }},
      {"eps 1e-08 / 0.1", [](RunConfig& c) { c.eps = 0.1; }},
      {"clip_norm 0 / 0.001", [](RunConfig& c) { c.clip_norm = 0.001; }},
  };
  RunConfig reference = toy_config();
  reference.optimizer = OptimizerKind::adam;
  reference.clip_norm = 0;
  for (const Changed& it : all) {
    SCOPED_TRACE(it.told);
    RunConfig cell = reference;
    it.change(cell);
    const Mechanism result = judged(reference, cell);
    EXPECT_EQ(result.verdict, VerdictKind::divergent) << result.sentence;
    EXPECT_THAT(result.sentence, StartsWith(std::string("Configs differ in ") + it.told + ". "));
    ASSERT_THAT(result, parts_at({.cause = "config-differs"}));
    EXPECT_THAT(result.cause->evidence, HasSubstr(it.told));
    EXPECT_FALSE(result.cause->remedy.empty());
    // An axis over the key asks what each of its values does by itself.
    const std::string key = std::string(it.told).substr(0, std::string(it.told).find(' '));
    const Mechanism asked = judged(reference, cell, {key});
    EXPECT_EQ(asked.verdict, VerdictKind::within_envelope) << asked.sentence;
    EXPECT_THAT(asked.sentence, StartsWith(std::string("Configs differ in ") + it.told + ". "));
  }
}

TEST_F(ConfigKeys, AKeyThatChangesNothingIsToldAndNoDivergence) {
  RunConfig reference = toy_config(), cell = toy_config();
  reference.optimizer = cell.optimizer = OptimizerKind::adam;
  reference.clip_norm = cell.clip_norm = 0;
  cell.momentum = 0.9;  // of sgd alone
  const Mechanism result = judged(reference, cell);
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
  EXPECT_THAT(result.sentence, StartsWith("Configs differ in momentum 0 / 0.9. "));
}

TEST_F(ConfigKeys, AKeyThatActsLaterInTheStepIsNotTheCause) {
  RunConfig cell = toy_config();
  cell.weight_decay = 0.1;
  ToyFaults faults;
  faults.on_samples = [](support::ToyStep& it) {
    if (it.step != 1) return;
    for (support::ToyRank& rank : it.ranks)
      for (int64_t& sample : rank.samples) sample = (sample + 1) % 6;
  };
  RunConfig reference = toy_config();
  const Mechanism result = judged(reference, cell, {"weight_decay"}, faults);
  ASSERT_THAT(result, parts_at({.phase = "samples"}));
  ASSERT_TRUE(result.cause);
  EXPECT_NE(result.cause->code, "config-differs") << result.cause->evidence;
}

TEST_F(ConfigKeys, EqualConfigsAreNotSpokenOf) {
  const RunConfig config = toy_config();
  const Mechanism result = judged(config, config);
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope);
  EXPECT_THAT(result.sentence, testing::Not(HasSubstr("onfigs differ")));
}

// More evidence never gives a worse answer: every planted fault is judged with kinds of records left out.

constexpr unsigned kFree = support::kToyAll + 1;  // the free runs stand beside the forced ones

constexpr unsigned kEverything = 2 * kFree - 1;

constexpr int64_t kBehindAll = 1000;

struct Answer {
  int64_t step = kBehindAll;
  std::string code, told;
};

const std::vector<Planted>& faults() {
  static const std::vector<Planted> all = support::all_faults();
  return all;
}

/// By the fault's number among all.
class EvidenceSubsets : public ::testing::TestWithParam<std::size_t> {
 protected:
  Answer answer(const Planted& planted, unsigned evidence) {
    RunConfig config = support::toy_config();
    if (planted.config) planted.config(config);
    const RunConfig reference = support::alone(config);
    const TempFolder folder;
    ForcedInputs inputs;
    const auto write = [&](const char* name, const RunConfig& of, bool forced, const support::ToyFaults& faults) {
      support::toy_run(folder / name, of, forced, faults, "energy", evidence);
      return folder / name;
    };
    if (evidence & kFree) {
      inputs.run_a = write("reference", reference, false, {});
      inputs.run_b = write("cell", config, false, planted.faults);
    }
    inputs.forced_reference = write("forced-reference", reference, true, {});
    inputs.forced_cell = write("forced-cell", config, true, planted.faults);
    inputs.reference_config = &reference;
    inputs.cell_config = &config;
    const Mechanism result = judge_forced(inputs);
    return {result.first_divergence ? result.first_divergence->step : kBehindAll, result.cause ? result.cause->code : "",
            result.sentence};
  }
};

TEST_P(EvidenceSubsets, MoreOfItNeverGivesALaterStepOrTakesARightNameAway) {
  const Planted& planted = faults().at(GetParam());
  std::map<unsigned, Answer> answers;
  const auto of = [&](unsigned evidence) -> const Answer& {
    const auto known = answers.find(evidence);
    return known != answers.end() ? known->second : answers.emplace(evidence, answer(planted, evidence)).first->second;
  };
  // Sets that lack one kind, every fourth of a fault, or all sets, each compared with those with one of its kinds more.
  for (unsigned evidence = 0; evidence < kEverything; ++evidence) {
    const unsigned lacking = kEverything & ~evidence;
    if (!support::whole()) {
      if (std::popcount(lacking) > 1 || (static_cast<unsigned>(std::countr_zero(lacking)) + GetParam()) % 4 > 0) continue;
    }
    for (unsigned kind = 1; kind < kEverything; kind *= 2) {
      if (!(lacking & kind)) continue;
      const Answer &less = of(evidence), &more = of(evidence | kind);
      SCOPED_TRACE(fmt::format("without {:b}, then with {:b}:\n{}\n{}", lacking, kind, less.told, more.told));
      EXPECT_LE(more.step, less.step);
      if (less.code == planted.code) {
        EXPECT_EQ(more.code, planted.code);
      }
    }
  }
}

std::string name_of_fault(const testing::TestParamInfo<std::size_t>& number) {
  std::string name = fmt::format("{}_{}", number.param, faults()[number.param].name);
  std::ranges::replace_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

/// A half each, so that both run at once.
const std::size_t kMiddle = faults().size() / 2;

INSTANTIATE_TEST_SUITE_P(FirstHalf, EvidenceSubsets, testing::Range(std::size_t{0}, kMiddle), &name_of_fault);

INSTANTIATE_TEST_SUITE_P(SecondHalf, EvidenceSubsets, testing::Range(kMiddle, faults().size()), &name_of_fault);

// What is said of recorded pairs of tiny traces: those for tracers of other people, mistakes of trainers that are not ours
// with what must not be mistaken for them, and small programs with the mistakes of public reports.

using Json = nlohmann::json;

const std::string kFolder = LOCKSTEP_SOURCE_DIR "/tests/conformance/";

Json rows_of(const std::string& file) {
  std::ifstream rows(kFolder + file);
  return Json::parse(rows);
}

CompareOptions options_of(const std::string& folder, const std::string& a = "a", const std::string& b = "b") {
  return {kFolder + folder + "/" + a, kFolder + folder + "/" + b, {}, {}};
}

void hold(const Json& expected, const CompareOptions& runs) {
  const Mechanism said = compare_runs(runs);
  EXPECT_EQ(name_of(said.verdict), expected["verdict"]) << said.sentence;
  EXPECT_THAT(said.sentence, testing::HasSubstr(expected.value("says", "")));
  EXPECT_THAT(said.sentence, testing::Not(testing::HasSubstr(expected.value("unsaid", "of another shape")))) << "parts are put together";
  EXPECT_EQ(said.decide, expected.value("decide", said.decide));
  ASSERT_EQ(said.first_divergence.has_value(), expected.contains("step")) << said.sentence;
  if (!said.first_divergence) return;
  ASSERT_THAT(said, parts_at({.step = expected["step"].get<int64_t>(),
                              .phase = expected["phase"].get<std::string>(),
                              .rank = expected.value("rank", said.first_divergence->rank),
                              .where = expected.value("where", said.first_divergence->where),
                              .cause = expected["cause"].get<std::string>()}));
  EXPECT_THAT(said.cause->evidence, testing::HasSubstr(expected.value("evidence", "")));
}

TEST(Verdicts, OfPairsWhoseTruthIsKnownAreThatTruth) {
  const Json pairs = rows_of("verdicts.json");
  std::set<std::string> causes, verdicts;
  for (const Json& expected : pairs) {
    SCOPED_TRACE(expected["name"].get<std::string>());
    const CompareOptions runs = options_of("verdicts/" + expected["name"].get<std::string>());
    if (expected.contains("refused")) {
      EXPECT_THAT([&] { compare_runs(runs); }, testing::ThrowsMessage<TraceError>(testing::HasSubstr(expected["refused"].get<std::string>())));
      verdicts.insert("refused");
      continue;
    }
    hold(expected, runs);
    verdicts.insert(expected["verdict"]);
    if (expected.contains("cause")) causes.insert(expected["cause"]);
  }
  EXPECT_GE(pairs.size(), 60u);
  EXPECT_GE(causes.size(), 30u);
  EXPECT_THAT(verdicts, testing::ElementsAre("divergent", "identical", "inconclusive", "refused", "within_envelope"));
}

TEST(Verdicts, OfMistakesOfAnyTrainerAreNamedAndNothingElseIs) {
  for (const Json& expected : rows_of("mistakes.json")) {
    SCOPED_TRACE(expected["name"].get<std::string>());
    hold(expected, options_of("mistakes/" + expected["name"].get<std::string>()));
  }
}

TEST(Verdicts, OfPublicReportsNameTheirRootCauses) {
  const Json reports = rows_of("reports.json");
  for (const Json& report : reports) {
    SCOPED_TRACE(report["report"].get<std::string>());
    const std::string folder = "reports/" + report["name"].get<std::string>();
    hold(report, options_of(folder, "reference", "wrong"));
    const Mechanism right = compare_runs(options_of(folder, "reference", "right"));
    EXPECT_EQ(name_of(right.verdict), report["right"]) << right.sentence;
  }
  EXPECT_GE(std::ranges::count_if(reports, [](const Json& report) { return report["cause"] != "unexplained"; }), 48);
}

// The same planted faults in traces of other trainers, whose parameters and records happen to have the energy
// trainer's names: what holds for any trainer is named, and what is the energy trainer's is not.

/// Codes that the energy trainer's rules alone answer with.
std::set<std::string> energy_codes() {
  std::set<std::string> codes;
  for (const CausePage& page : causes::trainer_rules("energy").pages()) codes.emplace(page.code);
  return codes;
}

class ForeignTrainer : public ::testing::Test {
 protected:
  std::optional<Cause> cause_in(const RunConfig& config, const ToyFaults& faults,
                                const std::string& trainer) {
    return compared(config, faults, trainer).mechanism.cause;
  }

  /// The cell's and the reference's traces, both of that trainer.
  Comparison compared(const RunConfig& config, const ToyFaults& faults, const std::string& trainer,
                      const std::string& of_reference = "") {
    const RunConfig reference = alone(config);
    const std::string folder = folder_ / std::to_string(runs_++);
    Comparison result = compare_forced(support::toy_runs(folder, reference, config, faults, trainer,
                                                         of_reference.empty() ? trainer : of_reference));
    if (!result.around) return result;
    result.mechanism.cause = name_cause(*result.around);
    result.around->reference_config = result.around->cell_config = nullptr;  // they end here
    return result;
  }

  TempFolder folder_;
  int runs_ = 0;
};

/// What the energy trainer's own rules find beside the codes that are its own: a sample's content by its row and
/// its column among in-batch candidates, and a second pass over tiles by the temperature's gradient.
bool needs_the_trainer(const Planted& planted) {
  static const std::set<std::string> names = {"sample-content", "dropout-not-replayed"};
  return energy_codes().contains(planted.code) || names.contains(planted.code);
}

/// Faults that these toy runs plant in the recorded loss and not in its gradients.
bool of_the_loss_alone(const Planted& planted) {
  const CausePage* page = find_cause_page(planted.code);
  return page != nullptr && page->family == "loss";
}

TEST_F(ForeignTrainer, NoFaultIsNamedByAnotherTrainersRules) {
  int own = 0, of_any = 0;
  for (const Planted& planted : all_faults()) {
    SCOPED_TRACE(planted.name);
    RunConfig config = toy_config();
    if (planted.config) planted.config(config);
    const auto cause = cause_in(config, planted.faults, "theirs");
    // A loss that is logged otherwise beside right gradients is another trainer's own matter, as are its scores.
    if (!cause && (of_the_loss_alone(planted) || planted.phase == "energies")) {
      own += needs_the_trainer(planted);
      continue;
    }
    // So are the calls that it makes from its first step on.
    const bool of_calls = planted.code == "collective-missing" || planted.code == "collective-extra" || planted.code == "wrong-root";
    if (!cause && of_calls && planted.step == 0) continue;
    // A stream that its tracer records and the reference's does not is none that differs.
    if (!cause && planted.name == std::string("a stream that the reference lacks")) continue;
    ASSERT_TRUE(cause.has_value());
    if (needs_the_trainer(planted)) {
      // Scores of candidates tell of any trainer; the rest rests on what only the energy trainer's rules know.
      EXPECT_TRUE(cause->code == "unexplained" || cause->code == planted.code) << cause->code << ": " << cause->evidence;
      ++own;
    } else {
      EXPECT_EQ(cause->code, planted.code) << cause->evidence;
      ++of_any;
    }
  }
  EXPECT_GE(own, 15);
  EXPECT_GE(of_any, 50);
}

TEST_F(ForeignTrainer, GroupsOfAKnownNameAreNobodysRole) {
  struct Scaled {
    const char* group;
    float factor;
    const char* of_energy;
  };
  for (const Scaled& it : {Scaled{"action_encoder", 0, "candidates-detached"},
                           Scaled{"context_encoder", 0, "context-detached"},
                           Scaled{"temperature", 0, "temperature-detached"},
                           Scaled{"action_encoder", 1.0F / 3, "gather-averaged"},
                           Scaled{"temperature", 3, "temperature-reduced-twice"},
                           Scaled{"energy_head", 3, "unexplained"}}) {
    SCOPED_TRACE(it.group);
    const ToyFaults faults = on_local([&](ToyStep& step) { scale(step, it.group, it.factor); });
    EXPECT_EQ(cause_in(toy_config(), faults, "energy")->code, it.of_energy);
    EXPECT_EQ(cause_in(toy_config(), faults, "theirs")->code, "unexplained");
    EXPECT_EQ(cause_in(toy_config(), faults, "")->code, "unexplained");
  }
}

TEST_F(ForeignTrainer, WhatIsUnexplainedShowsFactorAndResidualAndRepeatsNothing) {
  const ToyFaults faults = on_local([](ToyStep& it) { scale(it, "energy_head", 3); });
  const Mechanism found = compared(toy_config(), faults, "theirs").mechanism;
  ASSERT_EQ(found.cause->code, "unexplained");
  EXPECT_THAT(found.cause->evidence, testing::HasSubstr("no known cause fits; local gradients: "));
  EXPECT_THAT(found.cause->evidence, testing::HasSubstr("3 (the world size) times the reference's, residual "));
  EXPECT_THAT(found.cause->evidence, testing::Not(testing::HasSubstr("expected ")))
      << "the first divergence's own sentence says it: " << found.sentence;
}

TEST_F(ForeignTrainer, APartOfAGroupIsNamedWhereItsRoleIsKnown) {
  const ToyFaults faults = on_local([](ToyStep& it) { scale(it, "energy_head.key", 3); });
  EXPECT_EQ(cause_in(toy_config(), faults, "energy")->code, "gradient-times-world");
  EXPECT_EQ(cause_in(toy_config(), faults, "theirs")->code, "unexplained");
}

TEST_F(ForeignTrainer, WhatScalesEveryGradientIsNamedForAnyTrainer) {
  const auto all = [](float factor) {
    return on_local([factor](ToyStep& it) { scale(it, "", factor); });
  };
  for (const char* trainer : {"energy", "theirs", ""}) {
    SCOPED_TRACE(trainer);
    EXPECT_EQ(cause_in(toy_config(), all(3), trainer)->code, "gradient-times-world");
    EXPECT_EQ(cause_in(toy_config(), all(1.0F / 3), trainer)->code, "gradient-over-world");
    EXPECT_EQ(cause_in(toy_config(), all(-1), trainer)->code, "sign-flipped");
  }
}

TEST_F(ForeignTrainer, ASecondTrainerHasItsOwnRolesAndRulesOrNone) {
  const ToyFaults detached = on_local([](ToyStep& it) { scale(it, "action", 0); });
  const ToyFaults part = on_local([](ToyStep& it) { scale(it, "energy_head.key", 3); });
  Comparison whole = compared(toy_config(), detached, "theirs");
  Comparison half = compared(toy_config(), part, "theirs");
  const TrainerSpec theirs{.name = "theirs", .help = ""};
  const auto named = [&](Comparison& comparison, const causes::TrainerRules* rules) {
    comparison.around->trainer = &theirs;
    comparison.around->rules = rules;
    return name_cause(*comparison.around)->code;
  };

  EXPECT_EQ(named(whole, nullptr), "unexplained");
  EXPECT_EQ(named(half, nullptr), "unexplained");

  static constexpr causes::TrainerRules kRolesAlone{
      .role_of = [](std::string_view) { return causes::Role{0}; }};
  EXPECT_EQ(named(whole, &kRolesAlone), "unexplained");
  EXPECT_EQ(named(half, &kRolesAlone), "gradient-times-world");

  static constexpr causes::Hypothesis kHypotheses[] = {
      {"their-own", causes::kInLocal, causes::kNothing, 0.9,
       [](const CauseInputs&) { return causes::Answer(causes::told("as planted")); }}};
  static constexpr causes::TrainerRules kOwn{
      .hypotheses = [] { return std::span<const causes::Hypothesis>(kHypotheses); }};
  EXPECT_EQ(named(whole, &kOwn), "their-own");
}

TEST_F(ForeignTrainer, TwoTrainersHaveNoRulesInCommon) {
  const ToyFaults faults = on_local([](ToyStep& it) { scale(it, "action", 0); });
  const Comparison mixed = compared(toy_config(), faults, "energy", "theirs");
  EXPECT_EQ(mixed.around->trainer, nullptr);
  EXPECT_EQ(mixed.mechanism.cause->code, "unexplained");
  const Comparison same = compared(toy_config(), faults, "energy");
  EXPECT_EQ(same.around->trainer, find_trainer_spec("energy"));
  EXPECT_EQ(same.mechanism.cause->code, "candidates-detached");
}

TEST_F(ForeignTrainer, TheEnergyTrainersTableKnowsEveryGroupOfItsModel) {
  const TrainerSpec* trainer = find_trainer_spec("energy");
  RunConfig config = toy_config();
  energy(config).negatives = Negatives::layer;
  const auto role_of = causes::trainer_rules("energy").role_of;
  const causes::Role unknown = role_of("no_such_group");
  std::set<causes::Role> roles;
  for (const ModelParameter& parameter : trainer->parameters(config, 3)) {
    const causes::Role role = role_of(parameter_group(parameter.name));
    EXPECT_NE(role, unknown) << parameter.name;
    roles.insert(role);
  }
  EXPECT_EQ(roles.size(), 5u);
  EXPECT_EQ(role_of("action_encoder2"), unknown);
}

TEST_F(ForeignTrainer, BuffersAreHeldToTheirOwnSizeWhereTheyAreNoMeansOfScores) {
  const auto grown = [](double factor) {
    return ToyFaults{nullptr, nullptr, nullptr, nullptr, [factor](ToyStep& it) {
                       for (support::ToyRank& rank : it.ranks) rank.buffer *= factor;
                     }};
  };
  for (const char* trainer : {"energy", "theirs"}) {
    const Comparison wrong = compared(toy_config(), grown(1.01), trainer);
    ASSERT_THAT(wrong.mechanism, parts_at({.where = "buffer/energy_mean"}));
    const Comparison rounded = compared(toy_config(), grown(1 + 1e-6), trainer);
    EXPECT_FALSE(rounded.mechanism.first_divergence.has_value()) << rounded.mechanism.sentence;
  }
}

TEST(CausePages, StandFamilyByFamilyWithThoseOfEveryTrainer) {
  const std::span<const CausePage> pages = cause_pages();
  std::set<std::string_view> done;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (i > 0 && pages[i].family == pages[i - 1].family) continue;
    EXPECT_TRUE(done.insert(pages[i].family).second) << pages[i].family << " stands twice";
  }
  EXPECT_EQ(pages.front().family, "samples");
  EXPECT_EQ(pages.back().code, "unexplained");
  for (const std::string& code : energy_codes()) EXPECT_NE(find_cause_page(code), nullptr) << code;
}

}  // namespace
}  // namespace lockstep
