#include "harness/base/numbers.h"
#include "harness/verdict/evidence/run_evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "harness/verdict/config/metrics.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/results/metric_names.h"
#include "tests/support/fake_run.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Evidence : public testing::Test {
 protected:
  Evidence() : dir_(testing::TempDir() + "lockstep_run_evidence_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(dir_);
    run_.id = "8x3";
    run_.config.layout = {3, 8};
    run_.config.steps = 4;
    for (int rank = 0; rank < 3; ++rank) {
      RankResult r;
      r.rank = rank;
      r.world_size = 3;
      r.status = "finished";
      r.steps_done = 4;
      r.curves["loss_over_log_n"] = {{0, 1, 2, 3}, {1.0 * rank, 2.0, 3.0, 4.0}};
      r.curves["energy_negative"] = {{0}, {kNaN}};
      if (rank == 0) r.metrics["accuracy_24"] = 0.5;
      results_[path(rank)] = r;
    }
  }
  ~Evidence() override { std::filesystem::remove_all(dir_); }

  std::string path(int rank) const { return dir_ + "/rank-" + std::to_string(rank) + ".result.json"; }
  RankResult& result(int rank) { return results_.at(path(rank)); }
  RunEvidence gather(const Failure* launched = nullptr) const {
    return gather_run(run_, dir_, launched, [this](const std::string& path) -> RankResult {
      const auto found = results_.find(path);
      if (found == results_.end()) throw std::runtime_error(path + ": line 3: not JSON");
      return found->second;
    });
  }

  std::string dir_;
  PlannedRun run_;
  std::map<std::string, RankResult> results_;
};

TEST_F(Evidence, AFinishedRunGivesMetricsAndCurvesMeanOverRanks) {
  const RunEvidence evidence = gather();
  EXPECT_FALSE(evidence.failure);
  EXPECT_THAT(evidence.curves.at("loss_over_log_n").values, ElementsAre(1.0, 2.0, 3.0, 4.0));
  EXPECT_EQ(evidence.metrics.at("train_loss_over_log_n"), 2.5);
  EXPECT_EQ(evidence.metrics.at("accuracy_24"), 0.5);
  EXPECT_FALSE(evidence.metrics.contains("train_loss"));
}

TEST_F(Evidence, AFaultThatChangedNothingOnAnyRankIsIdle) {
  EXPECT_FALSE(gather().idle_fault) << "nothing was planted";
  run_.config.mutant.name = "collective_missing";
  const RunEvidence idle = gather();
  EXPECT_FALSE(idle.failure) << "the run itself is sound";
  ASSERT_TRUE(idle.idle_fault);
  EXPECT_EQ(idle.idle_fault->kind, FailureKind::idle);
  EXPECT_THAT(idle.idle_fault->message, HasSubstr("the planted fault collective_missing"));
  EXPECT_THAT(idle.idle_fault->message, HasSubstr("running_stats=true"));
  result(2).faults_acted = {"mutant"};
  EXPECT_FALSE(gather().idle_fault) << "one rank is enough";
  run_.config.second_mutant.name = "grad_scale";
  ASSERT_TRUE(gather().idle_fault) << "each of two must act";
  EXPECT_THAT(gather().idle_fault->message, HasSubstr("grad_scale"));
  result(0).faults_acted = {"second_mutant"};
  EXPECT_FALSE(gather().idle_fault);
}

TEST_F(Evidence, WhatTheLauncherSawComesFirst) {
  Failure hung;
  hung.kind = FailureKind::hung;
  results_.erase(path(1));
  EXPECT_EQ(gather(&hung).failure->kind, FailureKind::hung);
}

TEST_F(Evidence, ARankWithoutResultIsLostAndNamedBeforeThoseThatThrewBecauseOfIt) {
  result(0).status = "failed";
  result(0).error = "connection closed by peer";
  results_.erase(path(2));
  const Failure failure = *gather().failure;
  EXPECT_EQ(failure.kind, FailureKind::lost);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_THAT(failure.message, HasSubstr(path(2)));
}

TEST_F(Evidence, AResultThatIsThereButTornIsUnreadable) {
  results_.erase(path(1));
  std::ofstream(path(1)) << "{\"rank\":";
  const Failure failure = *gather().failure;
  EXPECT_EQ(failure.kind, FailureKind::unreadable);
  EXPECT_THAT(failure.message, HasSubstr("not JSON"));
}

