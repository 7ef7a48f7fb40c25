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
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/judge/causes/name_cause.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/forced/forced.h"
#include "harness/judge/trace/record.h"
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
    ASSERT_TRUE(result.first_divergence.has_value()) << result.sentence;
    EXPECT_EQ(result.verdict, VerdictKind::divergent);
    EXPECT_EQ(result.first_divergence->step, planted.step) << result.sentence;
    EXPECT_EQ(result.first_divergence->phase, planted.phase) << result.sentence;
    if (!planted.where.empty()) {
      EXPECT_THAT(result.first_divergence->where, ::testing::StartsWith(planted.where));
    }
    ASSERT_TRUE(result.cause.has_value());
    EXPECT_EQ(result.cause->code, planted.code) << result.cause->evidence << "\n" << result.sentence;
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
  ASSERT_TRUE(same.cause);
  EXPECT_EQ(same.cause->code, "sampler-seed-differs");
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
    ASSERT_TRUE(result.first_divergence.has_value());
    EXPECT_EQ(result.first_divergence->step, step);
    ASSERT_TRUE(result.cause.has_value());
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
  ASSERT_TRUE(result.cause.has_value());
  EXPECT_EQ(result.first_divergence->rank, 2);
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
    ASSERT_TRUE(result.first_divergence && result.cause) << result.sentence;
    EXPECT_EQ(result.first_divergence->step, 1);
    EXPECT_EQ(result.first_divergence->rank, static_cast<int>(wrong)) << result.sentence;
    EXPECT_EQ(result.cause->code, "replica-corrupted") << result.cause->evidence;
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
    ASSERT_TRUE(result.first_divergence.has_value()) << result.sentence;
    EXPECT_EQ(result.first_divergence->phase, "loss");
    EXPECT_EQ(result.first_divergence->rank, one_rank ? 1 : kRankUnknown) << result.sentence;
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
  const std::optional<Cause> missing = name_cause(one_number(values, (values[0] + values[2] + tied) / 4));
  ASSERT_TRUE(missing.has_value());
  EXPECT_EQ(missing->code, "rank-missing");
  EXPECT_THAT(missing->evidence, ::testing::HasSubstr("without rank 1 or 3's gradient"));
  const std::optional<Cause> twice = name_cause(one_number(values, (values[0] + values[2] + 3 * tied) / 4));
  ASSERT_TRUE(twice.has_value());
  EXPECT_EQ(twice->code, "rank-counted-twice");
  EXPECT_THAT(twice->evidence, ::testing::HasSubstr("with rank 1 or 3's gradient added twice"));
  const std::optional<Cause> one = name_cause(one_number(values, (values[0] + 2 * tied) / 4));
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->code, "rank-missing") << one->evidence;
  EXPECT_THAT(one->evidence, ::testing::HasSubstr("without rank 2's gradient"));
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
    ASSERT_TRUE(result.cause.has_value());
    EXPECT_EQ(result.cause->code, code == "candidates-misordered" ? code : "precision-differs")
        << result.cause->evidence;
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
  const auto code = [](FailureKind kind, const std::string& message) {
    Failure failure;
    failure.kind = kind;
    failure.message = message;
    const auto cause = name_failure_cause(failure, 2);
    return cause ? cause->code : "";
  };
  EXPECT_EQ(code(FailureKind::died, "killed by signal 9 (SIGKILL)"), "rank-died");
  EXPECT_EQ(code(FailureKind::hung, "no step for 62 s"), "rank-hung");
  EXPECT_EQ(code(FailureKind::threw, "planted"), "rank-threw");
  EXPECT_EQ(code(FailureKind::threw, "step 3: row 5 of the step's batch (sample 9, rank 1) has NaN or infinity in its loss: exact"),
            "non-finite");
  EXPECT_EQ(code(FailureKind::threw, "loss.candidates: rank 2 is at step 5, not 4 (seen from rank 0)"), "step-differs");
  EXPECT_EQ(code(FailureKind::threw, "loss.candidates: rank 2 sends tensor 0 as Double, not Float (seen from rank 0)"),
            "dtype-differs");
  EXPECT_EQ(code(FailureKind::threw,
                 "loss.candidates: rank 2 sends tensor 0 with rows of shape [3, 4], not [4, 4] (seen from "
                 "rank 0)"),
            "shapes-differ");
  EXPECT_EQ(code(FailureKind::threw, "loss.candidates: rank 1 calls another collective (seen from rank 0)"),
            "collective-order");
  EXPECT_EQ(code(FailureKind::unreadable, "rank-0.trace: at offset 96, after step 3: a frame is damaged"),
            "file-damaged");
  EXPECT_EQ(code(FailureKind::interrupted, "stopped on request"), "");
}

}  // namespace
}  // namespace lockstep

