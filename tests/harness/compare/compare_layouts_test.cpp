// One process against V ranks, from free traces alone.

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/causes/mechanism.h"
#include "harness/questions/judge.h"
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
  support::TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, CompareLayouts, ::testing::Values(3, 8));

TEST_P(CompareLayouts, RoundingStaysWithinTheBound) {
  const Mechanism result = with(nullptr);
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
  EXPECT_FALSE(result.first_divergence.has_value());
  EXPECT_FALSE(result.band_measured);
  EXPECT_GT(result.band_used, 0);
  EXPECT_LT(result.band_used, 0.5);
  EXPECT_EQ(result.compared_steps, 120);
  EXPECT_THAT(result.sentence, AllOf(HasSubstr("bound, not measured"), HasSubstr("exactly over 120 steps")));
}

TEST_P(CompareLayouts, RowsOnOtherRanksAreTheSameBatch) {
  FakeRun cell = clean(GetParam(), 2);
  cell.fault = [&](FakeStep& it) { std::reverse(it.samples.begin(), it.samples.end()); };
  support::write_fake_run(folder_ / "a", clean(1, 1));
  support::write_fake_run(folder_ / "b", cell);
  EXPECT_EQ(compare_runs({folder_ / "a", folder_ / "b", {}, {}}).verdict, VerdictKind::within_envelope);
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
  EXPECT_EQ(with(replay(0)).verdict, VerdictKind::within_envelope);
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
  EXPECT_EQ(result.first_divergence->kind, "missing");
  EXPECT_EQ(result.first_divergence->expected, "23 negatives a row");
  EXPECT_EQ(result.first_divergence->actual,
            std::to_string(own) + " negatives a row (" + std::to_string(23 - own) + " missing)");
  EXPECT_THAT(result.sentence, HasSubstr(std::to_string(own) + " negatives of 23"));
  ASSERT_TRUE(result.cause.has_value());
  EXPECT_EQ(result.cause->code, "local-negatives");
  EXPECT_EQ(result.cause->evidence,
            "a row has " + std::to_string(own) + " negatives instead of 23, those of its own rank alone");
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
  EXPECT_EQ(result.first_divergence->kind, "band");
  EXPECT_GT(result.band_used, 1);
}

TEST_P(CompareLayouts, WhatTrainingMayHaveMadeOfRoundingIsUndecided) {
  // From step 1 on parameters differ in their last places; from step 3 on energies do in the first.
  const Mechanism result = with([](FakeStep& it) {
    if (it.step < 3) return;
    for (float& energy : it.energies) energy *= 1.01F;
  });
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive) << result.sentence;
  EXPECT_FALSE(result.first_divergence.has_value());
  EXPECT_FALSE(result.cause.has_value());
  EXPECT_EQ(result.compared_steps, 120);
  EXPECT_THAT(result.sentence, AllOf(HasSubstr("agree exactly over 120 steps"), HasSubstr("from step 3 on"),
                                     HasSubstr("forced_steps")));
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

TEST_P(CompareLayouts, AnotherLossLeavesTheBound) {
  const Mechanism result = with([](FakeStep& it) {
    if (it.rank == 1) it.loss *= 1.01;
  });
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_EQ(result.first_divergence->phase, "loss");
}

}  // namespace
}  // namespace lockstep
