#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness/answer/questions/question_judge.h"
#include "harness/answer/results/words.h"
#include "harness/base/numbers.h"
#include "harness/judge/evidence/noise.h"
#include "harness/judge/evidence/parts.h"
#include "harness/judge/evidence/run_evidence.h"
#include "harness/judge/trace/record.h"
#include "harness/judge/trace/writer.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/plan_history.h"
#include "tests/support/json_schema.h"
#include "tests/support/made_run.h"
#include "tests/support/said.h"
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

TEST_F(Evidence, SaysHowARunFailedAndWhichRankFirst) {
  support::Said said(dir_);
  const auto results = results_;
  const PlannedRun run = run_;
  const auto judged = [&](const char* what, const std::function<void()>& change, const Failure* launched = nullptr) {
    results_ = results, run_ = run;
    change();
    const std::optional<Failure> failure = gather(launched).failure;
    said(what, !failure ? "no failure"
                        : fmt::format("{}, rank {}, step {}, {}: {}", to_word(failure->kind), failure->rank,
                                      failure->step, failure->operation, failure->message));
  };
  Failure hung;
  hung.kind = FailureKind::hung;
  judged("what the launcher saw comes first", [this] { results_.erase(path(1)); }, &hung);
  judged("a rank without result before those that threw because of it", [this] {
    result(0).status = "failed", result(0).error = "connection closed by peer";
    results_.erase(path(2));
  });
  judged("the rank that threw first", [this] {
    for (const int rank : {0, 1, 2}) {
      result(rank).status = "failed", result(rank).error = "rank " + std::to_string(rank);
      result(rank).steps_done = rank == 1 ? 2 : 3, result(rank).phase = "train";
    }
  });
  judged("of another world", [this] { result(1).world_size = 8; });
  judged("an unknown status", [this] { result(1).status = "great"; });
  judged("of the right hash, and the others do not say", [this] { run_.hash = result(1).config_hash = "c0ffee"; });
  judged("of another hash", [this] { run_.hash = "c0ffee", result(1).config_hash = "decaf"; });
  judged("finished before all steps", [this] { result(2).steps_done = 3; });
  judged("finished before all steps of a forced run",
         [this] { result(2).steps_done = 3, run_.role = RunRole::forced_cell; });
  judged("NaN in a loss", [this] {
    result(2).curves["loss_over_log_n"].values = {1.0, 2.0, kNaN, kNaN};
    result(1).curves["loss_over_log_n"].values[3] = kInfinity;
  });
  judged("NaN in the primary metric", [this] { result(0).metrics["accuracy_24"] = kNaN; });
  judged("NaN in its curve", [this] { result(0).curves["accuracy_24"] = {{2, 4}, {kNaN, 0.5}}; });
  judged("a curve of other steps", [this] { result(1).curves["loss_over_log_n"].steps = {0, 1, 2, 9}; });
  judged("a curve of fewer steps", [this] { result(1).curves["loss_over_log_n"].steps = {0, 1, 2}; });
  judged("there and torn", [this] {
    results_.erase(path(1));
    std::ofstream(path(1)) << "{\"rank\":";
  });
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

using testing::IsEmpty;
using Shape = std::vector<int64_t>;

/// What a rank records of its part, as a reader gives it.
struct PartOf {
  Phase phase = Phase::parameters;
  Shape whole, offset;
  bool shard = true, values = true;
};

Record record_of(const PartOf& it, const Shape& shape, const std::vector<float>& values) {
  Record record;
  record.phase = it.phase;
  record.name = "w";
  record.shape = shape;
  record.has_stats = true;
  Shape positions(shape.empty() ? 0 : static_cast<std::size_t>(shape[0]));
  std::iota(positions.begin(), positions.end(), it.offset.empty() ? 0 : it.offset[0]);
  record.stats = tensor_stats({values.data(), DType::float32, shape, positions});
  record.hashed = Hashed::rows;
  record.placement = std::make_shared<const Placement>(Placement{it.shard, it.whole, it.offset});
  if (it.values && !values.empty()) {
    record.payload.resize(values.size() * sizeof(float));
    std::memcpy(record.payload.data(), values.data(), record.payload.size());
  }
  return record;
}

StepOfRun joined(const std::vector<std::vector<Record>>& ranks) {
  StepOfRun step;
  step.step = 3;
  for (const std::vector<Record>& records : ranks) step.ranks.push_back({3, records});
  put_together(step);
  return step;
}

const Record& whole_on(const StepOfRun& step, std::size_t rank) { return step.ranks[rank].records.front(); }

uint64_t hash_of(const std::vector<float>& values, const Shape& shape, const Shape& positions = {}) {
  return tensor_stats({values.data(), DType::float32, shape, positions}).hash;
}

const std::vector<float> kWhole{1, 2, 3, 4, 5, -6};  // [3, 2]

TEST(PutTogether, PartsOfRowsMakeTheWholeOnEveryRankWithItsValuesOnTheFirst) {
  const StepOfRun step = joined({{record_of({.whole = {3, 2}, .offset = {0, 0}}, {2, 2}, {1, 2, 3, 4})},
                                 {record_of({.whole = {3, 2}, .offset = {2, 0}}, {1, 2}, {5, -6})}});
  for (const std::size_t rank : {0u, 1u}) {
    const Record& whole = whole_on(step, rank);
    EXPECT_THAT(whole.shape, ElementsAre(3, 2));
    EXPECT_TRUE(whole.replicated);
    EXPECT_EQ(whole.stats.hash, hash_of(kWhole, {3, 2})) << "that of a tensor which nobody partitioned";
    EXPECT_EQ(whole.hashed, Hashed::whole);
    EXPECT_FLOAT_EQ(static_cast<float>(whole.stats.norm), 9.539392F);
    EXPECT_EQ(whole.stats.min, -6);
    EXPECT_EQ(whole.stats.max, 5);
  }
  EXPECT_THAT(values_of(whole_on(step, 0)).value(), ElementsAre(1, 2, 3, 4, 5, -6));
  EXPECT_FALSE(values_of(whole_on(step, 1)));
  ASSERT_EQ(step.parts.size(), 2u);
  ASSERT_EQ(step.parts[1].size(), 1u);
  EXPECT_THAT(step.parts[1][0].shape, ElementsAre(1, 2)) << "what the rank held is kept";
  EXPECT_THAT(step.bearers, IsEmpty());
}

TEST(PutTogether, PartsOfColumnsStandAtTheirPlaces) {
  const StepOfRun step = joined({{record_of({.whole = {2, 3}, .offset = {0, 0}}, {2, 1}, {1, 4})},
                                 {record_of({.whole = {2, 3}, .offset = {0, 1}}, {2, 2}, {2, 3, 5, -6})}});
  EXPECT_THAT(values_of(whole_on(step, 0)).value(), ElementsAre(1, 2, 3, 4, 5, -6));
  EXPECT_EQ(whole_on(step, 0).stats.hash, hash_of(kWhole, {2, 3}));
  EXPECT_EQ(whole_on(step, 1).stats.hash, whole_on(step, 0).stats.hash);
}

TEST(PutTogether, PartsOfAMeshOfTwoDimensionsStandAtTheirPlaces) {
  std::vector<std::vector<Record>> ranks;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto value = static_cast<float>(rank);
    ranks.push_back({record_of({.whole = {2, 2, 2}, .offset = {rank / 2, rank % 2, 0}}, {1, 1, 2}, {value, 10 + value})});
  }
  const StepOfRun step = joined(ranks);
  EXPECT_THAT(values_of(whole_on(step, 0)).value(), ElementsAre(0, 10, 1, 11, 2, 12, 3, 13));
}