// Runs that are configured otherwise: judged by the reference's config, and named by the key.

namespace lockstep {
namespace {

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
    ASSERT_TRUE(result.cause.has_value());
    EXPECT_EQ(result.cause->code, "config-differs") << result.cause->evidence;
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
  ASSERT_TRUE(result.cause.has_value()) << result.sentence;
  EXPECT_EQ(result.first_divergence->phase, "samples");
  EXPECT_NE(result.cause->code, "config-differs") << result.cause->evidence;
}

TEST_F(ConfigKeys, EqualConfigsAreNotSpokenOf) {
  const RunConfig config = toy_config();
  const Mechanism result = judged(config, config);
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope);
  EXPECT_THAT(result.sentence, testing::Not(HasSubstr("onfigs differ")));
}

}  // namespace
}  // namespace lockstep

// More evidence never gives a worse answer: every planted fault is judged with kinds of records left out.

namespace lockstep {
namespace {

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
      inputs.reference_free = write("reference", reference, false, {});
      inputs.cell_free = write("cell", config, false, planted.faults);
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

}  // namespace
}  // namespace lockstep

// Pairs of tiny traces whose truth is known, as tests/conformance/verdicts.py writes them: what is said of each.

namespace lockstep {
namespace {

using Json = nlohmann::json;

const std::string kFolder = LOCKSTEP_SOURCE_DIR "/tests/conformance/";

Json all_pairs() {
  std::ifstream file(kFolder + "verdicts.json");
  return Json::parse(file);
}

CompareOptions options_of(const std::string& name) {
  return {kFolder + "verdicts/" + name + "/a", kFolder + "verdicts/" + name + "/b", {}, {}};
}

void hold(const Json& expected) {
  const Mechanism said = compare_runs(options_of(expected["name"]));
  EXPECT_EQ(name_of(said.verdict), expected["verdict"]) << said.sentence;
  EXPECT_THAT(said.sentence, testing::Not(testing::HasSubstr("of another shape"))) << "parts are put together";
  ASSERT_EQ(said.first_divergence.has_value(), expected.contains("step")) << said.sentence;
  if (!said.first_divergence) return;
  EXPECT_EQ(said.first_divergence->step, expected["step"]) << said.sentence;
  EXPECT_EQ(said.first_divergence->phase, expected["phase"]) << said.sentence;
  EXPECT_EQ(said.first_divergence->rank, expected.value("rank", said.first_divergence->rank)) << said.sentence;
  ASSERT_TRUE(said.cause);
  EXPECT_EQ(said.cause->code, expected["cause"]) << said.sentence << " " << said.cause->evidence;
}

TEST(Verdicts, OfPairsWhoseTruthIsKnownAreThatTruth) {
  const Json pairs = all_pairs();
  std::set<std::string> causes, verdicts;
  for (const Json& expected : pairs) {
    SCOPED_TRACE(expected["name"].get<std::string>());
    if (expected.contains("refused")) continue;
    hold(expected);
    verdicts.insert(expected["verdict"]);
    if (expected.contains("cause")) causes.insert(expected["cause"]);
  }
  EXPECT_GE(pairs.size(), 60u);
  EXPECT_GE(causes.size(), 30u);
  EXPECT_THAT(verdicts, testing::ElementsAre("divergent", "identical", "inconclusive", "within_envelope"));
}

TEST(Verdicts, OfATraceThatIsNewerThanThisBuildAreRefused) {
  int refused = 0;
  for (const Json& expected : all_pairs()) {
    if (!expected.contains("refused")) continue;
    ++refused;
    try {
      compare_runs(options_of(expected["name"]));
      ADD_FAILURE() << expected["name"] << " was compared";
    } catch (const TraceError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(expected["refused"].get<std::string>()));
    }
  }
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace lockstep
