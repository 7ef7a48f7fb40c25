// One process against V ranks, from free traces alone.

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/questions/judge.h"
#include "tests/support/fake_run.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::FakeRun;
using support::FakeStep;
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
  Mechanism with(std::function<void(FakeStep&)> fault, bool local_negatives = false) {
    FakeRun cell = clean(GetParam(), 2);
    cell.fault = std::move(fault);
    cell.local_negatives = local_negatives;
    support::write_fake_run(folder_ / "a", clean(1, 1));
    support::write_fake_run(folder_ / "b", cell);
    return compare_runs({folder_ / "a", folder_ / "b", {}, {}});
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
              AllOf(HasSubstr("Equal bit for bit over 120 steps"), HasSubstr("Step 0, which both begin with the same"),
                    HasSubstr("the traces do not show it"), HasSubstr("estimated, not measured"),
                    HasSubstr("a mistake in them would not be seen"), HasSubstr("losses by up to"),
                    HasSubstr("forced_steps"), HasSubstr("--repeat")));
}

TEST_P(CompareLayouts, StepsFromEqualParametersAreAllJudged) {
  const auto one = clean(1, 1);
  for (const bool wrong : {false, true}) {
    FakeRun a = one, b = clean(GetParam(), 1);
    a.noise = b.noise = 0;
    b.fault = [wrong](FakeStep& it) {
      if (wrong && it.step == 90) it.loss *= 1.01;
    };
    support::write_fake_run(folder_ / "a", a);
    support::write_fake_run(folder_ / "b", b);
    const Mechanism result = compare_runs({folder_ / "a", folder_ / "b", {}, {}});
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

TEST_P(CompareLayouts, TurnedSignsLeaveTheBoundThoughNoNormChanges) {
  const Mechanism result = with([](FakeStep& it) {
    for (auto& [name, values] : it.reduced_gradients) {
      for (float& value : values) value = -value;
    }
  });
  EXPECT_EQ(result.verdict, VerdictKind::divergent) << result.sentence;
  EXPECT_EQ(result.first_divergence->phase, "reduced gradients");
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
    support::write_fake_run(folder_ / "a", a);
    support::write_fake_run(folder_ / "b", b);
    const Mechanism result = compare_runs({folder_ / "a", folder_ / "b", {}, {}});
    EXPECT_EQ(result.verdict, whole ? VerdictKind::divergent : VerdictKind::inconclusive) << result.sentence;
    if (!whole) continue;
    EXPECT_EQ(result.first_divergence->step, 0);
    EXPECT_EQ(result.first_divergence->where, "context_encoder.weight1");
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
    support::write_fake_run(folder_ / "a", a);
    support::write_fake_run(folder_ / "b", b);
    return compare_runs({folder_ / "a", folder_ / "b", {}, {}});
  };
  EXPECT_EQ(compared(0.999, 1).verdict, VerdictKind::inconclusive) << compared(0.999, 1).sentence;
  const Mechanism other_beta = compared(0.9, 1), other_count = compared(0.999, 2);
  for (const auto& [found, where] : {std::pair{&other_beta, "second_moment/head.weight"}, {&other_count, "updates"}}) {
    EXPECT_EQ(found->verdict, VerdictKind::divergent) << found->sentence;
    ASSERT_TRUE(found->first_divergence.has_value());
    EXPECT_EQ(found->first_divergence->step, 0);
    EXPECT_EQ(found->first_divergence->phase, "optimizer state");
    EXPECT_EQ(found->first_divergence->where, where);
  }
}

TEST_P(CompareLayouts, AWrappedModelHasTheSameNames) {
  FakeRun a = clean(1, 1), b = clean(GetParam(), 2);
  const auto compared = [&](const std::function<std::string(const std::string&)>& rename) {
    b.fault = [&rename](FakeStep& it) {
      for (auto* list : {&it.local_gradients, &it.reduced_gradients, &it.parameters}) {
        for (auto& [name, values] : *list) name = rename(name);
      }
    };
    support::write_fake_run(folder_ / "a", a);
    support::write_fake_run(folder_ / "b", b);
    return compare_runs({folder_ / "a", folder_ / "b", {}, {}});
  };
  const Mechanism wrapped = compared([](const std::string& name) { return "module._orig_mod." + name; });
  EXPECT_EQ(wrapped.verdict, VerdictKind::inconclusive) << wrapped.sentence;
  const Mechanism part = compared([](const std::string& name) {
    return name == "temperature" ? "module." + name : name;
  });
  EXPECT_EQ(part.verdict, VerdictKind::divergent) << part.sentence;
  EXPECT_EQ(part.first_divergence->kind, DivergenceKind::missing);
}

TEST_P(CompareLayouts, OtherInitialParametersAreNamed) {
  FakeRun a = clean(1, 1), b = clean(GetParam(), 2);
  a.steps.insert(a.steps.begin(), -1);
  b.steps.insert(b.steps.begin(), -1);
  a.noise = b.noise = 0;
  const auto compared = [&] {
    support::write_fake_run(folder_ / "a", a);
    support::write_fake_run(folder_ / "b", b);
    return compare_runs({folder_ / "a", folder_ / "b", {}, {}});
  };
  EXPECT_THAT(compared().sentence, ::testing::Not(HasSubstr("the traces do not show it")));
  b.fault = [](FakeStep& it) {
    if (it.step < 0) tensor_of(it.parameters, "head.weight")[0] += 0.25F;
  };
  const Mechanism result = compared();
  EXPECT_EQ(result.verdict, VerdictKind::divergent) << result.sentence;
  EXPECT_EQ(result.first_divergence->step, -1);
  EXPECT_EQ(result.first_divergence->where, "head.weight");
}

TEST_P(CompareLayouts, RowsOnOtherRanksAreTheSameBatch) {
  FakeRun cell = clean(GetParam(), 2);
  cell.fault = [&](FakeStep& it) { std::reverse(it.samples.begin(), it.samples.end()); };
  support::write_fake_run(folder_ / "a", clean(1, 1));
  support::write_fake_run(folder_ / "b", cell);
  const Mechanism result = compare_runs({folder_ / "a", folder_ / "b", {}, {}});
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive);
  EXPECT_FALSE(result.first_divergence.has_value()) << result.sentence;
}

