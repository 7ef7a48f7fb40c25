#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "harness/answer/questions/question_judge.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/compare/forced/update.h"
#include "harness/judge/compare/forced/values.h"
#include "tests/support/made_run.h"
#include "tests/support/temp_folder.h"

// One process against V ranks, from free traces alone.

namespace lockstep {
namespace {

using support::FakeRun;
using support::FakeStep;
using support::parts_at;
using support::tensor_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CompareLayouts : public ::testing::TestWithParam<int> {
 protected:
  FakeRun clean(int world_size, uint64_t noise_seed) const {
    FakeRun run;
    run.world_size = world_size;
    run.steps = support::steps_up_to(120);
    run.noise = 3e-7;
    run.noise_seed = noise_seed;
    return run;
  }
  Mechanism compare(const FakeRun& a, const FakeRun& b, const RunConfig* config = nullptr) {
    support::write_fake_run(folder_ / "a", a);
    support::write_fake_run(folder_ / "b", b);
    return compare_runs({folder_ / "a", folder_ / "b", {}, {}, config, config});
  }
  Mechanism with(std::function<void(FakeStep&)> fault, bool local_negatives = false) {
    FakeRun cell = clean(GetParam(), 2);
    cell.fault = std::move(fault);
    cell.local_negatives = local_negatives;
    return compare(clean(1, 1), cell);
  }
  TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, CompareLayouts, ::testing::Values(3, 8));

TEST_P(CompareLayouts, WhatTrainingMakesOfRoundingIsJudgedByNobody) {
  const Mechanism result = with(nullptr);
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive) << result.sentence;
  EXPECT_FALSE(result.first_divergence.has_value());
  EXPECT_FALSE(result.cause.has_value());
  EXPECT_FALSE(result.band_measured);
  EXPECT_GT(result.band_used, 0);
  EXPECT_LT(result.band_used, 0.5);
  EXPECT_EQ(result.compared_steps, 120);
  EXPECT_THAT(result.sentence,
              AllOf(HasSubstr("Step 0, which both begin with the same"),
                    HasSubstr("the traces do not show it"), HasSubstr("estimated, not measured"),
                    HasSubstr("a mistake in them would not be seen"), HasSubstr("losses by up to")));
  EXPECT_EQ(support::fact_of(result, "samples"), "same");
  EXPECT_EQ(support::fact_of(result, "loss"), "same: 1 of 120 steps");
  EXPECT_THAT(result.decide, HasSubstr("forced_steps"));
}

TEST_P(CompareLayouts, StepsFromEqualParametersAreAllJudged) {
  const auto one = clean(1, 1);
  for (const bool wrong : {false, true}) {
    FakeRun a = one, b = clean(GetParam(), 1);
    a.noise = b.noise = 0;
    b.fault = [wrong](FakeStep& it) {
      if (wrong && it.step == 90) it.loss *= 1.01;
    };
    const Mechanism result = compare(a, b);
    EXPECT_EQ(result.verdict, wrong ? VerdictKind::divergent : VerdictKind::inconclusive) << result.sentence;
    if (wrong) {
      EXPECT_EQ(result.first_divergence->step, 90);
    } else {
      EXPECT_THAT(result.sentence, HasSubstr("120 steps up to step 119"));
    }
  }
}

TEST_P(CompareLayouts, MistakesAmongUnequalParametersArePassedByNobodyAsFine) {
  const Mechanism loss = with([](FakeStep& it) {
    if (it.step >= 100) it.loss *= 1.01;
  });
  EXPECT_EQ(loss.verdict, VerdictKind::inconclusive) << loss.sentence;
  EXPECT_THAT(loss.sentence, HasSubstr("losses by up to 1 %"));
  const Mechanism signs = with([](FakeStep& it) {
    if (it.step < 100) return;
    for (auto& [name, values] : it.reduced_gradients) {
      for (float& value : values) value = -value;
    }
  });
  EXPECT_EQ(signs.verdict, VerdictKind::inconclusive) << signs.sentence;
}

TEST_P(CompareLayouts, WhatIsPlantedIsNamedAtItsPlace) {
  const std::string own_sample = "sample " + std::to_string(support::fake_sample(110, 2 + GetParam()));
  const std::vector<support::PlantedStep> rows = {
      {"turned signs, which change no norm", [](FakeStep& it) { support::scale(it.reduced_gradients, "", -1); },
       {.phase = "reduced gradients"}},
      {"another sample, at any step", [](FakeStep& it) { if (it.step == 110 && it.rank == 2) it.samples[1] = 1403; },
       {.step = 110, .phase = "samples", .rank = 2, .expected = own_sample, .actual = "sample 1403"}},
      {"one stream for all ranks", [](FakeStep& it) { it.streams[1].second = static_cast<uint64_t>(it.step) * 77; },
       {.step = 0, .phase = "random", .where = "dropout in head"}, "ranks drew the same numbers"},
      {"a rate beyond the bounded steps", [](FakeStep& it) { if (it.step >= 100) it.controls[0].second *= 8; },
       {.step = 100, .phase = "control", .rank = -1, .actual = "0.008"}},
      {"a control value of one rank", [](FakeStep& it) { it.controls[1].second += it.rank == 2 ? 1 : 0; },
       {.rank = 2, .where = "step"}},
      {"a scaled gradient", [](FakeStep& it) { support::scale(it.reduced_gradients, "action_encoder.weight1", 1.001F); },
       {.step = 0, .phase = "reduced gradients", .kind = DivergenceKind::band}, "action_encoder.weight1"},
      {"an exact phase behind an undecided one",
       [](FakeStep& it) {
         it.loss *= it.step >= 3 ? 2 : 1;
         if (it.step == 50 && it.rank == 1) it.samples[0] = 1403;
       },
       {.step = 50, .phase = "samples"}},
      {"no number", [](FakeStep& it) { it.loss = it.step == 5 ? std::nan("") : it.loss; }, {.step = 5, .phase = "loss"}},
      {"a loss, whose mean over ranks shows no rank", [](FakeStep& it) { it.loss *= it.rank == 1 ? 1.01 : 1; },
       {.phase = "loss", .rank = kRankUnknown}},
  };
  for (const support::PlantedStep& row : rows) {
    SCOPED_TRACE(row.what);
    const Mechanism result = with(row.fault);
    EXPECT_THAT(result, parts_at(row.parting));
    EXPECT_THAT(result.sentence, HasSubstr(row.says));
  }
}

TEST_P(CompareLayouts, ValuesThatBothKeptAreComparedAsValues) {
  // Two elements change places: norm, smallest and largest stay as they are.
  const auto exchanged = [](FakeStep& it) {
    std::vector<float>& values = tensor_of(it.reduced_gradients, "context_encoder.weight1");
    std::swap(values[3], values[4]);
  };
  for (const bool whole : {false, true}) {
    FakeRun a = clean(1, 1), b = clean(GetParam(), 2);
    a.forced = b.forced = whole;
    b.fault = exchanged;
    const Mechanism result = compare(a, b);
    EXPECT_EQ(result.verdict, whole ? VerdictKind::divergent : VerdictKind::inconclusive) << result.sentence;
    if (!whole) continue;
    EXPECT_THAT(result, parts_at({.step = 0, .where = "context_encoder.weight1"}));
  }
}

TEST_P(CompareLayouts, TheOptimizersStateIsComparedAsValues) {
  // Adam's moments after its first update, from each run's own gradients.
  const auto moments = [](double beta2, float updates) {
    return [=](FakeStep& it) {
      std::vector<float> first, second;
      for (const float gradient : tensor_of(it.reduced_gradients, "head.weight")) {
        first.push_back(0.1F * gradient);
        second.push_back(static_cast<float>((1 - beta2) * gradient * gradient));
      }
      it.optimizer_state = {{"first_moment/head.weight", first}, {"second_moment/head.weight", second}, {"updates", {updates}}};
    };
  };
  const auto compared = [&](double beta2, float updates) {
    FakeRun a = clean(1, 1), b = clean(GetParam(), 2);
    a.forced = b.forced = true;
    a.steps = b.steps = {0};
    a.fault = moments(0.999, 1);
    b.fault = moments(beta2, updates);
    return compare(a, b);
  };
  EXPECT_EQ(compared(0.999, 1).verdict, VerdictKind::inconclusive) << compared(0.999, 1).sentence;
  EXPECT_THAT(compared(0.9, 1), parts_at({.step = 0, .phase = "optimizer state", .where = "second_moment/head.weight"}));
  EXPECT_THAT(compared(0.999, 2), parts_at({.step = 0, .phase = "optimizer state", .where = "updates"}));
}

TEST_P(CompareLayouts, AWrappedModelHasTheSameNames) {
  FakeRun a = clean(1, 1), b = clean(GetParam(), 2);
  const auto compared = [&](const std::function<std::string(const std::string&)>& rename) {
    b.fault = [&rename](FakeStep& it) {
      for (auto* list : {&it.local_gradients, &it.reduced_gradients, &it.parameters}) {
        for (auto& [name, values] : *list) name = rename(name);
      }
    };
    return compare(a, b);
  };
  const Mechanism wrapped = compared([](const std::string& name) { return "module._orig_mod." + name; });
  EXPECT_EQ(wrapped.verdict, VerdictKind::inconclusive) << wrapped.sentence;
  const Mechanism part = compared([](const std::string& name) {
    return name == "temperature" ? "module." + name : name;
  });
  EXPECT_THAT(part, parts_at({.kind = DivergenceKind::missing}));
}

TEST_P(CompareLayouts, OtherInitialParametersAreNamed) {
  FakeRun a = clean(1, 1), b = clean(GetParam(), 2);
  a.steps.insert(a.steps.begin(), -1);
  b.steps.insert(b.steps.begin(), -1);
  a.noise = b.noise = 0;
  EXPECT_THAT(compare(a, b).sentence, ::testing::Not(HasSubstr("the traces do not show it")));
  b.fault = [](FakeStep& it) {
    if (it.step < 0) tensor_of(it.parameters, "head.weight")[0] += 0.25F;
  };
  const Mechanism result = compare(a, b);
  EXPECT_THAT(result, parts_at({.step = -1, .where = "head.weight"}));
}

TEST_P(CompareLayouts, RowsOnOtherRanksAreTheSameBatch) {
  FakeRun cell = clean(GetParam(), 2);
  cell.fault = [&](FakeStep& it) { std::ranges::reverse(it.samples); };
  const Mechanism result = compare(clean(1, 1), cell);
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive);
  EXPECT_FALSE(result.first_divergence.has_value()) << result.sentence;
}

