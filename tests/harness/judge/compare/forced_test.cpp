#include "harness/judge/compare/compared.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "harness/judge/causes/name_cause.h"
#include "harness/judge/compare/forced/update.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/record.h"
#include "harness/plan/config/trainer_spec.h"
#include "tests/support/made_run.h"
#include "tests/support/temp_folder.h"

// The forced comparison: a measured band, gradient signatures, and the earliest point of free and forced runs
// together.

namespace lockstep {
namespace {

using support::FakeRun;
using support::FakeStep;
using support::parts_at;
using support::tensor_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Fault = std::function<void(FakeStep&)>;

class JudgeForced : public ::testing::TestWithParam<int> {
 protected:
  JudgeForced() {
    inputs_.run_a = folder_ / "reference";
    inputs_.run_b = folder_ / "cell";
    inputs_.forced_reference = folder_ / "forced-reference";
    inputs_.forced_cell = folder_ / "forced-cell";
  }
  FakeRun forced(int world_size, uint64_t noise_seed) const {
    FakeRun run;
    run.trainer = trainer_;
    run.world_size = world_size;
    run.steps = {0, 1, 2, 5, 10, 20};
    run.forced = true;
    run.noise = 3e-7;
    run.noise_seed = noise_seed;
    return run;
  }
  FakeRun free(int world_size, uint64_t noise_seed) const {
    FakeRun run = forced(world_size, noise_seed);
    run.forced = false;
    run.steps = support::steps_up_to(30);
    return run;
  }
  void write_reference(int world_size = 1, int repeats = 4) {
    support::write_fake_run(inputs_.run_a, free(world_size, 1));
    FakeRun reference = forced(world_size, 1);
    reference.term_sums = true;
    support::write_fake_run(inputs_.forced_reference, reference);
    for (int k = 0; k < repeats; ++k) {
      inputs_.repeats.push_back(folder_ / ("repeat-" + std::to_string(k)));
      FakeRun repeat = forced(world_size, 100 + static_cast<uint64_t>(k));
      // Repeats permute rows: the judge must align them by sample id.
      repeat.fault = [](FakeStep& it) {
        const std::size_t width = it.columns.size(), rows = it.samples.size();
        std::vector<float> turned;
        for (std::size_t row = rows; row-- > 0;) {
          turned.insert(turned.end(), it.energies.begin() + static_cast<std::ptrdiff_t>(row * width),
                        it.energies.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
        }
        it.energies = turned;
        std::ranges::reverse(it.samples);
      };
      support::write_fake_run(inputs_.repeats.back(), repeat);
    }
  }
  void write_cell(const Fault& in_forced, const Fault& in_free = nullptr, bool local_negatives = false,
                  int world_size = 0, uint64_t noise_seed = 2) {
    const int ranks = world_size > 0 ? world_size : GetParam();
    FakeRun gradients = forced(ranks, noise_seed), trains = free(ranks, noise_seed);
    gradients.fault = in_forced;
    trains.fault = in_free;
    gradients.local_negatives = trains.local_negatives = local_negatives;
    support::write_fake_run(inputs_.forced_cell, gradients);
    support::write_fake_run(inputs_.run_b, trains);
  }
  Mechanism judged(const Fault& in_forced, const Fault& in_free = nullptr, bool local_negatives = false) {
    write_reference();
    write_cell(in_forced, in_free, local_negatives);
    return judge_forced(inputs_);
  }
  /// Reference and cell of one layout, from that noise.
  Mechanism judged_at_one_layout(uint64_t noise_seed, const Fault& in_forced = nullptr,
                                 const Fault& in_free = nullptr) {
    write_reference(GetParam());
    write_cell(in_forced, in_free, false, GetParam(), noise_seed);
    return judge_forced(inputs_);
  }
  static const GradientSignature& group(const Mechanism& result, std::size_t step, const std::string& name) {
    for (const GradientSignature& each : result.forced.at(step).groups) {
      if (each.group == name) return each;
    }
    throw std::out_of_range(name);
  }
  TempFolder folder_;
  std::string trainer_ = "energy";
  ForcedInputs inputs_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, JudgeForced, ::testing::Values(3, 8));

/// The same runs computed twice: in float32, and without rounding in float64.
class JudgeTwins : public JudgeForced {
 protected:
  FakeRun twin(int world_size) const {
    FakeRun run = forced(world_size, 0);
    run.noise = 0;
    run.wide = true;
    run.term_sums = world_size == 1;
    return run;
  }
  /// `in_twin`: what the cell means otherwise, so that both of its runs have it; `in_single`: what its arithmetic does.
  Mechanism judged_by_twins(const Fault& in_both, const Fault& in_single = nullptr,
                            const std::pair<std::string, double>& wide_scale = {"", 1}) {
    write_reference(1, 0);
    inputs_.reference_twin = folder_ / "reference-twin";
    inputs_.cell_twin = folder_ / "cell-twin";
    support::write_fake_run(inputs_.reference_twin, twin(1));
    FakeRun cell = twin(GetParam());
    cell.fault = in_both;
    cell.wide_scale = wide_scale;
    support::write_fake_run(inputs_.cell_twin, cell);
    write_cell([&](FakeStep& it) {
      if (in_both) in_both(it);
      if (in_single) in_single(it);
    });
    return judge_forced(inputs_);
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, JudgeTwins, ::testing::Values(3, 8));

TEST_P(JudgeTwins, RunsThatRoundAlikeMeanTheSame) {
  const Mechanism result = judged_by_twins(nullptr);
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
  EXPECT_TRUE(result.twins);
  EXPECT_FALSE(result.band_measured);
  ASSERT_EQ(result.forced.size(), 6U);
  EXPECT_EQ(result.forced[0].meaning_used, 0);
  EXPECT_GT(result.forced[0].arithmetic_used, 0.01);
  EXPECT_LT(result.band_used, 1);
  EXPECT_THAT(result.sentence, HasSubstr("From the same weights and batch both compute the same gradients (6 forced steps; largest float64 difference 0 % "
                                         "of the tolerance). Rounding uses "));
}

TEST_P(JudgeTwins, AFactorFarBelowFloat32sRoundingIsMeaning) {
  const Mechanism result = judged_by_twins(nullptr, nullptr, {"head.weight", 1 + 1e-10});
  ASSERT_THAT(result, parts_at({.step = 0, .where = "head.weight", .parted = "meaning"}));
  EXPECT_THAT(result.sentence, AllOf(HasSubstr("the float64 tolerance"), HasSubstr("so it is not rounding")));
  EXPECT_NEAR(group(result, 0, "head").ratio, 1 + 1e-10, 1e-13);
}

TEST_P(JudgeTwins, AFactorInFloat32AloneIsArithmetic) {
  const Mechanism result = judged_by_twins(nullptr, [](FakeStep& it) {
    if (it.step < 5) return;
    for (float& value : tensor_of(it.reduced_gradients, "action_encoder.weight1")) value *= 1.001F;
  });
  ASSERT_THAT(
      result,
      parts_at({.step = 5, .phase = "reduced gradients", .where = "action_encoder.weight1", .parted = "arithmetic"}));
  EXPECT_THAT(result.sentence, AllOf(HasSubstr("the rounding tolerance"), HasSubstr("rounding or arithmetic, not a different computation")));
  EXPECT_EQ(result.forced[3].meaning_used, 0);
}

TEST_P(JudgeTwins, WhatBothComputationsHaveIsMeaningAndNotTheCellsRounding) {
  const Mechanism result = judged_by_twins([](FakeStep& it) {
    if (it.step < 2) return;
    for (float& value : tensor_of(it.reduced_gradients, "head.weight")) value *= 8;
  });
  ASSERT_THAT(result, parts_at({.step = 2, .where = "head.weight", .parted = "meaning"}));
}

TEST_P(JudgeTwins, AnEnergyThatRoundsOtherwiseIsArithmetic) {
  const Mechanism result = judged_by_twins(nullptr, [](FakeStep& it) {
    if (it.rank == 1) it.energies[3] *= 1.004F;
  });
  ASSERT_THAT(result, parts_at({.phase = "energies", .rank = 1, .parted = "arithmetic"}));
}

TEST_P(JudgeTwins, ATwinThatLacksAStepIsAnError) {
  judged_by_twins(nullptr);
  FakeRun cell = twin(GetParam());
  cell.steps.pop_back();
  support::write_fake_run(inputs_.cell_twin, cell);
  EXPECT_THAT([&] { judge_forced(inputs_); },
              ::testing::ThrowsMessage<TraceError>(HasSubstr("the float64 twin lacks forced step 20")));
}

TEST_P(JudgeForced, RoundingStaysWithinTheMeasuredBand) {
  const Mechanism result = judged(nullptr);
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
  EXPECT_FALSE(result.first_divergence.has_value());
  EXPECT_FALSE(result.cause.has_value());
  EXPECT_TRUE(result.band_measured);
  EXPECT_GT(result.band_used, 0.01);
  EXPECT_LT(result.band_used, 1);
  EXPECT_EQ(result.compared_steps, 30);
  ASSERT_EQ(result.forced.size(), 6u);
  EXPECT_EQ(result.forced[3].step, 5);
  ASSERT_EQ(result.forced[0].groups.size(), 5u);
  EXPECT_EQ(result.forced[0].groups[0].group, "context_encoder");
  EXPECT_EQ(result.forced[0].groups[4].group, "all");
  EXPECT_NEAR(group(result, 0, "all").ratio, 1, 1e-6);
  EXPECT_NEAR(group(result, 0, "all").cosine, 1, 1e-6);
  EXPECT_LT(group(result, 0, "all").residual, 1e-6);
  EXPECT_LT(group(result, 0, "all").difference, group(result, 0, "all").band);
  EXPECT_THAT(result.sentence, HasSubstr("Gradients agree within the measured rounding tolerance at 6 forced steps"));
  EXPECT_EQ(support::fact_of(result, "samples"), "same");
}

TEST_P(JudgeForced, AGradientScaledInOneGroupIsNamed) {
  const Mechanism result = judged([](FakeStep& it) {
    if (it.step < 2) return;
    for (float& value : tensor_of(it.reduced_gradients, "action_encoder.weight1")) value *= 1.001F;
  });
  ASSERT_THAT(result, parts_at({.step = 2,
                                .phase = "reduced gradients",
                                .rank = -1,
                                .where = "action_encoder.weight1",
                                .kind = DivergenceKind::band}));
  EXPECT_GT(result.band_used, 1);
  EXPECT_NEAR(group(result, 2, "action_encoder").ratio, 1.001, 1e-6);
  EXPECT_LT(group(result, 2, "action_encoder").residual, 1e-6);
  EXPECT_NEAR(group(result, 2, "head").ratio, 1, 1e-6);
  EXPECT_NEAR(group(result, 0, "action_encoder").ratio, 1, 1e-6);
  EXPECT_EQ(result.forced[2].worst_tensor, "action_encoder.weight1");
}

TEST_P(JudgeForced, SignaturesTellScaleFromDirection) {
  const Mechanism result = judged([](FakeStep& it) {
    for (float& value : tensor_of(it.reduced_gradients, "head.weight")) value *= 8;
    std::vector<float>& turned = tensor_of(it.reduced_gradients, "action_encoder.weight1");
    for (std::size_t i = 0; i < turned.size(); i += 2) turned[i] = 0;
    for (float& value : tensor_of(it.reduced_gradients, "temperature")) value = 0;
  });
  EXPECT_NEAR(group(result, 0, "head").ratio, 8, 1e-4);
  EXPECT_NEAR(group(result, 0, "head").cosine, 1, 1e-6);
  EXPECT_LT(group(result, 0, "head").residual, 1e-5);
  const GradientSignature& half = group(result, 0, "action_encoder");
  EXPECT_LT(half.cosine, 0.9);
  EXPECT_NEAR(half.ratio, half.cosine * half.cosine, 1e-5);
  EXPECT_NEAR(half.residual, std::sqrt(1 - half.cosine * half.cosine), 1e-5);
  EXPECT_EQ(group(result, 0, "temperature").ratio, 0);
  EXPECT_EQ(group(result, 0, "temperature").cosine, 0);
}

TEST_P(JudgeForced, MissingNegativesComeBeforeTheirGradients) {
  const Mechanism result = judged(
      [](FakeStep& it) {
        for (float& value : tensor_of(it.reduced_gradients, "head.weight")) value *= 0.46F;
      },
      nullptr, true);
  ASSERT_TRUE(result.first_divergence.has_value());
  const int own = 24 / GetParam() - 1;
  EXPECT_THAT(result, parts_at({.step = 0,
                                .phase = "energies",
                                .rank = -1,
                                .where = "energies",
                                .kind = DivergenceKind::missing,
                                .expected = "23 negatives a row",
                                .actual = std::to_string(own) + " negatives a row (" + std::to_string(23 - own) +
                                          " missing)"}));
  EXPECT_NEAR(group(result, 0, "head").ratio, 0.46, 1e-5);
}

TEST_P(JudgeForced, OtherColumnsOfAnUnknownTrainerAreNoNegatives) {
  trainer_ = "theirs";
  const auto judged_with = [&](float factor) {
    return judged([factor](FakeStep& it) {
      if (it.rank == 1) it.columns[3] = 1400;
      for (auto* list : {&it.local_gradients, &it.reduced_gradients}) {
        for (float& value : tensor_of(*list, "head.weight")) value *= factor;
      }
    });
  };
  const Mechanism alike = judged_with(1), result = judged_with(1.5F);
  EXPECT_EQ(alike.verdict, VerdictKind::within_envelope) << alike.sentence;
  EXPECT_THAT(alike.sentence, HasSubstr("Not compared, since all ranks reduce the same gradients: at step 0, energies"));
  ASSERT_THAT(result,
              parts_at({.phase = "energies", .expected = "the reference's columns", .actual = "1 other column a row"}));
}

TEST(ScoreSpecs, ColumnsWhoseIdsAreACodeHaveNames) {
  const ScoreSpec& scores = find_trainer_spec("flow_rl")->scores;
  ASSERT_NE(scores.column_name, nullptr);
  EXPECT_EQ(scores.column_name(8'000'000), "advantage");
  EXPECT_EQ(scores.column_name(7'000'300), "divergence from the clone, chunk 3");
  EXPECT_EQ(scores.column_name(6'000'302), "log-probability, chunk 3, transition 2");
  EXPECT_EQ(scores.column_name(99'000'000), "column 99000000");
  EXPECT_EQ(scores.row, "episode");
  EXPECT_EQ(find_trainer_spec("energy")->scores.column_name, nullptr) << "its columns are samples";
}

TEST_P(JudgeForced, WhatIsPlantedAtForcedStepsIsNamedAtItsPlace) {
  const std::string cell = "energies, row " + std::to_string(support::fake_sample(5, 2)) + ", column " +
                           std::to_string(support::fake_sample(5, 4));
  const std::vector<support::PlantedStep> rows = {
      {"other negatives in equal number", [](FakeStep& it) { if (it.rank == 1) it.columns[3] = 1400; },
       {.phase = "energies", .rank = 1, .actual = "1 other negative a row"}},
      {"an energy, by row and column", [](FakeStep& it) { if (it.step == 5 && it.rank == 2) it.energies[4] += 1e-3F; },
       {.step = 5, .phase = "energies", .rank = 2, .where = cell}},
      {"a loss", [](FakeStep& it) { it.loss *= it.rank == 0 ? 1.01 : 1; }, {.phase = "loss", .kind = DivergenceKind::band}},
      {"a norm alone", [](FakeStep& it) { it.gradient_norm *= 1.01; }, {.phase = "gradient norm"}},
      {"no number", [](FakeStep& it) { if (it.step == 10) tensor_of(it.reduced_gradients, "head.weight")[1] = std::nanf(""); },
       {.step = 10, .where = "head.weight"}},
      {"a gradient too few", [](FakeStep& it) { it.reduced_gradients.pop_back(); },
       {.where = "temperature", .kind = DivergenceKind::missing, .actual = "nothing"}},
  };
  write_reference();
  for (const support::PlantedStep& row : rows) {
    SCOPED_TRACE(row.what);
    write_cell(row.fault);
    const Mechanism result = judge_forced(inputs_);
    EXPECT_THAT(result, parts_at(row.parting));
    EXPECT_EQ(std::isinf(result.band_used), row.what == std::string("no number"));
  }
}

TEST_P(JudgeForced, WhatIsPlantedBetweenForcedStepsIsNamedAtItsPlace) {
  const std::vector<support::PlantedStep> rows = {
      {"a stream", [](FakeStep& it) { it.streams[0].second += it.step == 13 && it.rank == 1 ? 1 : 0; },
       {.step = 13, .where = "context noise"}},
      {"no number after the last forced step",
       [](FakeStep& it) {
         if (it.step == 25 && it.rank == 2) tensor_of(it.local_gradients, "head.weight")[1] = std::nanf("");
         for (auto* list : {&it.reduced_gradients, &it.parameters})
           if (it.step >= 25) tensor_of(*list, "head.weight")[1] = std::nanf("");
         if (it.step > 25) it.loss = std::nan("");
       },
       {.step = 25, .phase = "local gradients", .rank = 2, .where = "head.weight", .cause = "non-finite"}},
  };
  write_reference();
  for (const support::PlantedStep& row : rows) {
    SCOPED_TRACE(row.what);
    write_cell(nullptr, row.fault);
    EXPECT_THAT(judge_forced(inputs_), parts_at(row.parting));
  }
}

TEST_P(JudgeForced, TheEarliestOfFreeAndForcedWins) {
  write_reference();
  for (const auto& [from, step, phase] : {std::tuple(3, 3, "control"), {5, 5, "control"}, {6, 5, "reduced gradients"}}) {
    write_cell([](FakeStep& it) { support::scale(it.reduced_gradients, "head.weight", it.step < 5 ? 1 : 2); },
               [from = from](FakeStep& it) { it.controls[0].second = it.step >= from ? 2e-3 : it.controls[0].second; });
    EXPECT_THAT(judge_forced(inputs_), parts_at({.step = step, .phase = phase})) << from;
  }
}

TEST_P(JudgeForced, WithoutRepeatsTheBoundIsNotCalledMeasured) {
  write_reference(1, 0);
  write_cell(nullptr);
  const Mechanism result = judge_forced(inputs_);
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
  EXPECT_FALSE(result.band_measured);
  EXPECT_THAT(result.sentence, HasSubstr("estimated rounding tolerance (not measured)"));
}

TEST_P(JudgeForced, ComparesForcedRunsAloneForCompareRuns) {
  write_reference();
  write_cell([](FakeStep& it) {
    if (it.step == 20) it.samples[0] = 1403;
  });
  const Mechanism result =
      compare_runs({inputs_.forced_reference, inputs_.forced_cell, inputs_.repeats, inputs_.band});
  ASSERT_THAT(result, parts_at({.step = 20, .phase = "samples"}));
}

TEST_P(JudgeForced, OtherInitialParametersAreNamedBesideForcedStepsToo) {
  write_reference();
  write_cell(nullptr);
  for (const bool wrong : {false, true}) {
    FakeRun a = free(1, 1), b = free(GetParam(), 1);
    for (FakeRun* run : {&a, &b}) run->steps.insert(run->steps.begin(), -1), run->noise = 0;
    b.fault = [wrong](FakeStep& it) {
      if (wrong && it.step < 0) it.parameters[1].second[0] += 0.25F;
    };
    support::write_fake_run(inputs_.run_a, a);
    support::write_fake_run(inputs_.run_b, b);
    const Mechanism result = judge_forced(inputs_);
    EXPECT_EQ(result.verdict, wrong ? VerdictKind::divergent : VerdictKind::within_envelope) << result.sentence;
    if (!wrong) continue;
    EXPECT_THAT(result, parts_at({.step = -1, .phase = "parameters"}));
  }
}

TEST_P(JudgeForced, TheHistoryOfRatesNamesAScheduleBesideForcedStepsToo) {
  const auto rate_at = [](int64_t step) { return 1e-3 / (1 + 0.1 * static_cast<double>(step)); };
  write_reference();
  write_cell(nullptr);
  FakeRun a = free(1, 1), b = free(GetParam(), 1);
  a.trainer = b.trainer = "theirs";
  // As short as three rates show it.
  a.steps = b.steps = support::steps_up_to(3 * GetParam() + 1);
  a.fault = [&](FakeStep& it) { it.controls = {{"learning_rate", rate_at(it.step)}}; };
  b.fault = [&](FakeStep& it) { it.controls = {{"learning_rate", rate_at(it.step * it.world_size)}}; };
  support::write_fake_run(inputs_.run_a, a);
  support::write_fake_run(inputs_.run_b, b);
  const Mechanism result = judge_forced(inputs_);
  ASSERT_THAT(result, parts_at({.step = 1, .cause = "scheduler-stepped-per-rank"}));
}

TEST_P(JudgeForced, AtOneLayoutEqualBitsAreIdentical) {
  const Mechanism result = judged_at_one_layout(1);
  EXPECT_EQ(result.verdict, VerdictKind::identical) << result.sentence;
  EXPECT_EQ(result.band_used, 0);
}

TEST_P(JudgeForced, HalfAFreeRunIsInconclusiveUnlessOnlyThatIsAskedFor) {
  write_reference();
  write_cell(nullptr);
  FakeRun half = free(GetParam(), 2);
  half.steps = support::steps_up_to(12);
  support::write_fake_run(inputs_.run_b, half);
  const Mechanism result = judge_forced(inputs_);
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive) << result.sentence;
  EXPECT_THAT(result.sentence, HasSubstr("cell ends after step 11, and "));
  inputs_.steps = 12;
  EXPECT_EQ(judge_forced(inputs_).verdict, VerdictKind::within_envelope);
  EXPECT_EQ(judge_forced(inputs_).forced.size(), 6u);
  inputs_.forced_steps = 12;
  EXPECT_EQ(judge_forced(inputs_).forced.size(), 5u);
}

TEST_P(JudgeForced, FewerForcedStepsThanTheReferencesAreInconclusive) {
  write_reference();
  write_cell(nullptr);
  FakeRun fewer = forced(GetParam(), 2);
  fewer.steps.resize(4);
  support::write_fake_run(inputs_.forced_cell, fewer);
  const Mechanism result = judge_forced(inputs_);
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive) << result.sentence;
  EXPECT_THAT(result.sentence, HasSubstr("forced-cell has no forced step 10, which "));
}

TEST_P(JudgeForced, SaysWhatItComparedAndThatEvaluationWasNotJudged) {
  write_reference();
  FakeRun reference = free(1, 1);
  reference.fault = [](FakeStep& it) {
    if (it.step == 9) it.evaluations = {{"accuracy", 0.5}};
  };
  support::write_fake_run(inputs_.run_a, reference);
  write_cell(nullptr, [](FakeStep& it) {
    if (it.step == 9 && it.rank == 0) it.evaluations = {{"accuracy", 0.25}};
  });
  const Mechanism result = judge_forced(inputs_);
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
  for (const char* name : {"energies", "loss", "reduced gradients", "gradient norm"}) EXPECT_EQ(support::fact_of(result, name), "same: 6 forced steps");
  for (const char* name : {"samples", "random streams", "control values", "collectives", "replicas"}) EXPECT_EQ(support::fact_of(result, name), "same");
  EXPECT_THAT(support::fact_of(result, "evaluation"), AllOf(HasSubstr("not compared: not judged at 1 step"), HasSubstr("accuracy 0.5 → 0.25 at step 9")));
}

TEST_P(JudgeForced, AtOneLayoutRowsInAnotherOrderAreNoFinding) {
  const Mechanism result = judged_at_one_layout(2, nullptr, [](FakeStep& it) { std::ranges::reverse(it.samples); });
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
  EXPECT_THAT(result.sentence, HasSubstr("From step 0 on ranks or micro-steps hold the rows in another order"));
}

TEST_P(JudgeForced, AtOneLayoutRoundingIsWithinTheBandAndSaidSo) {
  const Mechanism result = judged_at_one_layout(2);
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
  EXPECT_THAT(result.sentence, HasSubstr("The free runs' bits first differ at step 0, energies"));
}

TEST_P(JudgeForced, AtOneLayoutTheRankWhoseLocalGradientDiffersIsNamed) {
  const Fault fault = [](FakeStep& it) {
    if (it.step < 2) return;
    if (it.rank == 1) tensor_of(it.local_gradients, "head.weight")[0] += 0.5F;
    tensor_of(it.reduced_gradients, "head.weight")[0] += 0.1F;
  };
  ASSERT_THAT(judged_at_one_layout(1, fault, fault),
              parts_at({.step = 2, .phase = "local gradients", .rank = 1, .where = "head.weight"}));
}

TEST_P(JudgeForced, AtOneLayoutAFaultBetweenForcedStepsIsNamed) {
  const Mechanism result = judged_at_one_layout(1, nullptr, [](FakeStep& it) {
    if (it.step == 17 && it.rank == 1) tensor_of(it.local_gradients, "head.weight")[0] += 0.5F;
  });
  EXPECT_THAT(result, parts_at({.step = 17, .rank = 1}));
}

/// The lowest bit of one number of rank 1, from that step on.
Fault turned_bit(int64_t from) {
  return [from](FakeStep& it) {
    float& value = tensor_of(it.local_gradients, "head.weight")[0];
    if (it.step >= from && it.rank == 1) value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1u);
  };
}

/// Two runs of one layout and one config: their bits are promised to be equal.
class JudgeOneConfig : public JudgeForced {
 protected:
  Mechanism judged_beside(const Fault& in_forced, const Fault& in_free) {
    inputs_.reference_config = &reference_;
    inputs_.cell_config = &cell_;
    return judged_at_one_layout(1, in_forced, in_free);
  }
  void expect_at(const Mechanism& result, int64_t step, int rank) const {
    ASSERT_THAT(result, parts_at({.step = step, .phase = "local gradients", .rank = rank, .where = "head.weight"}));
  }
  RunConfig reference_, cell_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, JudgeOneConfig, ::testing::Values(3, 8));

TEST_P(JudgeOneConfig, EqualBitsAreIdentical) {
  EXPECT_EQ(judged_beside(nullptr, nullptr).verdict, VerdictKind::identical);
}

TEST_P(JudgeOneConfig, ABitIsAFindingBetweenForcedStepsAndAtOneThoughItLiesWithinTheBand) {
  expect_at(judged_beside(nullptr, turned_bit(17)), 17, 1);
  expect_at(judged_beside(turned_bit(5), turned_bit(5)), 5, 1);
  expect_at(judged_beside(turned_bit(5), nullptr), 5, 1);
}

TEST_P(JudgeOneConfig, TurnedSignsThatLeaveEveryNormAsItWasAreAFinding) {
  const Mechanism result = judged_beside(nullptr, [](FakeStep& it) {
    if (it.step < 17 || it.rank != 1) return;
    for (float& value : tensor_of(it.local_gradients, "head.weight")) value = -value;
  });
  expect_at(result, 17, 1);
}

TEST_P(JudgeOneConfig, SignsOfZerosAloneAreNone) {
  const auto zeroed = [](float zero) {
    return [zero](FakeStep& it) {
      if (it.step >= 17 && it.rank == 1) tensor_of(it.local_gradients, "head.weight")[0] = zero;
    };
  };
  write_reference(GetParam());
  FakeRun run = free(GetParam(), 1);
  run.level = TraceLevel::full;
  run.fault = zeroed(0.0F);
  support::write_fake_run(inputs_.run_a, run);
  write_cell(nullptr, nullptr, false, GetParam(), 1);
  run.fault = zeroed(-0.0F);
  support::write_fake_run(inputs_.run_b, run);
  inputs_.reference_config = &reference_;
  inputs_.cell_config = &cell_;
  const Mechanism result = judge_forced(inputs_);
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
  EXPECT_THAT(result.sentence, HasSubstr("first differ at step 17, local gradients, head.weight, in signs of zeros only"));
}

TEST_P(JudgeOneConfig, WhereNoEqualBitsArePromisedHashesTellNoSize) {
  cell_.bucket_cap_bytes = 100;
  Mechanism result = judged_beside(nullptr, turned_bit(17));
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
  EXPECT_THAT(result.sentence, HasSubstr("head.weight, by an unknown amount: only hashes were recorded"));
  cell_ = reference_;
  inputs_.one_build = false;
  result = judged_beside(nullptr, turned_bit(17));
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
}

TEST_P(JudgeForced, RefusesWhatIsNoForcedTrace) {
  write_reference();
  write_cell(nullptr);
  inputs_.forced_cell = inputs_.run_b;
  EXPECT_THROW(judge_forced(inputs_), TraceError);
  inputs_.forced_cell = folder_ / "none";
  EXPECT_THROW(judge_forced(inputs_), TraceError);
}

TEST_P(JudgeForced, ARepeatThatEndsEarlyIsRefused) {
  write_reference();
  write_cell(nullptr);
  FakeRun shorter = forced(1, 100);
  shorter.steps = {0, 1};
  support::write_fake_run(inputs_.repeats[2], shorter);
  EXPECT_THROW(judge_forced(inputs_), TraceError);
}

// A parameter that an update left as it was: a finding where nobody can say what its update should have been, none where its own
// gradient gives none.

constexpr double kReferenceGradient = 2e-5;

ForcedValues moved_by(double gradient, double after) {
  ForcedValues values;
  values.gradients = {{"head.bias", {1}, {gradient}}};
  values.parameters = {{"head.bias", {1}, {after}}};
  values.learning_rate = 1;
  return values;
}

/// The reference's parameter moves by its gradient, the cell's keeps 0.1 with a gradient of its own.
std::optional<Difference> judged(double cell_gradient, double momentum) {
  static const std::vector<ForcedValues> kNoRepeats;
  static const std::string kNowhere;
  const std::optional<StepOfRun> none;
  StepOfRun one;
  one.ranks.resize(1);
  TrainingFacts facts;
  facts.update.emplace().momentum = momentum;
  const EqualStep step{one, kNowhere, one, kNowhere, none, kNoRepeats};
  const StepRules rules{nullptr, {}, {}, facts, facts};
  ForcedContext context{step, rules};
  const auto state = std::make_shared<const Snapshot>(Snapshot{{{"head.bias", {1}, {0.1}}}, 3.0});
  context.evidence.state = context.evidence.reference_state = state;
  context.evidence.reference = moved_by(kReferenceGradient, 0.1 - kReferenceGradient);
  context.evidence.cell = moved_by(cell_gradient, 0.1);
  return judge_parameters(context);
}

TEST(JudgeParameters, AGradientOfRoundingAloneMayLeaveAParameterAsItWas) { EXPECT_FALSE(judged(1e-10, 0)); }

TEST(JudgeParameters, AnUpdateThatTheOwnGradientOrWithoutAnyStateTheReferencesAsksForIsMissed) {
  for (const double momentum : {0.0, 0.9}) {
    const auto found = judged(kReferenceGradient, momentum);
    ASSERT_TRUE(found) << momentum;
    EXPECT_EQ(found->divergence.where, "head.bias");
    EXPECT_EQ(found->divergence.kind, DivergenceKind::update);
  }
}

TEST(Distance, TwoThatAreNoNumbersAreAlike) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(distance(nan, -nan), 0);
  EXPECT_EQ(distance(infinite, infinite), 0);
  EXPECT_EQ(distance(infinite, -infinite), infinite);
  EXPECT_EQ(distance(nan, 1.0), infinite);
}