TEST_P(CompareLayouts, AnExchangedSampleIsNamedAtAnyStep) {
  const Mechanism result = with([](FakeStep& it) {
    if (it.step == 110 && it.rank == 2) it.samples[1] = 1403;
  });
  EXPECT_EQ(result.verdict, VerdictKind::divergent);
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_EQ(result.first_divergence->step, 110);
  EXPECT_EQ(result.first_divergence->phase, "samples");
  EXPECT_EQ(result.first_divergence->rank, 2);
  EXPECT_EQ(result.first_divergence->expected,
            "sample " + std::to_string(support::fake_sample(110, 2 + GetParam())));
  EXPECT_EQ(result.first_divergence->actual, "sample 1403");
}

TEST_P(CompareLayouts, OneStreamForAllRanksIsNamed) {
  const Mechanism result =
      with([](FakeStep& it) { it.streams[1].second = static_cast<uint64_t>(it.step) * 77; });
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_EQ(result.first_divergence->step, 0);
  EXPECT_EQ(result.first_divergence->phase, "random");
  EXPECT_EQ(result.first_divergence->where, "dropout in head");
  EXPECT_THAT(result.sentence, HasSubstr("ranks drew the same numbers"));
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
  EXPECT_EQ(result.verdict, VerdictKind::divergent);
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_EQ(result.first_divergence->step, 4);
  EXPECT_EQ(result.first_divergence->phase, "random");
  EXPECT_EQ(result.first_divergence->where, "dropout in head replay");
}

TEST_P(CompareLayouts, AChangedRateIsNamedBeyondTheBoundedSteps) {
  const Mechanism result = with([](FakeStep& it) {
    if (it.step >= 100) it.controls[0].second *= 8;
  });
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_EQ(result.first_divergence->step, 100);
  EXPECT_EQ(result.first_divergence->phase, "control");
  EXPECT_EQ(result.first_divergence->rank, -1);
  EXPECT_EQ(result.first_divergence->actual, "0.008");
}

TEST_P(CompareLayouts, AControlValueOfOneRankIsNamed) {
  const Mechanism result = with([](FakeStep& it) {
    if (it.rank == 2) it.controls[1].second += 1;
  });
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_EQ(result.first_divergence->rank, 2);
  EXPECT_EQ(result.first_divergence->where, "step");
}