TEST_P(CompareLayouts, AReplayMustDrawWhatWasDrawnFirst) {
  const auto replay = [](uint64_t more) {
    return [more](FakeStep& it) {
      it.streams.emplace_back(it.streams[1].first + " replay",
                              it.streams[1].second + (it.step == 4 ? more : 0));
    };
  };
  EXPECT_EQ(with(replay(0)).verdict, VerdictKind::inconclusive);
  const Mechanism result = with(replay(1));
  ASSERT_THAT(result, parts_at({.step = 4, .phase = "random", .where = "dropout in head replay"}));
}

TEST_P(CompareLayouts, MissingNegativesAreCounted) {
  const Mechanism result = with(nullptr, true);
  ASSERT_TRUE(result.first_divergence.has_value());
  const int own = 24 / GetParam() - 1;
  EXPECT_THAT(result, parts_at({.step = 0,
                                .phase = "energies",
                                .kind = DivergenceKind::missing,
                                .expected = "23 negatives a row",
                                .actual = std::to_string(own) + " negatives a row (" + std::to_string(23 - own) +
                                          " missing)"}));
  EXPECT_THAT(result.sentence, HasSubstr(std::to_string(own) + " negatives of 23"));
  ASSERT_THAT(result, parts_at({.cause = "local-negatives"}));
  EXPECT_EQ(result.cause->evidence,
            "a row of rank 0 has " + std::to_string(own) + " negatives instead of 23: of the batch those of its own rank alone");
}

