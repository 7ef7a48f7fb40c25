#include "harness/base/numbers.h"
#include "harness/verdict/stats/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/verdict/results/metric_names.h"
#include "harness/verdict/stats/estimates.h"
#include "harness/verdict/stats/power.h"
#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

using support::scatter;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Two arms whose differences are planted, metric by metric.
class Outcomes : public testing::Test {
 protected:
  void plant(const std::string& metric, double difference, double sd, int seeds = 10) {
    for (int64_t seed = 0; seed < seeds; ++seed) {
      const double base = 0.7 + 0.03 * scatter(seed + 4);
      reference_[seed][metric] = base;
      cell_[seed][metric] = base + difference + sd * scatter(seed);
    }
  }
  Outcome judge() const { return judge_outcome({"8x3 local", "1x24 global", cell_, reference_, primary_}); }
  std::pair<std::optional<FailureKind>, std::string> error() const {
    try {
      judge();
    } catch (const OutcomeError& e) {
      return {e.kind(), e.what()};
    }
    return {};
  }

  MetricsBySeed cell_, reference_;
  Primary primary_{"accuracy_24", 0.03, 0.05};
};

TEST_F(Outcomes, ASmallDifferenceIsEquivalent) {
  plant("accuracy_24", 0.001, 0.008);
  const Outcome o = judge();
  EXPECT_EQ(o.verdict, VerdictKind::equivalent);
  EXPECT_EQ(o.n, 10);
  EXPECT_NEAR(o.primary.mean, 0.001, 1e-12);
  EXPECT_NEAR(o.primary.sd, 0.008, 1e-12);
  EXPECT_NEAR(o.primary.interval.high - o.primary.mean, 2.262157162798205 * 0.008 / std::sqrt(10.0), 1e-9);
  EXPECT_NEAR(o.equivalence.high - o.primary.mean, 1.8331129326562374 * 0.008 / std::sqrt(10.0), 1e-9);
  EXPECT_DOUBLE_EQ(o.equivalence.level, 0.9);
  EXPECT_NEAR(o.power, equivalence_power({10, o.sd_upper, 0.03, 0.05, 0}), 1e-12);
  EXPECT_NEAR(o.power_half, equivalence_power({10, o.sd_upper, 0.03, 0.05, 0.015}), 1e-12);
  EXPECT_GT(o.sd_upper, 1.29 * o.primary.sd);
  EXPECT_LT(o.p_equivalent, 1e-5);
  EXPECT_NEAR(o.p_different, 0.7017, 1e-3);  // 2 * (1 - T_9(0.001 / (0.008 / sqrt(10))))
  EXPECT_EQ(o.estimates.size(), 3u);
  EXPECT_TRUE(o.notes.empty());
  EXPECT_GT(o.power, 0.99);
  EXPECT_EQ(o.seeds_needed, 0);
  EXPECT_EQ(o.sentence,
            "8x3 local learns the same: accuracy_24 differs by +0.001 (90 % interval -0.004 to +0.006), inside the "
            "margin of 0.03 (10 paired seeds).");
}

TEST_F(Outcomes, ALargeDifferenceIsDivergentAndTheSentenceSaysWhatReadsOtherwise) {
  plant("accuracy_24", -0.094, 0.028);
  plant("accuracy_256", -0.05, 0.01);
  plant("train_loss_over_log_n", -0.2, 0.01);
  plant("cross_entropy_24", -0.1, 0.02);
  plant("cross_entropy_24_fitted", 0.1, 0.02);
  plant("temperature", 0.1, 0.001);
  const Outcome o = judge();
  EXPECT_EQ(o.verdict, VerdictKind::divergent);
  EXPECT_EQ(
      o.sentence,
      "8x3 local learns worse: accuracy_24 0.094 lower (95 % interval 0.074 to 0.114, 10 paired seeds), although "
      "its training loss / log N and its raw cross-entropy are lower.");
  EXPECT_EQ(o.others.size(), 5u);
  for (const MetricDifference& other : o.others)
    EXPECT_EQ(other.has_direction, other.metric != "temperature");
}

TEST_F(Outcomes, NoAlthoughWhereTheMetricsAgree) {
  plant("accuracy_24", -0.094, 0.02);
  plant("cross_entropy_24", 0.1, 0.02);
  plant("train_loss", 0.0, 0.02);  // reads neither better nor worse
  EXPECT_THAT(judge().sentence, testing::Not(HasSubstr("although")));
}