TEST_F(Evidence, TheRankThatThrewFirstIsNamed) {
  for (int rank : {0, 1, 2}) {
    result(rank).status = "failed";
    result(rank).error = "rank " + std::to_string(rank);
    result(rank).steps_done = rank == 1 ? 2 : 3;
    result(rank).phase = "train";
  }
  const Failure failure = *gather().failure;
  EXPECT_EQ(failure.kind, FailureKind::threw);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.step, 2);
  EXPECT_EQ(failure.operation, "train");
  EXPECT_EQ(failure.message, "rank 1");
}

TEST_F(Evidence, ResultsOfAnotherRunAreRefused) {
  result(1).world_size = 8;
  EXPECT_THAT(gather().failure->message, HasSubstr("rank 1 of 8, where rank 1 of 3 was expected"));
  result(1).world_size = 3;
  result(1).status = "great";
  EXPECT_THAT(gather().failure->message, HasSubstr("unknown status \"great\""));
  result(1).status = "finished";
  run_.hash = "c0ffee";
  result(1).config_hash = "c0ffee";
  EXPECT_FALSE(gather().failure) << "the others do not say";
  result(1).config_hash = "decaf";
  EXPECT_EQ(gather().failure->kind, FailureKind::unreadable);
  EXPECT_THAT(gather().failure->message,
              HasSubstr(path(1) + " is of another run: its config hash is decaf, where c0ffee was expected"));
}

TEST_F(Evidence, FinishedMeansAllSteps) {
  result(2).steps_done = 3;
  const Failure failure = *gather().failure;
  EXPECT_EQ(failure.kind, FailureKind::lost);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_THAT(failure.message, HasSubstr("after 3 of 4 steps"));
  run_.role = RunRole::forced_cell;
  EXPECT_FALSE(gather().failure);
}

TEST_F(Evidence, NaNInALossNamesRankAndFirstStep) {
  result(2).curves["loss_over_log_n"].values = {1.0, 2.0, kNaN, kNaN};
  result(1).curves["loss_over_log_n"].values[3] = std::numeric_limits<double>::infinity();
  const Failure failure = *gather().failure;
  EXPECT_EQ(failure.kind, FailureKind::nonfinite);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_EQ(failure.step, 2);
  EXPECT_EQ(failure.message, "loss_over_log_n is nan on rank 2 at step 2, seed 0");
}

TEST_F(Evidence, TheFirstValueInTheTracesThatIsNotFiniteIsThePlace) {
  result(0).curves["loss"] = {{0, 1, 2, 3}, {1.0, 2.0, 3.0, kNaN}};
  support::FakeRun traced;
  traced.steps = support::steps_up_to(4);
  traced.fault = [](support::FakeStep& it) {
    if (it.step == 0) it.energies[0] = std::numeric_limits<float>::infinity();  // of a candidate that is masked
    if (it.step == 2 && it.rank == 2) it.local_gradients[1].second[3] = std::numeric_limits<float>::quiet_NaN();
    if (it.step >= 2) it.reduced_gradients[1].second[3] = std::numeric_limits<float>::quiet_NaN();
  };
  TempFolder folder;
  support::write_fake_run(folder / "run", traced);
  const auto read = [this](const std::string& file) {
    return results_.at(path(std::stoi(file.substr(file.rfind("rank-") + 5))));
  };
  const Failure failure = *gather_run(run_, folder / "run", nullptr, read).failure;
  EXPECT_EQ(failure.kind, FailureKind::nonfinite);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_EQ(failure.step, 2);
  EXPECT_EQ(failure.message,
            "local gradients, context_encoder.bias1: not finite on rank 2 at step 2; loss is nan on rank 0 at step 3, seed 0");
}

TEST_F(Evidence, NaNInThePrimaryMetricOrItsCurveFailsTheRun) {
  result(0).metrics["accuracy_24"] = kNaN;
  EXPECT_EQ(gather().failure->message, "accuracy_24 is nan at the end of the run, seed 0");
  result(0).metrics["accuracy_24"] = 0.5;
  result(0).curves["accuracy_24"] = {{2, 4}, {kNaN, 0.5}};
  EXPECT_EQ(gather().failure->message, "accuracy_24 is nan on rank 0 at step 2, seed 0");
}

TEST_F(Evidence, NaNInAnotherMetricIsHandedOn) {
  result(0).metrics["cross_entropy_24"] = kNaN;
  result(0).curves["cross_entropy_24"] = {{2, 4}, {1.0, kNaN}};
  const RunEvidence evidence = gather();
  EXPECT_FALSE(evidence.failure);
  EXPECT_TRUE(std::isnan(evidence.metrics.at("cross_entropy_24")));
  EXPECT_TRUE(std::isnan(evidence.metrics.at("auc_cross_entropy_24")));
}