TEST(PutTogether, AnEmptyPartAddsNothingAndNoExtremes) {
  const StepOfRun step = joined({{record_of({.whole = {2}, .offset = {0}}, {1}, {3})},
                                 {record_of({.whole = {2}, .offset = {1}}, {1}, {4})},
                                 {record_of({.whole = {2}, .offset = {2}}, {0}, {})}});
  EXPECT_THAT(values_of(whole_on(step, 0)).value(), ElementsAre(3, 4));
  EXPECT_EQ(whole_on(step, 2).stats.min, 3) << "and not the 0 of a part without elements";
  EXPECT_EQ(whole_on(step, 2).stats.max, 4);
  EXPECT_THAT(whole_on(step, 2).shape, ElementsAre(2));
}

TEST(PutTogether, ARankThatLeavesItsEmptyPartOutHasTheWholeToo) {
  const StepOfRun step = joined({{record_of({.whole = {1}, .offset = {0}}, {1}, {3})}, {}});
  ASSERT_EQ(step.ranks[1].records.size(), 1u);
  EXPECT_EQ(whole_on(step, 1).stats.hash, hash_of({3}, {1}));
}

TEST(PutTogether, WithoutValuesHashesOfRowsAddUpAndThoseOfColumnsAreOfParts) {
  const auto part = [](const Shape& whole, const Shape& offset, const Shape& shape, const std::vector<float>& values) {
    return record_of({.whole = whole, .offset = offset, .values = false}, shape, values);
  };
  const StepOfRun rows = joined({{part({3, 2}, {0, 0}, {2, 2}, {1, 2, 3, 4})},
                                 {part({3, 2}, {2, 0}, {1, 2}, {5, -6})}});
  EXPECT_EQ(whole_on(rows, 0).hashed, Hashed::rows);
  EXPECT_EQ(whole_on(rows, 0).stats.hash, hash_of(kWhole, {3, 2}, {0, 1, 2}));
  EXPECT_TRUE(whole_on(rows, 0).payload.empty());
  const StepOfRun columns = joined({{part({2, 3}, {0, 0}, {2, 1}, {1, 4})},
                                    {part({2, 3}, {0, 1}, {2, 2}, {2, 3, 5, -6})}});
  const StepOfRun other = joined({{part({2, 3}, {0, 0}, {2, 1}, {1, 4})},
                                  {part({2, 3}, {0, 1}, {2, 2}, {2, 3, 5, 6})}});
  EXPECT_EQ(whole_on(columns, 0).hashed, Hashed::parts) << "to be compared with no other kind";
  EXPECT_NE(whole_on(columns, 0).stats.hash, whole_on(other, 0).stats.hash);
}