TEST_F(Outcomes, OneSizeOfAFamilyIsNamedByItsSize) {
  plant("accuracy_24", -0.094, 0.02);
  plant("cross_entropy_3", -0.1, 0.02);
  plant("cross_entropy_24", 0.1, 0.02);
  plant("cross_entropy_256", -0.1, 0.02);
  EXPECT_THAT(judge().sentence, HasSubstr("although its 3-way and 256-way raw cross-entropy are lower."));
}

TEST_F(Outcomes, AnAreaIsNotNamedBesideTheEndOfItsCurve) {
  plant("accuracy_24", -0.094, 0.02);
  plant("cross_entropy_24", -0.1, 0.02);
  plant("auc_cross_entropy_24", -0.1, 0.02);
  EXPECT_THAT(judge().sentence, HasSubstr("although its raw cross-entropy is lower."));
}

TEST_F(Outcomes, ABetterCellSaysSo) {
  plant("accuracy_24", 0.1, 0.02);
  plant("train_loss", 0.1, 0.01);
  EXPECT_THAT(judge().sentence, HasSubstr("learns better: accuracy_24 0.100 higher"));
  EXPECT_THAT(judge().sentence, HasSubstr("although its training loss is higher."));
}

TEST_F(Outcomes, ALowerIsBetterMetricTurnsTheSense) {
  primary_.metric = "cross_entropy_24";
  plant("cross_entropy_24", 0.1, 0.02);
  EXPECT_THAT(judge().sentence, HasSubstr("learns worse: cross_entropy_24 0.100 higher"));
  EXPECT_FALSE(judge().primary.higher_is_better);
}

TEST_F(Outcomes, TooMuchScatterIsInconclusiveAndSaysHowManySeedsWouldDecide) {
  plant("accuracy_24", 0.005, 0.06);
  const Outcome o = judge();
  EXPECT_EQ(o.verdict, VerdictKind::inconclusive);
  EXPECT_EQ(o.seeds_needed, seeds_needed({2, o.sd_upper, 0.03, 0.05, 0}));
  EXPECT_EQ(o.seeds_needed_half, seeds_needed({2, o.sd_upper, 0.03, 0.05, 0.015}));
  EXPECT_THAT(o.sentence, HasSubstr("8x3 local is undecided: accuracy_24 differs by +0.005 ("));
  EXPECT_THAT(o.sentence, HasSubstr("; " + std::to_string(o.seeds_needed) +
                                    " seeds would decide this with probability 0.8 if the true difference is 0, " +
                                    std::to_string(o.seeds_needed_half) + " if it is half the margin; these numbers hold for a new run"));
}

TEST_F(Outcomes, WhatADesignCanShowDoesNotFollowTheDifferenceThatWasMeasured) {
  plant("accuracy_24", 0.005, 0.06);
  const Outcome small = judge();
  plant("accuracy_24", 0.025, 0.06);
  const Outcome large = judge();
  EXPECT_EQ(large.verdict, VerdictKind::inconclusive);
  EXPECT_NEAR(small.power, large.power, 1e-9);
  EXPECT_NEAR(small.power_half, large.power_half, 1e-9);
  EXPECT_EQ(small.seeds_needed, large.seeds_needed);
  EXPECT_EQ(small.seeds_needed_half, large.seeds_needed_half);
}

TEST_F(Outcomes, SeedsThatDidNotDecideAreNotNamedAsThoseThatWould) {
  plant("accuracy_24", 0.028, 0.01);
  const Outcome near = judge();
  EXPECT_EQ(near.verdict, VerdictKind::inconclusive);
  EXPECT_LE(near.seeds_needed_half, 10);
  EXPECT_THAT(near.sentence,
              HasSubstr("the true difference may be larger than the margin: no number of "
                        "seeds is sure to decide."));
  EXPECT_THAT(near.sentence, Not(HasSubstr("true difference is 0"))) << "the interval leaves 0 out";
  EXPECT_THAT(near.sentence, Not(HasSubstr("true difference were 0")));
  plant("accuracy_24", 0.020, 0.04);
  const Outcome wider = judge();
  EXPECT_LT(wider.primary.interval.low, 0);
  EXPECT_THAT(wider.sentence, HasSubstr(std::to_string(wider.seeds_needed) + " seeds would d"));
  plant("accuracy_24", 0.024, 0.025);
  const Outcome beside = judge();
  EXPECT_GT(beside.primary.interval.low, 0);
  EXPECT_LT(beside.primary.interval.low, 0.015);
  EXPECT_THAT(beside.sentence, HasSubstr("; the interval excludes 0: " + std::to_string(beside.seeds_needed_half) +
                                         " seeds would decide this with probability 0.8 if the true difference is half the margin; "));
}