TEST_P(CompareLayouts, MissingNegativesAreCounted) {
  const Mechanism result = with(nullptr, true);
  ASSERT_TRUE(result.first_divergence.has_value());
  const int own = 24 / GetParam() - 1;
  EXPECT_EQ(result.first_divergence->step, 0);
  EXPECT_EQ(result.first_divergence->phase, "energies");
  EXPECT_EQ(result.first_divergence->kind, DivergenceKind::missing);
  EXPECT_EQ(result.first_divergence->expected, "23 negatives a row");
  EXPECT_EQ(result.first_divergence->actual,
            std::to_string(own) + " negatives a row (" + std::to_string(23 - own) + " missing)");
  EXPECT_THAT(result.sentence, HasSubstr(std::to_string(own) + " negatives of 23"));
  ASSERT_TRUE(result.cause.has_value());
  EXPECT_EQ(result.cause->code, "local-negatives");
  EXPECT_EQ(result.cause->evidence,
            "a row of rank 0 has " + std::to_string(own) + " negatives instead of 23: of the batch those of its own rank alone");
}

TEST_P(CompareLayouts, ColumnsOfAnUnknownTrainerAreNobodysNegatives) {
  FakeRun reference = clean(1, 1), cell = clean(GetParam(), 2);
  reference.trainer = cell.trainer = "theirs";
  cell.local_negatives = true;
  support::write_fake_run(folder_ / "a", reference);
  support::write_fake_run(folder_ / "b", cell);
  const Mechanism result = compare_runs({folder_ / "a", folder_ / "b", {}, {}});
  ASSERT_TRUE(result.first_divergence.has_value());
  const int own = 24 / GetParam();
  EXPECT_EQ(result.first_divergence->expected, "24 columns a row");
  EXPECT_EQ(result.first_divergence->actual,
            std::to_string(own) + " columns a row (" + std::to_string(24 - own) + " missing)");
  EXPECT_THAT(result.sentence, HasSubstr(std::to_string(own) + " columns of 24 a row"));
  ASSERT_TRUE(result.cause.has_value());
  EXPECT_EQ(result.cause->code, "unexplained");
}

TEST_P(CompareLayouts, AScaledGradientLeavesTheBound) {
  const Mechanism result = with([](FakeStep& it) {
    for (float& value : tensor_of(it.reduced_gradients, "action_encoder.weight1")) value *= 1.001F;
  });
  EXPECT_EQ(result.verdict, VerdictKind::divergent);
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_EQ(result.first_divergence->step, 0);
  EXPECT_EQ(result.first_divergence->phase, "reduced gradients");
  EXPECT_THAT(result.first_divergence->where, HasSubstr("action_encoder.weight1"));
  EXPECT_EQ(result.first_divergence->kind, DivergenceKind::band);
  EXPECT_GT(result.band_used, 1);
}

TEST_P(CompareLayouts, AnExactPhaseBehindAnUndecidedOneIsNamed) {
  const Mechanism result = with([](FakeStep& it) {
    if (it.step >= 3) it.loss *= 2;
    if (it.step == 50 && it.rank == 1) it.samples[0] = 1403;
  });
  EXPECT_EQ(result.verdict, VerdictKind::divergent) << result.sentence;
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_EQ(result.first_divergence->step, 50);
  EXPECT_EQ(result.first_divergence->phase, "samples");
}

TEST_P(CompareLayouts, ANumberThatIsNoneIsNoRounding) {
  const Mechanism result = with([](FakeStep& it) {
    if (it.step == 5) it.loss = std::nan("");
  });
  EXPECT_EQ(result.verdict, VerdictKind::divergent) << result.sentence;
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_EQ(result.first_divergence->step, 5);
  EXPECT_EQ(result.first_divergence->phase, "loss");
}