TEST(PutTogether, ARankWhosePartIsNotThatOfItsReplicaKeepsAWholeOfItsOwn) {
  const auto half = [](int64_t begin, float value) { return record_of({.whole = {4}, .offset = {begin}}, {2}, {value, value + 1}); };
  const StepOfRun step = joined({{half(0, 1)}, {half(2, 3)}, {half(0, 1)}, {half(2, 3)}});
  for (const std::size_t rank : {1u, 2u, 3u}) EXPECT_EQ(whole_on(step, rank).stats.hash, whole_on(step, 0).stats.hash);
  const StepOfRun wrong = joined({{half(0, 1)}, {half(2, 3)}, {half(0, 1)}, {half(2, 7)}});
  for (const std::size_t rank : {0u, 1u, 2u}) EXPECT_EQ(whole_on(wrong, rank).stats.hash, hash_of({1, 2, 3, 4}, {4}));
  EXPECT_EQ(whole_on(wrong, 3).stats.hash, hash_of({1, 2, 7, 8}, {4}));
}

TEST(PutTogether, WhatIsNotAllThereStaysInParts) {
  const Record first = record_of({.whole = {4}, .offset = {0}}, {2}, {1, 2});
  Record of_other_whole = record_of({.whole = {5}, .offset = {2}}, {2}, {3, 4}), of_other_type = record_of({.whole = {4}, .offset = {2}}, {2}, {3, 4});
  of_other_type.dtype = DType::int32;
  for (const Record& second : {record_of({.whole = {4}, .offset = {2}}, {1}, {3}), of_other_whole, of_other_type}) {
    const StepOfRun step = joined({{first}, {second}});
    EXPECT_THAT(whole_on(step, 0).shape, ElementsAre(2));
    EXPECT_FALSE(whole_on(step, 0).replicated);
    ASSERT_EQ(step.parts.size(), 2u);
    EXPECT_THAT(step.parts[0], IsEmpty());
  }
}