TEST_F(Outcomes, OneSeedIsInconclusiveWithoutInterval) {
  plant("accuracy_24", 0.0, 0.0, 1);
  const Outcome o = judge();
  EXPECT_EQ(o.verdict, VerdictKind::inconclusive);
  EXPECT_EQ(o.seeds_needed, 2);
  EXPECT_TRUE(std::isinf(o.primary.interval.low) && std::isinf(o.equivalence.high));
  EXPECT_THAT(o.sentence, HasSubstr("one seed"));
}

TEST_F(Outcomes, NoSpreadIsDecidedByTheMean) {
  for (int64_t seed = 0; seed < 3; ++seed) {
    reference_[seed]["accuracy_24"] = 0.5;
    cell_[seed]["accuracy_24"] = 0.25;
  }
  EXPECT_EQ(judge().verdict, VerdictKind::divergent);
  EXPECT_EQ(judge().primary.sd, 0.0);
  cell_ = reference_;
  EXPECT_EQ(judge().verdict, VerdictKind::equivalent);
  EXPECT_EQ(judge().power, 1.0);
  EXPECT_EQ(judge().sd_upper, 0.0);
  EXPECT_EQ(judge().p_equivalent, 0.0);
  EXPECT_EQ(judge().p_different, 1.0);
}