TEST_P(CompareLayouts, Bfloat16HasNoBoundThatSaysAnything) {
  support::write_fake_run(folder_ / "a", clean(1, 1));
  support::write_fake_run(folder_ / "b", clean(GetParam(), 2));
  RunConfig config;
  config.precision = Precision::bfloat16;
  const Mechanism result = compare_runs({folder_ / "a", folder_ / "b", {}, {}, &config, &config});
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
    support::write_fake_run(folder_ / "a", a);
    support::write_fake_run(folder_ / "b", b);
    return compare_runs({folder_ / "a", folder_ / "b", {}, {}});
  };
  const Mechanism wrong = compared(0, 0.9, false);
  EXPECT_EQ(wrong.verdict, VerdictKind::divergent) << wrong.sentence;
  EXPECT_EQ(wrong.first_divergence->step, 2);
  EXPECT_EQ(wrong.first_divergence->phase, "evaluation");
  EXPECT_EQ(wrong.first_divergence->where, "accuracy");
  const Mechanism right = compared(0, 0.5 * (1 + 1e-7), false);
  EXPECT_EQ(right.verdict, VerdictKind::inconclusive) << right.sentence;
  EXPECT_THAT(right.sentence, HasSubstr("Evaluation agrees at 1 step with bit-equal parameters"));
  // Nobody knows what training has made of rounding, or which part of the data a rank has looked at.
  for (const Mechanism& open : {compared(3e-7, 0.9, false), compared(0, 0.9, true)}) {
    EXPECT_EQ(open.verdict, VerdictKind::inconclusive) << open.sentence;
    EXPECT_THAT(open.sentence, HasSubstr("Evaluation was not judged at 1 step"));
    EXPECT_THAT(open.sentence, HasSubstr("accuracy differs most at step 2, 0.5 in the reference and 0.9 in the run"));
  }
}

TEST_P(CompareLayouts, AnEvaluationOfOneRunAloneIsSaid) {
  const Mechanism result = with([](FakeStep& it) {
    if (it.step == 100 && it.rank == 0) it.evaluations = {{"accuracy", 0.5}};
  });
  EXPECT_THAT(result.sentence, HasSubstr("Evaluation was not compared at 1 step: only the run recorded it"));
  EXPECT_THAT(with(nullptr).sentence, ::testing::Not(HasSubstr("valuation")));
}

TEST_P(CompareLayouts, AReplicaThatPartsIsNamedWhereMostRanksLieByTheReference) {
  const int last = GetParam() - 1;
  for (const bool most : {false, true}) {
    // Two thirds of the ranks or more hold a value that the reference does not have.
    const Mechanism result = with([&](FakeStep& it) {
      if (it.step >= 5 && (it.rank == last) != most) tensor_of(it.parameters, "head.weight")[7] += 1;
    });
    ASSERT_TRUE(result.first_divergence.has_value());
    EXPECT_EQ(result.first_divergence->step, 5);
    EXPECT_EQ(result.first_divergence->kind, DivergenceKind::replica);
    EXPECT_EQ(result.first_divergence->rank, most ? kRankUnknown : last) << result.sentence;
    ASSERT_TRUE(result.cause.has_value());
    EXPECT_EQ(result.cause->code, most ? "replicas-drift" : "replica-corrupted") << result.cause->evidence;
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
  support::write_fake_run(folder_ / "a", a);
  support::write_fake_run(folder_ / "b", b);
  const Mechanism result = compare_runs({folder_ / "a", folder_ / "b", {}, {}});
  ASSERT_TRUE(result.first_divergence.has_value()) << result.sentence;
  EXPECT_EQ(result.first_divergence->phase, "local gradients");
  EXPECT_EQ(result.first_divergence->kind, DivergenceKind::shape);
  EXPECT_EQ(result.first_divergence->rank, 0) << result.sentence;
  EXPECT_EQ(result.first_divergence->actual, "float32 [19]");
}

TEST_P(CompareLayouts, AResumedRunSaysWhichStepsHaveNoPartner) {
  FakeRun b = clean(GetParam(), 2);
  b.steps.erase(b.steps.begin(), b.steps.begin() + 40);
  support::write_fake_run(folder_ / "a", clean(1, 1));
  support::write_fake_run(folder_ / "b", b);
  const Mechanism result = compare_runs({folder_ / "a", folder_ / "b", {}, {}});
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive) << result.sentence;
  EXPECT_THAT(result.sentence, HasSubstr("Not compared: steps 0 to 39 have no partner"));
}

TEST_P(CompareLayouts, AnotherLossLeavesTheBound) {
  const Mechanism result = with([](FakeStep& it) {
    if (it.rank == 1) it.loss *= 1.01;
  });
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_EQ(result.first_divergence->phase, "loss");
  EXPECT_EQ(result.first_divergence->rank, kRankUnknown) << "a mean over ranks tells no rank";
}

}  // namespace
}  // namespace lockstep