TEST_P(CompareLayouts, ColumnsOfAnUnknownTrainerAreNobodysNegatives) {
  FakeRun reference = clean(1, 1), cell = clean(GetParam(), 2);
  reference.trainer = cell.trainer = "theirs";
  cell.local_negatives = true;
  const Mechanism result = compare(reference, cell);
  ASSERT_TRUE(result.first_divergence.has_value());
  const int own = 24 / GetParam();
  EXPECT_THAT(result,
              parts_at({.expected = "24 columns a row",
                        .actual = std::to_string(own) + " columns a row (" + std::to_string(24 - own) + " missing)"}));
  EXPECT_THAT(result.sentence, HasSubstr(std::to_string(own) + " columns of 24 a row"));
  ASSERT_THAT(result, parts_at({.cause = "unexplained"}));
}

TEST_P(CompareLayouts, Bfloat16HasNoBoundThatSaysAnything) {
  RunConfig config;
  config.precision = Precision::bfloat16;
  const Mechanism result = compare(clean(1, 1), clean(GetParam(), 2), &config);
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive) << result.sentence;
  EXPECT_THAT(result.sentence, HasSubstr("no useful bound"));
}

TEST_P(CompareLayouts, EvaluationsOfEqualParametersMustAgree) {
  const auto compared = [&](double noise, double value, bool of_parts) {
    FakeRun a = clean(1, 1), b = clean(GetParam(), 2);
    a.steps = b.steps = support::steps_up_to(5);
    a.noise = b.noise = noise;
    a.fault = [](FakeStep& it) {
      if (it.step == 2) it.evaluations = {{"accuracy", 0.5}};
    };
    b.fault = [=](FakeStep& it) {
      if (it.step == 2 && (it.rank == 0 || of_parts)) it.evaluations = {{"accuracy", value + 0.01 * it.rank}};
    };
    return compare(a, b);
  };
  const Mechanism wrong = compared(0, 0.9, false);
  EXPECT_THAT(wrong, parts_at({.step = 2, .phase = "evaluation", .where = "accuracy"}));
  const Mechanism right = compared(0, 0.5 * (1 + 1e-7), false);
  EXPECT_EQ(right.verdict, VerdictKind::inconclusive) << right.sentence;
  EXPECT_EQ(support::fact_of(right, "evaluation"), "same: agrees at 1 step with bit-equal parameters");
  // Nobody knows what training has made of rounding, or which part of the data a rank has looked at.
  for (const double value : {0.9, 0.49}) {
    const Mechanism open = compared(value == 0.9 ? 3e-7 : 0, value, value != 0.9);
    EXPECT_EQ(open.verdict, VerdictKind::inconclusive) << open.sentence;
    EXPECT_THAT(support::fact_of(open, "evaluation"),
                AllOf(HasSubstr("not judged at 1 step"), HasSubstr(fmt::format("accuracy 0.5 → {} at step 2", value))));
  }
  // No weighted mean of the ranks' is the reference's.
  EXPECT_EQ(compared(0, 0.9, true).cause->code, "local-statistics");
}