TEST(PutTogether, OfWhatIsARanksOwnTheFirstRankOfEachGroupHasTheWhole) {
  for (const Phase phase : {Phase::local_gradients, Phase::gradient_parts, Phase::inputs}) {
    const auto half = [&](int64_t begin, float value) { return record_of({.phase = phase, .whole = {4}, .offset = {begin}}, {2}, {value, value + 1}); };
    // Tensor-parallel pairs 0, 1 and 2, 3, each with rows and gradients of its own.
    const StepOfRun step = joined({{half(0, 1)}, {half(2, 3)}, {half(0, 5)}, {half(2, 7)}});
    EXPECT_THAT(values_of(whole_on(step, 0)).value(), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(values_of(whole_on(step, 2)).value(), ElementsAre(5, 6, 7, 8));
    EXPECT_THAT(step.ranks[1].records, IsEmpty());
    EXPECT_THAT(step.ranks[3].records, IsEmpty());
    EXPECT_FALSE(whole_on(step, 0).replicated) << "the groups' are not alike";
    if (phase == Phase::local_gradients) EXPECT_THAT(step.bearers, ElementsAre(0, 2));
    else EXPECT_THAT(step.bearers, IsEmpty());
  }
}

TEST(PutTogether, OwnPartsOfWhichRanksHoldUnequalNumbersStayInParts) {
  const auto half = [](int64_t begin) { return record_of({.phase = Phase::local_gradients, .whole = {4}, .offset = {begin}}, {2}, {1, 2}); };
  const StepOfRun step = joined({{half(0)}, {half(2)}, {half(0)}});
  for (const std::size_t rank : {0u, 1u, 2u}) EXPECT_THAT(whole_on(step, rank).shape, ElementsAre(2));
  EXPECT_THAT(step.bearers, IsEmpty());
}

TEST(PutTogether, WhatIsPlacedAsReplicatedIsHashedInOnePieceAndHeldToBeAlike) {
  const PartOf replicated{.whole = {3, 2}, .offset = {0, 0}, .shard = false};
  const StepOfRun step = joined({{record_of(replicated, {3, 2}, kWhole)}, {record_of(replicated, {3, 2}, kWhole)}});
  EXPECT_TRUE(whole_on(step, 0).replicated && whole_on(step, 1).replicated);
  EXPECT_EQ(whole_on(step, 1).stats.hash, hash_of(kWhole, {3, 2}));
  EXPECT_THAT(step.parts, IsEmpty());
  PartOf own = replicated;
  own.phase = Phase::local_gradients;
  const StepOfRun gradients = joined({{record_of(own, {3, 2}, kWhole)}});
  EXPECT_FALSE(whole_on(gradients, 0).replicated) << "each rank has its own gradient of what all hold alike";
}

TEST(PutTogether, KeepsTheOrderInWhichARankRecorded) {
  Record before = record_of({.whole = {1}, .offset = {0}, .shard = false}, {1}, {9}), behind = before;
  before.name = "before";
  behind.name = "behind";
  const auto half = [](int64_t begin) { return record_of({.whole = {2}, .offset = {begin}}, {1}, {1}); };
  const StepOfRun step = joined({{before, half(0), behind}, {before, half(1), behind}});
  for (const StepRecords& rank : step.ranks) {
    ASSERT_EQ(rank.records.size(), 3u);
    EXPECT_EQ(rank.records[0].name, "before");
    EXPECT_EQ(rank.records[1].name, "w");
    EXPECT_EQ(rank.records[2].name, "behind");
  }
}

/// A parameter's moment after an update on each rank, and the parameter, which all hold alike unless `parted`. No value: the rank has no moment.
StepOfRun owned(int64_t number, const std::vector<std::optional<float>>& moments, const std::vector<double>& updates, bool parted = false) {
  StepOfRun step;
  step.step = number;
  for (std::size_t rank = 0; rank < moments.size(); ++rank) {
    const auto tensor = [&](Phase phase, const char* name, float value) {
      Record record = record_of({.phase = phase, .whole = {1}, .offset = {0}, .shard = false}, {1}, {value});
      record.name = name;
      record.placement = nullptr;
      return record;
    };
    std::vector<Record> records{tensor(Phase::parameters, "w", parted ? static_cast<float>(rank) : 1)};
    if (moments[rank]) records.push_back(tensor(Phase::optimizer_state, "first_moment/w", *moments[rank]));
    Record count;
    count.phase = Phase::optimizer_state;
    count.name = "updates";
    count.is_scalar = true;
    count.value = updates[rank];
    records.push_back(count);
    step.ranks.push_back({number, std::move(records)});
  }
  return step;
}

/// What each rank has of the moment and of the count; NaN: nothing.
std::vector<double> moments_in(const StepOfRun& step, const std::string& name) {
  std::vector<double> found;
  for (const StepRecords& rank : step.ranks) {
    const auto record = std::ranges::find(rank.records, name, &Record::name);
    found.push_back(record == rank.records.end() ? std::nan("") : record->is_scalar ? record->value : record->stats.norm);
  }
  return found;
}

TEST(OwnersState, IsThatOfTheRankOnWhichItMovedWhereAllHoldTheSameParameter) {
  OwnersState state;
  StepOfRun first = owned(0, {2, 3}, {4, 5}), second = owned(1, {2, 7}, {4, 6}), third = owned(2, {2, 7}, {4, 6});
  for (StepOfRun* step : {&first, &second, &third}) state.put_together(*step);
  EXPECT_THAT(moments_in(first, "first_moment/w"), ElementsAre(testing::IsNan(), testing::IsNan())) << "nothing says whose it is";
  EXPECT_THAT(moments_in(second, "first_moment/w"), ElementsAre(7, 7));
  EXPECT_THAT(moments_in(second, "updates"), ElementsAre(6, 6));
  EXPECT_THAT(moments_in(third, "first_moment/w"), ElementsAre(7, 7)) << "a step without a gradient changes no owner";
}

TEST(OwnersState, IsThatOfTheOneRankThatHasIt) {
  StepOfRun step = owned(0, {std::nullopt, 3}, {1, 1});
  OwnersState().put_together(step);
  EXPECT_THAT(moments_in(step, "first_moment/w"), ElementsAre(3, 3));
}

TEST(OwnersState, StaysEachRanksOwnWhereParametersPart) {
  StepOfRun step = owned(0, {2, 3}, {4, 5}, true);
  OwnersState().put_together(step);
  EXPECT_THAT(moments_in(step, "first_moment/w"), ElementsAre(2, 3));
  EXPECT_THAT(moments_in(step, "updates"), ElementsAre(4, 5));
}

/// Names of the tensors that rank 0 has at each step, read with the memory of the step before last.
std::vector<std::string> names_in(const std::string& folder) {
  RunReader run(folder);
  std::vector<std::string> names;
  std::optional<StepOfRun> before, step;
  while (true) {
    std::swap(before, step);
    step = run.next(std::exchange(step, std::nullopt));
    if (!step) return names;
    for (const Record& record : step->ranks[0].records) names.push_back(record.name);
  }
}

void write(const std::string& folder, const std::vector<std::string>& names, const std::shared_ptr<const Declared>& declared) {
  TraceHeader header{"hash", 0, 1, "foreign", TraceLevel::hash, "test"};
  header.declared = declared;
  TraceWriter writer(folder + "/rank-0.trace", header);
  const std::vector<float> values = {1, 2};
  const std::vector<int64_t> shape = {2};
  for (int64_t step = 0; step < 5; ++step) {
    writer.begin_step(step);
    for (const std::string& name : names) writer.tensor(Phase::parameters, name, {values.data(), DType::float32, shape, {}}, Sharing::own);
    writer.end_step();
  }
  writer.finish();
}

TEST(RunReader, TakesPrefixesOffOnceAndWrappersAtEachStepWhateverMemoryAStepHas) {
  auto declared = std::make_shared<Declared>();
  declared->strip_prefixes = {"a."};
  using Names = std::vector<std::string>;
  for (const auto& [written, read, header] : {std::tuple(Names{"a.a.w", "b"}, Names{"a.w", "b"}, declared),
                                              {Names{"module.w", "module.b"}, Names{"w", "b"}, nullptr}}) {
    const TempFolder folder;
    write(folder.path(), written, header);
    const Names names = names_in(folder.path());
    ASSERT_EQ(names.size(), 10u);
    for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(names[i], read[i % 2]);
  }
}

using testing::Not;

/// A matrix that times these layouts three times each, and what its ranks have left: a step of 24 rows takes
/// one rank 24 ms, and ranks share the work without a loss.
struct Timed {
  Plan plan;
  JudgeOptions options;
  std::map<std::string, std::vector<RankResult>> results;  ///< by run id
  std::vector<std::pair<std::string, std::string>> facts{{"cores", "8"}, {"processor", "a plain one"}};

  explicit Timed(const std::vector<Layout>& layouts) {
    options.out_dir = "out";
    plan.matrix.timing.layouts = layouts;
    plan.matrix.cells.emplace_back();
    plan.runs = timing_runs(plan.matrix);
    int number = 0;
    for (const PlannedRun& run : plan.runs) {
      const Layout& layout = run.config.layout;
      for (int rank = 0; rank < layout.world_size; ++rank) {
        RankResult result;
        result.rank = rank;
        result.world_size = layout.world_size;
        result.status = "finished";
        result.steps_done = run.config.steps;
        // The last rank is the slowest and the first one waits for it; repeats differ by a tenth of a ms.
        result.step_seconds = layout.rows_per_rank * 1e-3 +
                              1e-4 * (number / static_cast<int>(layouts.size())) -
                              (rank + 1 < layout.world_size ? 1e-5 : 0);
        result.communication_share = layout.world_size > 1 ? 0.3 - 0.01 * rank : 0;
        result.received_bytes = 1000.0 * (layout.world_size - 1);
        result.activation_bytes = 512.0 * layout.rows_per_rank;
        result.weight_bytes = 4096;
        results[run.id].push_back(result);
      }
      ++number;
    }
  }
  void change(const Layout& layout, const std::function<void(RankResult&)>& edit) {
    for (const PlannedRun& run : plan.runs) {
      if (run.config.layout != layout) continue;
      for (RankResult& result : results.at(run.id)) edit(result);
    }
  }
  Timing judge() const {
    const RankResultReader read = [this](const std::string& path) {
      const std::string run = path.substr(9, path.rfind('/') - 9);  // out/runs/ID/rank-R.result.json
      const auto found = results.find(run);
      if (found == results.end()) throw std::runtime_error(path + ": cannot read it");
      return found->second.at(static_cast<std::size_t>(std::stoi(path.substr(path.rfind('-') + 1))));
    };
    return judge_timing(plan, options.out_dir, options.failures, read, facts).value();
  }
};

const TimingRow& row_of(const Timing& timing, const std::string& group, const Layout& layout) {
  for (const TimingRow& row : timing.rows) {
    if (row.group == group && row.layout == layout) return row;
  }
  throw std::runtime_error("no such row");
}

const std::vector<Layout> kUsual = {{1, 24}, {2, 12}, {4, 6}, {8, 3}, {1, 3}, {2, 3}, {4, 3}};

TEST(TimingJudge, HoldsEachLayoutAgainstOneRankOfItsGroup) {
  const Timing timing = Timed(kUsual).judge();
  EXPECT_EQ(timing.rows.size(), 8U) << "8x3 stands in both groups";
  EXPECT_EQ(timing.cores, 8);
  EXPECT_EQ(timing.processor, "a plain one");
  const TimingRow& fast = row_of(timing, kEqualBatch, {8, 3});
  EXPECT_EQ(fast.runs, 3);
  EXPECT_NEAR(fast.step_seconds, 3.1e-3, 1e-9) << "of the slowest rank, in the median over runs";
  EXPECT_NEAR(fast.interval.low, 3.0e-3, 1e-9);
  EXPECT_NEAR(fast.interval.high, 3.2e-3, 1e-9);
  EXPECT_NEAR(fast.rows_per_second, 24 / 3.1e-3, 1e-6);
  EXPECT_NEAR(fast.speed_up, 24.1 / 3.1, 1e-9);
  EXPECT_NEAR(fast.efficiency, 24.1 / 3.1 / 8, 1e-9);
  EXPECT_NEAR(fast.speed_up_range.low, 24.0 / 3.2, 1e-9) << "the slowest run against the fastest of one rank";
  EXPECT_NEAR(fast.speed_up_range.high, 24.2 / 3.0, 1e-9);
  EXPECT_NEAR(fast.share_range.high, 0.3, 1e-12);
  EXPECT_NEAR(fast.communication_share, 0.3, 1e-12) << "of the rank that waits most";
  EXPECT_EQ(fast.bytes, 7000);
  EXPECT_EQ(fast.weight_bytes, 4096);
  EXPECT_FALSE(fast.crowded);
  const TimingRow& wide = row_of(timing, kEqualRows, {8, 3});
  EXPECT_NEAR(wide.speed_up, 8, 1e-9) << "against 1x3: eight times the rows in the same time";
  EXPECT_EQ(row_of(timing, kEqualRows, {1, 3}).speed_up, 1);
  EXPECT_EQ(row_of(timing, kEqualRows, {1, 3}).speed_up_range.high, 1) << "the unit itself";
  EXPECT_THAT(timing.sentence, HasSubstr("8x3 processes 7.77 times (7.50 to 8.07 over 3 runs) the rows a second"));
  EXPECT_THAT(timing.sentence, HasSubstr("Every rank had its own core"));
  EXPECT_THAT(timing.sentence, Not(HasSubstr("failed")));
}

TEST(TimingJudge, ShowsALayoutThatIsTwiceAsSlow) {
  Timed timed(kUsual);
  const double before = row_of(timed.judge(), kEqualBatch, {4, 6}).speed_up;
  timed.change({4, 6}, [](RankResult& result) { result.step_seconds *= 2; });
  const Timing slow = timed.judge();
  EXPECT_NEAR(row_of(slow, kEqualBatch, {4, 6}).speed_up, before / 2, 1e-9);
  const Timing same = Timed(kUsual).judge();
  EXPECT_EQ(row_of(slow, kEqualBatch, {2, 12}).speed_up, row_of(same, kEqualBatch, {2, 12}).speed_up);
}

TEST(TimingJudge, OneSlowRankIsTheStep) {
  Timed timed(kUsual);
  timed.change({4, 6}, [](RankResult& result) { result.step_seconds *= result.rank == 2 ? 3 : 1; });
  EXPECT_GT(row_of(timed.judge(), kEqualBatch, {4, 6}).step_seconds, 18e-3);
}

TEST(TimingJudge, SaysWhatTooFewCoresHide) {
  Timed timed(kUsual);
  timed.facts[0].second = "2";
  const Timing timing = timed.judge();
  EXPECT_THAT(timing.sentence, HasSubstr("8 ranks share 2 cores: a speed-up above 2 is not possible"));
  EXPECT_TRUE(row_of(timing, kEqualBatch, {4, 6}).crowded);
  EXPECT_FALSE(row_of(timing, kEqualBatch, {2, 12}).crowded);
}

TEST(TimingJudge, SaysWhereRepeatsScatter) {
  Timed timed(kUsual);
  EXPECT_THAT(timed.judge().sentence, Not(HasSubstr("Repeats")));
  for (RankResult& result : timed.results.at(timed.plan.runs.front().id)) result.step_seconds *= 3;
  EXPECT_THAT(timed.judge().sentence, HasSubstr("Repeats of 1x24 differ by a factor of 3.0"));
}

TEST(TimingJudge, NamesRunsThatFailedAndGoesOnWithTheOthers) {
  Timed timed(kUsual);
  for (const PlannedRun& run : timed.plan.runs) {
    if (run.config.layout == Layout{2, 12}) {
      Failure& failure = timed.options.failures[run.id];
      failure.run = run.id;
      failure.kind = FailureKind::died;
      failure.message = "killed by signal 9";
      break;
    }
  }
  timed.change({4, 3}, [](RankResult& result) { result.steps_done = 7; });
  const Timing timing = timed.judge();
  EXPECT_EQ(row_of(timing, kEqualBatch, {2, 12}).runs, 2);
  EXPECT_GT(row_of(timing, kEqualBatch, {2, 12}).speed_up, 1.9);
  EXPECT_THAT(timing.sentence, HasSubstr("For 2x12, 1 of 3 timed runs failed (died: killed by signal 9)."));
  EXPECT_EQ(row_of(timing, kEqualRows, {4, 3}).runs, 0);
  EXPECT_TRUE(std::isnan(row_of(timing, kEqualRows, {4, 3}).speed_up));
  EXPECT_THAT(timing.sentence, HasSubstr("For 4x3, 3 of 3 timed runs failed (rank 0 timed 7 of 100 steps)."));
  Results results;
  results.cells.emplace_back();
  EXPECT_EQ(exit_code_of(results), 0);
  results.timing = timing;
  EXPECT_EQ(exit_code_of(results), 3);
  results.timing = Timed(kUsual).judge();
  EXPECT_EQ(exit_code_of(results), 0);
}

TEST(TimingJudge, KnowsNoSpeedUpWithoutOneRank) {
  const Timing timing = Timed({{2, 12}, {4, 6}, {3, 5}}).judge();
  EXPECT_TRUE(std::isnan(row_of(timing, kEqualBatch, {4, 6}).speed_up));
  EXPECT_NEAR(row_of(timing, kEqualBatch, {3, 5}).step_seconds, 5.1e-3, 1e-9) << "like no other, and told";
}

TEST(TimingJudge, SaysNothingWhereNothingIsTimed) {
  const Plan nothing;
  EXPECT_FALSE(judge_timing(nothing, "", {}, nullptr, {}));
}

TEST(TimingJson, ComesBackAsItWasAndKeepsItsSchema) {
  Timed timed({{1, 24}, {8, 3}});
  timed.change({8, 3}, [](RankResult& result) { result.steps_done = 0; });
  Results results;
  results.timing = timed.judge();
  const std::string text = results_to_json(results);
  const auto schema = nlohmann::json::parse(results_schema());
  EXPECT_THAT(support::schema_violations(nlohmann::json::parse(text), schema), IsEmpty());
  const Results back = results_from_json(text, "r.json");
  ASSERT_TRUE(back.timing);
  EXPECT_EQ(back.timing->rows.size(), 2U);
  EXPECT_TRUE(std::isnan(row_of(*back.timing, kEqualBatch, {8, 3}).step_seconds));
  EXPECT_EQ(results_to_json(back), text);
  EXPECT_FALSE(results_from_json(results_to_json(Results{}), "r.json").timing);
}

}  // namespace
}  // namespace lockstep
