#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "harness/answer/results/words.h"
#include "harness/answer/stats/estimates.h"
#include "harness/answer/stats/outcome.h"
#include "harness/answer/stats/paired_curves.h"
#include "harness/base/numbers.h"
#include "tests/support/said.h"
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

TEST_F(Outcomes, TheSentenceSaysWhatReadsOtherwise) {
  support::Said said;
  struct Planted {
    const char* metric;
    double difference, sd;
  };
  const auto judged = [&](const char* what, const std::vector<Planted>& metrics) {
    cell_.clear(), reference_.clear();
    for (const Planted& each : metrics) plant(each.metric, each.difference, each.sd);
    said(what, judge().sentence);
  };
  const Planted lower{"accuracy_24", -0.094, 0.02};
  judged("the metrics agree", {lower, {"cross_entropy_24", 0.1, 0.02}, {"train_loss", 0, 0.02}});
  judged("one size of a family",
         {lower, {"cross_entropy_3", -0.1, 0.02}, {"cross_entropy_24", 0.1, 0.02}, {"cross_entropy_256", -0.1, 0.02}});
  judged("an area beside the end of its curve",
         {lower, {"cross_entropy_24", -0.1, 0.02}, {"auc_cross_entropy_24", -0.1, 0.02}});
  judged("a better cell", {{"accuracy_24", 0.1, 0.02}, {"train_loss", 0.1, 0.01}});
  primary_.metric = "cross_entropy_24";
  judged("lower is better", {{"cross_entropy_24", 0.1, 0.02}});
  EXPECT_FALSE(judge().primary.higher_is_better);
}