TEST_P(CompareLayouts, AnEvaluationOfOneRunAloneIsSaid) {
  const Mechanism result = with([](FakeStep& it) {
    if (it.step == 100 && it.rank == 0) it.evaluations = {{"accuracy", 0.5}};
  });
  EXPECT_EQ(support::fact_of(result, "evaluation"), "not compared: only the run recorded it at 1 step");
  EXPECT_EQ(support::fact_of(with(nullptr), "evaluation"), "");
}

TEST_P(CompareLayouts, AReplicaThatPartsIsNamedWhereMostRanksLieByTheReference) {
  const int last = GetParam() - 1;
  for (const bool most : {false, true}) {
    // Two thirds of the ranks or more hold a value that the reference does not have.
    const Mechanism result = with([&](FakeStep& it) {
      if (it.step >= 5 && (it.rank == last) != most) tensor_of(it.parameters, "head.weight")[7] += 1;
    });
    ASSERT_THAT(result, parts_at({.step = 5,
                                  .rank = most ? kRankUnknown : last,
                                  .kind = DivergenceKind::replica,
                                  .cause = most ? "replicas-drift" : "replica-corrupted"}));
  }
}

TEST_P(CompareLayouts, AnotherShapeThanTheReferencesIsWrongHoweverManyRanksHaveIt) {
  FakeRun a = clean(1, 1), b = clean(GetParam(), 2);
  a.steps = b.steps = support::steps_up_to(2);
  a.level = b.level = TraceLevel::full;
  a.forced = b.forced = true;
  b.fault = [](FakeStep& it) {
    if (it.rank != 1) tensor_of(it.local_gradients, "head.weight").pop_back();
  };
  const Mechanism result = compare(a, b);
  ASSERT_THAT(
      result,
      parts_at({.phase = "local gradients", .rank = 0, .kind = DivergenceKind::shape, .actual = "float32 [19]"}));
}

TEST_P(CompareLayouts, AResumedRunSaysWhichStepsHaveNoPartner) {
  FakeRun b = clean(GetParam(), 2);
  b.steps.erase(b.steps.begin(), b.steps.begin() + 40);
  const Mechanism result = compare(clean(1, 1), b);
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive) << result.sentence;
  EXPECT_THAT(result.sentence, HasSubstr("Not compared: steps 0 to 39 have no partner"));
}