// A gradient as a weighted sum of others.

TEST(Weights, FindsTheWeightsOfASumAndWhatNoneExplain) {
  const std::vector<double> a = {1, 2, 3, 4}, b = {2, -1, 0, 5}, c = {0, 1, 0, 0}, sum = {5, 0, 3, 14};  // a + 2 b
  const Weights exact = weigh({{&sum, {&a, &b}}}, 1e-16);
  ASSERT_TRUE(exact.all_known());
  EXPECT_NEAR(exact.of[0], 1, 1e-12);
  EXPECT_NEAR(exact.of[1], 2, 1e-12);
  EXPECT_LT(exact.residual, 1e-14);
  EXPECT_GT(weigh({{&sum, {&a, &c}}}, 1e-16).residual, 0.1);
}

TEST(Weights, SharesTheWeightOfEqualPartsAndLeavesOpenWhatIsOpen) {
  const std::vector<double> a = {1, 2, 3, 4}, twice = {2, 4, 6, 8}, b = {2, -1, 0, 5}, sum = {3, 1, 3, 9};  // a + b
  const Weights shared = weigh({{&sum, {&a, &b, &a}}}, 1e-16);
  EXPECT_NEAR(shared.of[0], 0.5, 1e-12);
  EXPECT_NEAR(shared.of[2], 0.5, 1e-12);
  const Weights open = weigh({{&sum, {&a, &b, &twice}}}, 1e-16);
  EXPECT_FALSE(open.all_known());
  EXPECT_NEAR(open.of[1], 1, 1e-12);
  EXPECT_LT(open.residual, 1e-14);
  EXPECT_TRUE(weigh({}, 1e-16).of.empty());
}

TEST(Weights, TakesManyRowsInBlocksAndAPartThatLacksATensorAsZeros) {
  std::vector<double> a(2000), b(2000), sum(2000), alone = {1, 2}, both = {3, 6};
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] = std::sin(1.0 + i), b[i] = std::cos(0.5 * i), sum[i] = 3 * a[i] - 0.25 * b[i];
  const Weights found = weigh({{&sum, {&a, &b}}, {&both, {&alone, nullptr}}}, 1e-16);
  EXPECT_NEAR(found.of[0], 3, 1e-12);
  EXPECT_NEAR(found.of[1], -0.25, 1e-12);
}

}  // namespace
}  // namespace lockstep