TEST_F(Outcomes, DifferencesArePairedBySeed) {
  plant("accuracy_24", 0.0, 0.0);
  reference_[4]["accuracy_24"] = 0.5;
  cell_[4]["accuracy_24"] = 0.75;
  const Outcome o = judge();
  EXPECT_THAT(o.seeds, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(o.differences[4], 0.25);
  EXPECT_EQ(o.differences[5], 0.0);
}

TEST_F(Outcomes, UnpairedSeedsAreRefusedByName) {
  plant("accuracy_24", 0.0, 0.01);
  cell_.erase(3);
  reference_.erase(7);
  const auto [kind, what] = error();
  EXPECT_EQ(kind, FailureKind::lost);
  EXPECT_THAT(what, HasSubstr("7 (8x3 local alone), 3 (1x24 global alone)"));
}

TEST_F(Outcomes, NaNAndInfinityInThePrimaryMetricAreRefusedByArmAndSeed) {
  for (double bad : {kNaN, std::numeric_limits<double>::infinity()}) {
    plant("accuracy_24", 0.0, 0.01);
    reference_[6]["accuracy_24"] = bad;
    const auto [kind, what] = error();
    EXPECT_EQ(kind, FailureKind::nonfinite);
    EXPECT_THAT(what, HasSubstr("1x24 global, seed 6: accuracy_24 is "));
  }
}

TEST_F(Outcomes, NaNInAnotherMetricIsNamedAndNotCompared) {
  plant("accuracy_24", 0.0, 0.01);
  plant("train_loss", 0.0, 0.01);
  plant("temperature", 0.0, 0.01);
  cell_[3]["train_loss"] = kNaN;
  const Outcome o = judge();
  EXPECT_EQ(o.verdict, VerdictKind::equivalent);
  EXPECT_THAT(o.notes, ElementsAre("8x3 local, seed 3: train_loss is nan"));
  ASSERT_EQ(o.others.size(), 1u);
  EXPECT_EQ(o.others[0].metric, "temperature");
}

TEST_F(Outcomes, AMissingMetricIsRefused) {
  plant("accuracy_24", 0.0, 0.01);
  cell_[2].erase("accuracy_24");
  EXPECT_EQ(error().first, FailureKind::unmeasured);
  EXPECT_THAT(error().second, HasSubstr("8x3 local: seeds 2 have no accuracy_24"));
  primary_.metric = "accuracy_7";
  EXPECT_EQ(error().first, FailureKind::unmeasured);
}

TEST_F(Outcomes, AMetricOfOneArmAloneIsNotCompared) {
  plant("accuracy_24", 0.0, 0.01);
  for (auto& [seed, metrics] : cell_) metrics["energy_gap"] = 1.0;
  EXPECT_TRUE(judge().others.empty());
}

TEST(MetricNames, KnowTheirDirection) {
  EXPECT_EQ(higher_is_better("accuracy_256"), true);
  for (const char* name : {"cross_entropy_3", "cross_entropy_24_fitted", "loss_over_log_n", "train_loss"}) {
    EXPECT_EQ(higher_is_better(name), false) << name;
  }
  EXPECT_FALSE(higher_is_better("temperature"));
  EXPECT_EQ(higher_is_better("auc_accuracy_24"), true);
  EXPECT_EQ(higher_is_better("auc_cross_entropy_24"), false);
  EXPECT_FALSE(higher_is_better("auc_temperature"));
}

TEST(MetricNames, KnowWhichCurvesHaveAnArea) {
  EXPECT_TRUE(has_area("accuracy_24"));
  EXPECT_TRUE(has_area("cross_entropy_24"));
  for (const char* name :
       {"cross_entropy_24_fitted", "accuracy_24_permuted_context", "loss", "auc_accuracy_24"}) {
    EXPECT_FALSE(has_area(name)) << name;
  }
}

TEST(MetricNames, ReadAsWords) {
  EXPECT_EQ(metric_label("accuracy_24"), "24-way accuracy");
  EXPECT_EQ(metric_label("cross_entropy_24"), "raw cross-entropy (24-way)");
  EXPECT_EQ(metric_label("cross_entropy_24_fitted"), "temperature-fitted cross-entropy (24-way)");
  EXPECT_EQ(metric_label("train_loss_over_log_n"), "training loss / log N");
  EXPECT_EQ(metric_label("accuracy_of_all"), "accuracy_of_all");
  EXPECT_EQ(metric_label("auc_accuracy_24"), "area under the accuracy curve (24-way)");
  EXPECT_EQ(metric_label("auc_cross_entropy_24"), "area under the raw cross-entropy curve (24-way)");
  EXPECT_EQ(metric_label("auc_temperature"), "auc_temperature");
}

TEST(MetricNames, AreTakenApartInOnePlace) {
  const MetricName fitted = metric_name("cross_entropy_24_fitted");
  ASSERT_NE(fitted.spec, nullptr);
  EXPECT_EQ(fitted.spec->way, "24");
  EXPECT_EQ(fitted.spec->qualifier, "temperature-fitted");
  EXPECT_TRUE(metric_name("auc_accuracy_24").area);
  EXPECT_EQ(metric_name("auc_accuracy_24").spec, metric_name("accuracy_24").spec);
  EXPECT_EQ(metric_name("loss_over_log_n").spec, metric_name("train_loss_over_log_n").spec);
  EXPECT_EQ(metric_name("loss").spec, metric_name("train_loss").spec);
  EXPECT_TRUE(metric_name("train_loss").training);
  for (const char* name : {"", "accuracy_", "accuracy_x", "accuracy_1234567", "accuracy_24_of_all", "auc_loss",
                           "auc_accuracy_24_fitted", "auc_auc_accuracy_24", "auc_temperature"})
    EXPECT_EQ(metric_name(name).spec, nullptr) << name;
}

TEST(FormatDifference, ShowsTwoDigitsOfTheMargin) {
  EXPECT_EQ(format_difference(0.0944, 0.03), "0.094");
  EXPECT_EQ(format_signed_difference(-0.0004, 0.03), "+0.000");
  EXPECT_EQ(format_signed_difference(-1.26, 0.5), "-1.26");
  EXPECT_EQ(format_difference(12.6, 20), "13");
}

TEST_F(Outcomes, MoreSamplesThanTheReferenceSawAreSaid) {
  for (const double effect : {0.1, 0.001}) {
    plant("accuracy_24", effect, 0.01);
    const OutcomeInputs inputs{"8x24", "1x24", cell_, reference_, primary_, 8};
    EXPECT_THAT(judge_outcome(inputs).sentence, HasSubstr("10 paired seeds, 8 times the samples)"));
    EXPECT_THAT(judge().sentence, Not(HasSubstr("samples")));
  }
}

TEST(FormatAtLeast, RoundsUp) {
  EXPECT_EQ(format_difference(0.0301, 0.03), "0.030");
  EXPECT_EQ(format_at_least(0.0301, 0.03), "0.031");
  EXPECT_EQ(format_at_least(0.03, 0.03), "0.030");
}

}  // namespace
}  // namespace lockstep