// Updates of matrices of which ranks hold parts: parts that stand still, and optimizers of whole matrices that work on each part.

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Values = std::vector<double>;
using Shape = std::vector<int64_t>;

Record part(Phase phase, const Shape& shape, const Shape& whole, const Shape& offset, uint64_t hash, double norm = 1) {
  Record record;
  record.phase = phase;
  record.name = "w";
  record.shape = shape;
  record.has_stats = true;
  record.stats.hash = hash;
  record.stats.norm = norm;
  record.placement = std::make_shared<const Placement>(Placement{true, whole, offset});
  return record;
}

/// Two ranks with a row each, whose parameters have these hashes and gradients these norms, at step 4.
StepOfRun rows_of(const std::vector<uint64_t>& hashes, const std::vector<double>& norms, const Shape& shape = {1, 3}) {
  StepOfRun step;
  step.step = 4;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank) {
    const Shape offset{static_cast<int64_t>(rank), 0};
    step.ranks.push_back({});
    step.parts.push_back({part(Phase::parameters, shape, {2, 3}, offset, hashes[rank]), part(Phase::reduced_gradients, shape, {2, 3}, offset, 5, norms[rank])});
  }
  return step;
}

/// The same a step earlier.
StepOfRun step_before() {
  StepOfRun step = rows_of({10, 20}, {1, 1});
  step.step = 3;
  return step;
}

TEST(ShardStoodStill, IsAPartThatKeptItsBitsThoughItsGradientIsNotZeroAndOthersMoved) {
  const StepOfRun before = step_before(), now = rows_of({11, 20}, {1, 1});
  EXPECT_TRUE(shard_stood_still(now, {.step = &before}, 1, "w"));
  EXPECT_FALSE(shard_stood_still(now, {.step = &before}, 0, "w")) << "it moved";
  EXPECT_FALSE(shard_stood_still(now, {.step = &before}, 1, "v")) << "there is no such tensor";
  EXPECT_FALSE(shard_stood_still(now, {.step = &before}, 7, "w")) << "nor such a rank";
}

TEST(ShardStoodStill, IsNoneWhereNothingShouldHaveMoved) {
  const StepOfRun before = step_before();
  EXPECT_FALSE(shard_stood_still(rows_of({11, 20}, {1, 0}), {.step = &before}, 1, "w")) << "its gradient is 0";
  EXPECT_FALSE(shard_stood_still(rows_of({10, 20}, {1, 1}), {.step = &before}, 1, "w")) << "no part moved: the update was left out";
  EXPECT_FALSE(shard_stood_still(rows_of({11, 20}, {1, 1}, {0, 3}), {.step = &before}, 1, "w")) << "a part without elements";
  StepOfRun elsewhere = rows_of({11, 20}, {1, 1});
  elsewhere.parts[1][0] = part(Phase::parameters, {1, 3}, {2, 3}, {0, 0}, 20);
  EXPECT_FALSE(shard_stood_still(elsewhere, {.step = &before}, 1, "w")) << "another place than before";
}

/// A gradient that is nearly 0 may move nothing: the reference shows whether it should have.
TEST(ShardStoodStill, MustHaveMovedInTheReferenceByMoreThanRounding) {
  const StepOfRun now = rows_of({11, 20}, {1, 1});
  const Snapshot state{{{"w", {2, 3}, {1, 1, 1, 2, 2, 2}}}, 4.0};
  const std::vector<NamedTensor> after = {{"w", {2, 3}, {0.9, 1, 1, 2, 2, 2}}}, far = {{"w", {2, 3}, {0.9, 1, 1, 2.1, 2, 2}}}, near = {{"w", {2, 3}, {0.9, 1, 1, 2.0000002, 2, 2}}};
  EXPECT_TRUE(shard_stood_still(now, {&state, nullptr, &after, &state, &far}, 1, "w"));
  EXPECT_FALSE(shard_stood_still(now, {&state, nullptr, &after, &state, &near}, 1, "w"));
}