TEST_F(Evidence, AreasAreTakenUnderCurvesOfAtLeastTwoPoints) {
  result(0).curves["accuracy_24"] = {{1, 2, 4}, {0.0, 0.5, 0.5}};
  result(0).curves["accuracy_3"] = {{4}, {0.5}};
  const RunEvidence evidence = gather();
  EXPECT_DOUBLE_EQ(evidence.metrics.at("auc_accuracy_24"), (0.25 + 1.0) / 3.0);
  EXPECT_FALSE(evidence.metrics.contains("auc_accuracy_3"));
  EXPECT_FALSE(evidence.metrics.contains("auc_loss_over_log_n"));
}

TEST_F(Evidence, CurvesOfUnequalStepsAreNotAveraged) {
  result(1).curves["loss_over_log_n"].steps = {0, 1, 2, 9};
  EXPECT_THAT(gather().failure->message, HasSubstr("rank 1: its curve loss_over_log_n"));
  result(1).curves["loss_over_log_n"].steps = {0, 1, 2};
  EXPECT_THAT(gather().failure->message, HasSubstr("3 steps and 4 values"));
}

RunEvidence with_curve(const std::vector<int64_t>& steps, const std::vector<double>& values) {
  RunEvidence evidence;
  evidence.curves["accuracy_24"] = {steps, values};
  return evidence;
}

TEST(MetricNames, AreasAreTakenOfWhatThePlannerSays) {
  const std::vector<std::string> known = outcome_metrics(spec_of(RunConfig{}));
  for (const MetricSpec& entry : spec_of(RunConfig{}).metrics()) {
    // A curve of one point has no area.
    const bool followed = entry.when == MetricSpec::When::evaluation;
    EXPECT_EQ(followed && has_area(entry.name), entry.has_area) << entry.name;
  }
  for (const std::string_view metric :
       {std::string_view("train_loss"), std::string_view("train_loss_over_log_n"), spec_of(RunConfig{}).shown_metric}) {
    EXPECT_NE(std::ranges::find(known, metric), known.end()) << metric;
  }
}

TEST(CurveBands, AreMedianSmallestAndLargestOverSeeds) {
  const RunEvidence a = with_curve({0, 25}, {1, 5}), b = with_curve({0, 25}, {2, 7}),
                    c = with_curve({0, 25}, {9, 6});
  const auto bands = curve_bands({&a, &b, &c}, {"accuracy_24", "loss_over_log_n"});
  ASSERT_EQ(bands.size(), 1u);
  EXPECT_THAT(bands[0].steps, ElementsAre(0, 25));
  EXPECT_THAT(bands[0].median, ElementsAre(2, 6));
  EXPECT_THAT(bands[0].low, ElementsAre(1, 5));
  EXPECT_THAT(bands[0].high, ElementsAre(9, 7));
  EXPECT_THAT(curve_bands({&a, &b}, {"accuracy_24"})[0].median, ElementsAre(1.5, 6));
}

TEST(CurveBands, KeepTheStepsThatAllSeedsHave) {
  const RunEvidence a = with_curve({0, 25, 50}, {1, 2, 3}), b = with_curve({0, 50}, {4, 5});
  EXPECT_THAT(curve_bands({&a, &b}, {"accuracy_24"})[0].steps, ElementsAre(0, 50));
  EXPECT_TRUE(curve_bands({}, {"accuracy_24"}).empty());
}

TEST(CurveBands, ThinningKeepsTheEndsAndTheExtremes) {
  std::vector<int64_t> steps;
  std::vector<double> values;
  for (int64_t step = 0; step < 5000; ++step) {
    steps.push_back(step);
    values.push_back(std::sin(static_cast<double>(step) / 40.0));
  }
  values[1234] = 50;
  values[3210] = -50;
  const RunEvidence a = with_curve(steps, values);
  const CurveBand band = curve_bands({&a}, {"accuracy_24"})[0];
  EXPECT_LE(band.steps.size(), 300u);
  EXPECT_GT(band.steps.size(), 200u);
  EXPECT_EQ(band.steps.front(), 0);
  EXPECT_EQ(band.steps.back(), 4999);
  EXPECT_TRUE(std::ranges::is_sorted(band.steps));
  EXPECT_EQ(std::ranges::max(band.high), 50);
  EXPECT_EQ(std::ranges::min(band.low), -50);
}

}  // namespace
}  // namespace lockstep