TEST_F(Outcomes, TooMuchScatterIsInconclusiveAndSaysHowManySeedsWouldDecide) {
  plant("accuracy_24", 0.005, 0.06);
  const Outcome o = judge();
  EXPECT_EQ(o.seeds_needed, seeds_needed({2, o.sd_upper, 0.03, 0.05, 0}));
  EXPECT_EQ(o.seeds_needed_half, seeds_needed({2, o.sd_upper, 0.03, 0.05, 0.015}));
  support::Said said;
  said("much scatter", o.sentence);
  const auto scattered = [&](const char* what, double difference, double sd) {
    plant("accuracy_24", difference, sd);
    said(what, judge().sentence);
  };
  scattered("a difference near the margin, which no number of seeds is sure to decide", 0.028, 0.01);
  scattered("an interval that holds 0", 0.020, 0.04);
  scattered("one that leaves 0 out", 0.024, 0.025);
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

TEST_F(Outcomes, SeedsWithoutAPartnerOrANumberAreRefusedByName) {
  support::Said said;
  const auto refused = [&](const char* what, const std::function<void()>& change) {
    cell_.clear(), reference_.clear();
    plant("accuracy_24", 0.0, 0.01);
    change();
    const auto [kind, words] = error();
    said(what, fmt::format("{}: {}", kind ? to_word(*kind) : "not refused", words));
  };
  refused("unpaired seeds", [this] { cell_.erase(3), reference_.erase(7); });
  refused("NaN", [this] { reference_[6]["accuracy_24"] = kNaN; });
  refused("infinity", [this] { reference_[6]["accuracy_24"] = kInfinity; });
  refused("a seed without the metric", [this] { cell_[2].erase("accuracy_24"); });
  refused("a metric that none has", [this] { primary_.metric = "accuracy_7"; });
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

TEST_F(Outcomes, AMetricOfOneArmAloneIsNotCompared) {
  plant("accuracy_24", 0.0, 0.01);
  for (auto& [seed, metrics] : cell_) metrics["energy_gap"] = 1.0;
  EXPECT_TRUE(judge().others.empty());
}

TEST(MetricNames, KnowTheirDirectionTheirAreaAndTheirWords) {
  support::Said said;
  for (const char* name :
       {"accuracy_256", "accuracy_24", "cross_entropy_3", "cross_entropy_24", "cross_entropy_24_fitted",
        "loss_over_log_n", "train_loss", "train_loss_over_log_n", "loss", "temperature", "auc_accuracy_24",
        "auc_cross_entropy_24", "auc_temperature", "accuracy_24_permuted_context", "accuracy_of_all"}) {
    const auto higher = higher_is_better(name);
    said(name, fmt::format("{}; {}{}", metric_label(name),
                           !higher   ? "without direction"
                           : *higher ? "higher is better"
                                     : "lower is better",
                           has_area(name) ? ", has an area" : ""));
  }
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

TEST(FormatDifference, ShowsTwoDigitsOfTheMarginAndRoundsUpWhereItMustBeReached) {
  EXPECT_EQ(format_difference(0.0944, 0.03), "0.094");
  EXPECT_EQ(format_signed_difference(-0.0004, 0.03), "+0.000");
  EXPECT_EQ(format_signed_difference(-1.26, 0.5), "-1.26");
  EXPECT_EQ(format_difference(12.6, 20), "13");
  EXPECT_EQ(format_difference(0.0301, 0.03), "0.030");
  EXPECT_EQ(format_at_least(0.0301, 0.03), "0.031");
  EXPECT_EQ(format_at_least(0.03, 0.03), "0.030");
}

TEST_F(Outcomes, MoreSamplesThanTheReferenceSawAreSaid) {
  for (const double effect : {0.1, 0.001}) {
    plant("accuracy_24", effect, 0.01);
    const OutcomeInputs inputs{"8x24", "1x24", cell_, reference_, primary_, 8};
    EXPECT_THAT(judge_outcome(inputs).sentence, HasSubstr("10 paired seeds, 8 times the samples)"));
    EXPECT_THAT(judge().sentence, Not(HasSubstr("samples")));
  }
}

using support::certain_bounds;
using support::Proportion;
using testing::IsEmpty;

/// Runs of two arms, whose curves a test plants.
class Curves : public testing::Test {
 protected:
  RunEvidence& cell(std::size_t seed) { return at(cells_, seed); }
  RunEvidence& reference(std::size_t seed) { return at(references_, seed); }

  /// accuracy_24 of every seed at steps 25, 50, ...: the reference at 0.5 + seed / 100, the cell further by
  /// `difference` of (seed, point).
  template <typename F>
  void plant(std::size_t seeds, std::size_t points, F difference) {
    for (std::size_t seed = 0; seed < seeds; ++seed) {
      Series own, other;
      for (std::size_t k = 0; k < points; ++k) {
        own.steps.push_back(25 * static_cast<int64_t>(k + 1));
        other.values.push_back(0.5 + 0.01 * static_cast<double>(seed));
        own.values.push_back(other.values.back() + difference(seed, k));
      }
      other.steps = own.steps;
      cell(seed).curves["accuracy_24"] = own;
      reference(seed).curves["accuracy_24"] = other;
    }
  }

  PairedRuns runs(int cell_batch = 24, int reference_batch = 24) const {
    PairedRuns runs{"8x3 local", "1x24 global", cell_batch, reference_batch, {}, {}, {}, "accuracy_24"};
    for (std::size_t seed = 0; seed < cells_.size(); ++seed) {
      runs.seeds.push_back(static_cast<int64_t>(seed));
      runs.cell_runs.push_back(&cells_[seed]);
      runs.reference_runs.push_back(&references_[seed]);
    }
    return runs;
  }
  PairedCurves curves(int cell_batch = 24, int reference_batch = 24) const {
    return *PairedCurves::of(runs(cell_batch, reference_batch), "accuracy_24");
  }

 private:
  static RunEvidence& at(std::vector<RunEvidence>& runs, std::size_t seed) {
    if (runs.size() <= seed) runs.resize(seed + 1);
    return runs[seed];
  }
  std::vector<RunEvidence> cells_, references_;
};

/// Uneven, of mean 0 over ten seeds.
double wobble(std::size_t seed) {
  constexpr double kOf[] = {0.9, -1.3, 0.2, 1.7, -0.6, -0.1, 1.1, -1.6, 0.4, -0.7};
  return kOf[seed % 10];
}

TEST_F(Curves, ADifferenceThatGrowsLeavesTheMarginAndThenLiesBeyond) {
  plant(10, 16, [](std::size_t seed, std::size_t k) {
    return -0.005 * static_cast<double>(k) + 0.004 * wobble(seed + k);
  });
  const CurveDifference d = *difference_of(curves(), 0.03, 0.05);
  EXPECT_EQ(d.steps.size(), 16u);
  EXPECT_GT(d.first_leaves, 0);
  EXPECT_GT(d.first_beyond, d.first_leaves);
  for (std::size_t k = 0; k < d.steps.size(); ++k) {
    EXPECT_LT(d.low[k], d.mean[k]);
    EXPECT_EQ(d.steps[k]<d.first_leaves, d.low[k]> - 0.03 && d.high[k] < 0.03) << d.steps[k];
  }
  EXPECT_EQ(d.note, "");
}

TEST_F(Curves, ADifferenceWithinTheMarginNeverLeavesIt) {
  plant(10, 16, [](std::size_t seed, std::size_t k) { return 0.004 * wobble(seed + k); });
  const CurveDifference d = *difference_of(curves(), 0.03, 0.05);
  EXPECT_EQ(d.first_leaves, -1);
  EXPECT_EQ(d.first_beyond, -1);
}

TEST_F(Curves, WithoutAMarginOnlyADifferenceOfZeroCanBeLeftBehind) {
  plant(10, 4,
        [](std::size_t seed, std::size_t k) { return (k > 1 ? 0.1 : 0.0) + 0.004 * wobble(seed + k); });
  const CurveDifference d = *difference_of(curves(), 0, 0.05);
  EXPECT_EQ(d.first_leaves, -1);
  EXPECT_EQ(d.first_beyond, 75);
}

TEST_F(Curves, TheBandIsWiderThanThePointwiseIntervalAndNoWiderThanBonferronis) {
  plant(10, 16, [](std::size_t seed, std::size_t k) { return 0.004 * wobble(seed * (k + 1)); });
  const CurveDifference d = *difference_of(curves(), 0.03, 0.05);
  std::vector<double> first;
  for (std::size_t seed = 0; seed < 10; ++seed) first.push_back(0.004 * wobble(seed));
  double squares = 0;
  for (double value : first) squares += value * value / 9.0;
  const double se = std::sqrt(squares / 10.0), c = (d.high[0] - d.mean[0]) / se;
  EXPECT_GE(c, 2.262157162798205);  // scipy 1.17: stats.t.ppf(0.975, 9)
  EXPECT_LE(c, 4.0024);             // stats.t.ppf(1 - 0.025 / 16, 9) = 4.0023...
}

TEST_F(Curves, WhereAllSeedsDifferAlikeTheBandIsThatDifference) {
  plant(10, 3, [](std::size_t seed, std::size_t k) {
    return k == 1 ? 0.004 * wobble(seed) : k == 2 ? 0.0625 : 0.0;
  });
  const CurveDifference d = *difference_of(curves(), 0.03, 0.05);
  EXPECT_EQ(d.low[0], 0.0);
  EXPECT_EQ(d.high[0], 0.0);
  EXPECT_GT(d.high[1], d.low[1]);
  EXPECT_NEAR(d.low[2], 0.0625, 1e-12);
  EXPECT_EQ(d.first_beyond, 75);
}

TEST_F(Curves, OneSeedHasNoBandAndTwoHaveAWideOne) {
  plant(1, 3, [](std::size_t, std::size_t) { return 0.0; });
  EXPECT_FALSE(difference_of(curves(), 0.03, 0.05));
  plant(2, 3, [](std::size_t seed, std::size_t) { return 0.01 * wobble(seed); });
  const CurveDifference d = *difference_of(curves(), 0.03, 0.05);
  EXPECT_TRUE(std::isfinite(d.high[0]));
  EXPECT_GT(d.high[0], 0.1);
  EXPECT_EQ(d.first_leaves, 25);
}

TEST_F(Curves, TheBandHasTheSameBitsEachTime) {
  plant(10, 16, [](std::size_t seed, std::size_t k) { return 0.004 * wobble(seed * (k + 1)); });
  EXPECT_EQ(difference_of(curves(), 0.03, 0.05)->low, difference_of(curves(), 0.03, 0.05)->low);
}

struct BandTrials {
  std::size_t seeds = 10;
  double width = 1;  ///< share of the band's width that is tried
};

/// How often a band over 12 steps of a random walk of normal steps holds the truth, 0, at all of them.
Proportion band_coverage(const BandTrials& trials) {
  std::mt19937_64 generator(trials.seeds);
  std::normal_distribution<double> normal;
  Proportion holds;
  PairedCurves curves;
  curves.metric = "accuracy_24";
  for (int64_t k = 1; k <= 12; ++k) curves.cell_steps.push_back(25 * k);
  curves.reference_steps = curves.cell_steps;
  curves.reference.assign(trials.seeds, std::vector<double>(12, 0.0));
  for (holds.trials = 0; holds.trials < 300; ++holds.trials) {
    curves.cell.assign(trials.seeds, {});
    for (auto& of_seed : curves.cell) {
      double walk = 0;
      for (int k = 0; k < 12; ++k) of_seed.push_back(walk += normal(generator));
    }
    const CurveDifference d = *difference_of(curves, 0.03, 0.05);
    bool all = true;
    for (std::size_t k = 0; k < 12; ++k) {
      all = all && std::abs(d.mean[k]) <= trials.width * (d.high[k] - d.mean[k]);
    }
    holds.hits += all ? 1 : 0;
  }
  return holds;
}

TEST(CurveBand, HoldsAtAllStepsAtOnceAsOftenAsItSays) {
  for (std::size_t seeds : {3u, 5u, 10u, 20u}) {
    EXPECT_GE(certain_bounds(band_coverage({seeds})).high, 0.95) << seeds;
  }
}

TEST(CurveBand, APointwiseBandWouldBeCaught) {
  // 2.262 of about 4: what Student's interval of each step by itself would be.
  EXPECT_LT(certain_bounds(band_coverage({10, 0.57})).high, 0.95);
}

TEST_F(Curves, OfUnequalBatchesAreMatchedBySamplesSeen) {
  // 24 rows a step against 3: the cell's step 25 stands against the reference's step 200.
  for (std::size_t seed = 0; seed < 3; ++seed) {
    cell(seed).curves["accuracy_24"] = {{25, 50, 60}, {0.4, 0.6, 0.7}};
    reference(seed).curves["accuracy_24"] = {{25, 200, 300, 400, 480}, {0.1, 0.3, 0.4, 0.5, 0.9}};
  }
  const PairedCurves c = curves(24, 3);
  EXPECT_THAT(c.cell_steps, ElementsAre(25, 50, 60));
  EXPECT_THAT(c.reference_steps, ElementsAre(200, 400, 480));
  EXPECT_THAT(c.reference[1], ElementsAre(0.3, 0.5, 0.9));
  EXPECT_THAT(c.note, HasSubstr("samples"));
  EXPECT_EQ(difference_of(c, 0.03, 0.05)->note, c.note);
}

TEST_F(Curves, WithoutACommonPointThereIsNothingToCompare) {
  plant(3, 4, [](std::size_t, std::size_t) { return 0.0; });
  cell(1).curves["accuracy_24"].steps = {1, 2, 3, 4};
  EXPECT_FALSE(PairedCurves::of(runs(), "accuracy_24"));
  EXPECT_FALSE(PairedCurves::of(runs(), "accuracy_7"));
}

TEST(AreaUnder, IsAMeanHeight) {
  EXPECT_DOUBLE_EQ(area_under({0, 10}, {2.0, 2.0}), 2.0);
  EXPECT_DOUBLE_EQ(area_under({25, 50, 100}, {0.0, 1.0, 3.0}), (12.5 + 100.0) / 75.0);
  EXPECT_TRUE(std::isnan(area_under({0, 10, 20}, {1.0, kNaN, 1.0})));
}

TEST_F(Curves, AreasAreTakenOverThePointsThatBothArmsHave) {
  for (std::size_t seed = 0; seed < 2; ++seed) {
    cell(seed).curves["accuracy_24"] = {{25, 50}, {0.5, 0.7}};
    reference(seed).curves["accuracy_24"] = {{25, 200, 400}, {0.0, 0.5, 0.7}};
  }
  MetricsBySeed own{{0, {{"auc_accuracy_24", 0.6}}}, {1, {{"auc_accuracy_24", 0.6}}}};
  MetricsBySeed other{{0, {{"auc_accuracy_24", 0.2}}}, {1, {{"auc_accuracy_24", 0.2}}}};
  align_areas(runs(24, 3), own, other);
  EXPECT_DOUBLE_EQ(own[0]["auc_accuracy_24"], 0.6);
  EXPECT_DOUBLE_EQ(other[1]["auc_accuracy_24"], 0.6);
  align_areas(runs(24, 24), own, other);
  EXPECT_THAT(own[0], IsEmpty()) << "one common point has no area";
}

class Target : public Curves {
 protected:
  /// Runs that reach 0.8 at the given points of 4; 4: never.
  void reach(const std::vector<std::size_t>& own, const std::vector<std::size_t>& other) {
    for (std::size_t seed = 0; seed < own.size(); ++seed) {
      cell(seed).curves["accuracy_24"] = rising(own[seed]);
      reference(seed).curves["accuracy_24"] = rising(other[seed]);
    }
  }

 private:
  static Series rising(std::size_t there) {
    Series series;
    for (std::size_t k = 0; k < 4; ++k) {
      series.steps.push_back(25 * static_cast<int64_t>(k + 1));
      series.values.push_back(k >= there ? 0.85 : 0.1);
    }
    return series;
  }
};

TEST_F(Target, GivesMediansRatiosAndWhoIsSooner) {
  support::Said said;
  const auto reached = [&](const char* what, const std::vector<std::size_t>& own, const std::vector<std::size_t>& other,
                           double target = 0.8, bool higher = true) {
    reach(own, other);
    const TargetReach t = reach_of(curves(), target, higher, 0.05);
    const auto in_words = [](const Interval& i) {
      return fmt::format("[{:g}, {:g}] at {:.12g}", i.low, i.high, i.level);
    };
    said(what, fmt::format("{} and {} of {} reached it, medians {:g} {} and {:g} {}; ratio {:g} {} of {}; {} sooner, "
                           "{} later, {} tied, p {:.12g}",
                           t.cell_reached, t.reference_reached, t.n, t.cell_median, in_words(t.cell_interval),
                           t.reference_median, in_words(t.reference_interval), t.ratio, in_words(t.ratio_interval),
                           t.ratio_n, t.sooner, t.later, t.tied, t.p));
  };
  using Points = std::vector<std::size_t>;
  reached("runs that never get there count as last", {0, 1, 4, 4, 1}, {0, 4, 4, 4, 4});
  reached("half that never get there have no median", {0, 0, 4, 4}, {0, 1, 2, 3});
  // Steps 25 to 100. Ten runs: between the second and the ninth, level 1 - 2 P(X < 2), X ~ Bin(10, 1/2) = 1 - 22 / 1024. Ratios are 0.5, six
  // times 1, 1.5, 1.5 and 2 without the last pair: second smallest and second largest of nine, level 1 - 20 / 512.
  reached("intervals between order statistics", {0, 0, 0, 1, 1, 1, 2, 2, 3, 4}, {0, 0, 1, 1, 1, 1, 1, 1, 1, 4});
  reached("of a pair one alone gets there", {0, 0, 4, 4}, {4, 4, 4, 0});
  reached("none gets there", {4, 4, 4, 4}, {4, 4, 4, 4});
  // scipy 1.17: stats.binomtest(0, 10).pvalue, stats.binomtest(3, 10).pvalue
  reached("always sooner, p 0.001953125", Points(10, 0), Points(10, 1));
  reached("three of ten sooner, p 0.34375", {0, 0, 0, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 0, 0, 0, 0, 0, 0, 0});
  reached("at once", Points(10, 1), Points(10, 1));
  reached("lower is better, from above", {0, 0}, {1, 1}, 0.5, false);
}
TEST_F(Curves, FillTheOutcome) {
  plant(10, 16, [](std::size_t seed, std::size_t k) { return 0.004 * wobble(seed + k); });
  Outcome outcome;
  judge_curves(runs(), {"accuracy_24", 0.03, 0.05, 0.55}, outcome);
  ASSERT_EQ(outcome.curves.size(), 1u);
  ASSERT_TRUE(outcome.target);
  EXPECT_EQ(outcome.target->target, 0.55);
  EXPECT_THAT(outcome.notes, IsEmpty());
  outcome = {};
  judge_curves(runs(), {"cross_entropy_24", 0.03, 0.05, 0.55}, outcome);
  EXPECT_EQ(outcome.curves.at(0).margin, 0) << "no margin was declared for accuracy";
  EXPECT_FALSE(outcome.target);
  EXPECT_THAT(outcome.notes, ElementsAre(HasSubstr("cross_entropy_24 has no curve")));
}

TEST_F(Curves, ANaNIsNotedByRunSeedAndStepAndNotCompared) {
  plant(10, 4, [](std::size_t seed, std::size_t) { return 0.004 * wobble(seed); });
  reference(7).curves["accuracy_24"].values[2] = kNaN;
  Outcome outcome;
  judge_curves(runs(), {"cross_entropy_24", 0.03, 0.05}, outcome);
  EXPECT_THAT(outcome.curves, IsEmpty());
  EXPECT_THAT(outcome.notes, ElementsAre("1x24 global, seed 7: accuracy_24 is nan at step 75"));
}

}  // namespace
}  // namespace lockstep