/// One matrix "w" that both runs begin with alike and have one gradient of.
ForcedEvidence moved(const Shape& shape, const Values& gradient, const Values& of_reference, const Values& of_cell) {
  ForcedEvidence evidence;
  const Values begin(gradient.size(), 0.5);
  const auto after = [&](const Values& change) {
    Values values = begin;
    for (std::size_t i = 0; i < change.size(); ++i) values[i] += change[i];
    return std::vector<NamedTensor>{{"w", shape, values}};
  };
  evidence.reference.gradients = evidence.cell.gradients = {{"w", shape, gradient}};
  evidence.reference.parameters = after(of_reference);
  evidence.cell.parameters = after(of_cell);
  evidence.state = evidence.reference_state = std::make_shared<const Snapshot>(Snapshot{{{"w", shape, begin}}, 0.0});
  evidence.reduced.tensors = {{"w", {0, 1e-6}, norm(gradient), norm(gradient)}};
  return evidence;
}

Values times(Values values, double factor, std::size_t from = 0) {
  for (std::size_t i = from; i < values.size(); ++i) values[i] *= factor;
  return values;
}

const Values kGradient{0.6, -0.8, 0.3, 0.2, 0.5, -0.4};

TEST(UnlikeUpdateOf, IsNoneWhereBothMoveAlike) {
  const Values change = times(kGradient, -0.1);
  EXPECT_FALSE(unlike_update(moved({2, 3}, kGradient, change, change)));
  EXPECT_FALSE(unlike_update(moved({2, 3}, kGradient, change, times(change, 1.04)))) << "within a twentieth";
}

TEST(UnlikeUpdateOf, TellsHowFarTheChangesLieApart) {
  const Values change = times(kGradient, -0.1);
  const auto found = unlike_update(moved({2, 3}, kGradient, change, times(change, 2)));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "w");
  EXPECT_NEAR(found->expected, norm(change), 1e-12);
  EXPECT_NEAR(found->actual, 2 * norm(change), 1e-12);
  EXPECT_NEAR(found->gap, norm(change), 1e-12);
}

TEST(UnlikeUpdateOf, AsksNotWhatAnOptimizerMakesOfAGradientOfRoundingAlone) {
  Values gradient = kGradient, change = times(kGradient, -0.1), other = change;
  gradient[5] = 1e-7;
  other[5] = 0.3;
  EXPECT_FALSE(unlike_update(moved({2, 3}, gradient, change, other)));
  gradient[5] = 0.01;
  EXPECT_TRUE(unlike_update(moved({2, 3}, gradient, change, other)));
}

TEST(UnlikeUpdateOf, NeedsWhatBothBeganWith) {
  ForcedEvidence evidence = moved({2, 3}, kGradient, times(kGradient, -0.1), times(kGradient, -0.2));
  evidence.reference_state = nullptr;
  EXPECT_FALSE(unlike_update(evidence));
}

/// Every rank's part of "w": rows or columns, one each.
StepOfRun partitioned(const Shape& whole, std::size_t dim) {
  StepOfRun step;
  for (int64_t k = 0; k < whole[dim]; ++k) {
    Shape shape = whole, offset(2, 0);
    shape[dim] = 1;
    offset[dim] = k;
    step.ranks.push_back({});
    step.parts.push_back({part(Phase::parameters, shape, whole, offset, 1)});
  }
  return step;
}

/// Along each row over its length, as a trust ratio of each part by itself is.
Values by_own_length(Values gradient, std::size_t width) {
  for (std::size_t row = 0; row < gradient.size(); row += width) {
    double size = 0;
    for (std::size_t i = row; i < row + width; ++i) size = std::hypot(size, gradient[i]);
    for (std::size_t i = row; i < row + width; ++i) gradient[i] *= -0.1 / size;
  }
  return gradient;
}

TEST(UpdatesByShard, FactorsOfEachPartAreTold) {
  const Values whole = times(kGradient, -0.1 / norm(kGradient));
  const ShardUpdates found = updates_by_shard(moved({2, 3}, kGradient, whole, by_own_length(kGradient, 3)), partitioned({2, 3}, 0));
  EXPECT_THAT(found.tensors, ElementsAre("w"));
  EXPECT_TRUE(found.exact);
  EXPECT_THAT(found.how, HasSubstr("times the reference's change, part by part"));
}

TEST(UpdatesByShard, OneFactorOfAllPartsIsNoneOfEachPart) {
  const Values whole = times(kGradient, -0.1);
  EXPECT_THAT(updates_by_shard(moved({2, 3}, kGradient, whole, times(whole, 2)), partitioned({2, 3}, 0)).tensors, IsEmpty());
  EXPECT_THAT(updates_by_shard(moved({2, 3}, kGradient, whole, whole), partitioned({2, 3}, 0)).tensors, IsEmpty()) << "and no difference neither";
}

TEST(UpdatesByShard, ChangesAlongOrthogonalFactorsOfPartsAreTold) {
  // G = [[3, 0, 4], [0, 5, 0]] / 10 has the orthogonal factor [[0.6, 0, 0.8], [0, 1, 0]]; of its columns each has its own.
  const Values gradient{0.3, 0, 0.4, 0, 0.5, 0}, whole{-0.06, 0, -0.08, 0, -0.1, 0}, columns{-0.1, 0, -0.1, 0, -0.1, 0};
  EXPECT_THAT(updates_by_shard(moved({2, 3}, gradient, whole, columns), partitioned({2, 3}, 1)).tensors, ElementsAre("w"));
  // G = [[1, 1], [0, 1]]: the factor of the whole is [[2, 1], [-1, 2]] / sqrt(5), that of each row the row over its length.
  const double fifth = 0.1 / std::sqrt(5), half = 0.1 / std::sqrt(2);
  const Values shear{1, 1, 0, 1}, of_whole{-2 * fifth, -fifth, fifth, -2 * fifth}, of_rows{-half, -half, 0, -0.1};
  const ShardUpdates found = updates_by_shard(moved({2, 2}, shear, of_whole, of_rows), partitioned({2, 2}, 0));
  EXPECT_THAT(found.tensors, ElementsAre("w"));
  EXPECT_THAT(found.how, HasSubstr("orthogonal factor of its own gradient"));
  const Values neither{-0.1, 0.02, 0.05, -0.1};
  EXPECT_THAT(updates_by_shard(moved({2, 2}, shear, of_whole, neither), partitioned({2, 2}, 0)).tensors, IsEmpty());
}

TEST(UpdatesByShard, OfATensorThatIsNotPartitionedTellNothing) {
  const Values whole = times(kGradient, -0.1 / norm(kGradient));
  const ForcedEvidence evidence = moved({2, 3}, kGradient, whole, by_own_length(kGradient, 3));
  EXPECT_THAT(updates_by_shard(evidence, StepOfRun{}).tensors, IsEmpty());
}

ForcedValues values(std::vector<double> gradient) {
  ForcedValues made;
  made.gradients = {{"head.weight", {std::ssize(gradient)}, std::move(gradient)}};
  return made;
}

double share_used(const std::vector<double>& reference, const std::vector<double>& cell,
                  const std::vector<double>& repeat) {
  const ForcedValues one = values(repeat);
  return judge_gradients(values(reference), values(cell), {one, one, one, one}, {}).tensors.at(0).use.used();
}

TEST(JudgeGradients, TheBandOfManyElementsIsTheFactorTimesTheRepeats) {
  EXPECT_LT(share_used({1, 1}, {1 + 7e-6, 1}, {1 + 1e-6, 1}), 1);
  EXPECT_GT(share_used({1, 1}, {1 + 9e-6, 1}, {1 + 1e-6, 1}), 1);
}

TEST(JudgeGradients, RepeatsThatCoincideLeaveAFloorWithoutTermSumsToo) {
  EXPECT_LT(share_used({1, 1}, {1 + 1e-7, 1}, {1, 1}), 1);
  EXPECT_GT(share_used({1, 1}, {1 + 1e-5, 1}, {1, 1}), 1);
}

TEST(JudgeGradients, WithoutTermSumsAnElementThatNearlyCancelsRoundsAsUsualOnesDo) {
  // One element of 1e-7 beside a hundred of 1; its repeats coincide.
  const auto gradient = [](double small) {
    ForcedValues made = values(std::vector<double>(100, 1.0));
    made.gradients.push_back({"head.bias", {1}, {small}});
    return made;
  };
  const auto used = [&](double small) {
    const ForcedValues one = gradient(1e-7);
    return judge_gradients(one, gradient(small), {one, one, one, one}, {}).tensors.at(1).use.used();
  };
  EXPECT_LT(used(2e-7), 1);
  EXPECT_GT(used(1e-6), 1);
}

TEST(JudgeGradients, RanksThatCancelEachOtherStandForTheTermsThatNobodyRecorded) {
  ForcedValues reference = values({1e-6, 1e-6}), cell = values({1e-6 + 1e-7, 1e-6});
  const auto used = [&] {
    return judge_gradients(reference, cell, {reference, reference, reference, reference}, {})
        .tensors.at(0)
        .use.used();
  };
  EXPECT_GT(used(), 1);
  reference.local = {values({1, 1}).gradients, values({-1 + 2e-6, -1 + 2e-6}).gradients};
  EXPECT_LT(used(), 1);
}

TEST(JudgeGradients, ASingleElementWhoseRepeatsLieCloseByChanceIsNoAlarm) {
  EXPECT_LT(share_used({1}, {1 + 60e-8}, {1 + 1e-8}), 1);
}

/// Five tensors of two elements whose terms sum to 1 each; what one of them has is added to `value`.
ForcedValues five(double others, double fifth) {
  ForcedValues made;
  for (int i = 0; i < 5; ++i) {
    const std::string name = "head.tensor" + std::to_string(i);
    made.gradients.push_back({name, {2}, {0.5 + (i < 4 ? others : fifth), 0.5}});
    made.term_sums.push_back({name, {2}, {1, 1}});
  }
  return made;
}

double fifth_used(double difference) {
  // Four tensors round by 1e-6; the fifth's repeats lie close by chance.
  const ForcedValues one = five(1e-6, 2e-7);
  return judge_gradients(five(0, 0), five(0, difference), {one, one, one, one}, {}).tensors.at(4).use.used();
}

TEST(JudgeGradients, ATensorWhoseRepeatsLieCloseByChanceRoundsAsTheOthersDo) {
  EXPECT_LT(fifth_used(5e-6), 1);
  EXPECT_GT(fifth_used(1e-5), 1);
}

TEST(JudgeGradients, ATensorThatRoundsFarLessThanTheOthersIsJudgedByItsOwnRepeats) {
  const ForcedValues one = five(1e-3, 1e-9);
  const auto used = [&](double difference) {
    const ForcedValues cell = five(0, difference);
    return judge_gradients(five(0, 0), cell, {one, one, one, one}, {}).tensors.at(4).use.used();
  };
  EXPECT_GT(used(1e-3), 1) << "what rounds a millionth of the others has no band of theirs";
}

TEST(JudgeGradients, TheFloorKnowsInWhichPrecisionTermsWereComputed) {
  RunConfig config;
  const auto used = [&config](double difference) {
    ForcedValues reference = five(0, 0);
    reference.working_epsilon = working_epsilon(training_facts(config), reference.epsilon);
    const ForcedValues same = five(0, 0);  // bits that four repeats do not move
    const ForcedValues cell = five(0, difference);
    return judge_gradients(reference, cell, {same, same, same, same}, {}).tensors.at(4).use.used();
  };
  EXPECT_GT(used(0.01), 1) << "float32 does not round by a hundredth";
  config.precision = Precision::bfloat16;
  EXPECT_LT(used(0.01), 1);
  EXPECT_GT(used(0.03), 1);
  EXPECT_EQ(working_epsilon(TrainingFacts{}, 1e-7), 1e-7) << "nothing is known without a config";
}

TEST(JudgeGradients, ASingleElementScaledByAThousandthIsFound) {
  EXPECT_GT(share_used({1}, {1.001}, {1 + 1e-6}), 1);
}

/// Where numbers are so small that they have no digits left, a mean is rounded by whole steps.
TEST(JudgeReduction, AMeanOfTheSmallestNumbersIsRoundedByTheirSteps) {
  for (const auto& [epsilon, least] : {std::pair<double, double>{std::numeric_limits<double>::epsilon(), std::numeric_limits<double>::denorm_min()},
                                       {std::numeric_limits<float>::epsilon(), std::numeric_limits<float>::denorm_min()}}) {
    const auto used = [&](double mean) {
      ForcedValues cell = values({mean, 1});
      cell.gradients.front().epsilon = cell.epsilon = epsilon;
      for (const double own : {3 * least, 2 * least, 3 * least}) cell.local.push_back(values({own, 1}).gradients);
      return judge_reduction(cell).at(0).used;
    };
    EXPECT_LE(used(2 * least), 1) << epsilon;
    EXPECT_LE(used(3 * least), 1) << epsilon;
    EXPECT_GT(used(12 * least), 1) << epsilon;
  }
}

}  // namespace
}  // namespace lockstep
