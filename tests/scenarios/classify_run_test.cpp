// Whole runs of the trainer classify: emulated ranks against real ones, and verdicts with a fault in the loss or
// the normalisation and without.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/verdict/compare/compare.h"
#include "harness/verdict/compare/forced/forced.h"
#include "harness/verdict/trace/rank_result.h"
#include "harness/verdict/trace/reader.h"
#include "harness/verdict/trace/record.h"
#include "scenarios/classify/causes.h"
#include "scenarios/classify/config.h"
#include "scenarios/classify/spec.h"
#include "tests/support/mini_run.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

struct Cell {
  Layout layout{1, 12};
  ClassifyConfig own;
  RowPartition rows = RowPartition::equal;
  int64_t accumulation = 1;
  Backend backend = Backend::emulated;
};

Cell cell_of(Layout layout) {
  Cell cell;
  cell.layout = layout;
  cell.own.data = {3, 10, 4, 1};
  cell.own.model.width = 6;
  cell.own.model.hidden = 8;
  return cell;
}

class ClassifyRuns : public testing::Test {
 protected:
  static RunConfig config_of(const Cell& cell) {
    RunConfig config(classify_spec());
    config.data.source = DataSource::synthetic;
    config.data.series = std::max<int64_t>(8, cell.layout.global_batch() / 4);
    config.data.series_steps = 40;
    config.layout = cell.layout;
    config.rows = cell.rows;
    config.accumulation = cell.accumulation;
    config.backend = cell.backend;
    config.steps = 4;
    config.eval_every = 2;
    classify(config) = cell.own;
    return config;
  }

  std::string run(const std::string& id, const RunConfig& config) { return mini_run(folder_.path(), id, config); }

  /// A cell forced against its reference at steps 0 and 2.
  Comparison forced(const Cell& reference, const Cell& cell) {
    RunConfig one = config_of(reference);
    one.snapshot_steps = {0, 2};
    ForcedInputs inputs;
    inputs.reference_free = run("reference", one);
    one.snapshot_steps = {};
    one.forced = {"reference", {0, 2}, 0, {}};
    inputs.forced_reference = run("forced_reference", one);
    one.forced.twin = true;
    inputs.reference_twin = run("reference_twin", one);
    one.forced.twin = false;
    RunConfig other = config_of(cell);
    inputs.cell_free = run("cell", other);
    other.forced = {"reference", {0, 2}, 0, {}};
    inputs.forced_cell = run("forced_cell", other);
    other.forced.twin = true;
    inputs.cell_twin = run("cell_twin", other);
    other.forced.twin = false;
    reference_ = one;
    cell_ = other;
    inputs.reference_config = &reference_;
    inputs.cell_config = &cell_;
    return compare_forced(inputs);
  }

  /// The codes that the trainer's own rules give.
  static std::vector<std::string> named(const Comparison& comparison) {
    std::vector<std::string> codes;
    for (const causes::Rule rule : classify_cause_rules().rules(comparison.around->difference.phase)) {
      if (const auto cause = rule(*comparison.around)) codes.push_back(cause->code + ": " + cause->evidence);
    }
    return codes;
  }

  TempFolder folder_;
  RunConfig reference_, cell_;
};

TEST_F(ClassifyRuns, RealRanksGiveTheBitsOfEmulatedOnes) {
  for (const NormKind norm : {NormKind::none, NormKind::batch, NormKind::sync_batch}) {
    Cell cell = cell_of({3, 4});
    cell.own.norm = norm;
    cell.rows = RowPartition::unequal;
    cell.accumulation = 2;
    const std::string name = std::to_string(static_cast<int>(norm));
    CompareOptions options;
    options.run_a = run("emulated" + name, config_of(cell));
    cell.backend = Backend::gloo;
    options.run_b = run("real" + name, config_of(cell));
    const Mechanism result = compare_traces(options).mechanism;
    EXPECT_EQ(result.verdict, VerdictKind::identical) << result.sentence;
    const RankResult rank_0 = read_rank_result(options.run_b + "/rank-0.result.json");
    EXPECT_TRUE(rank_0.metrics.contains("accuracy"));
    EXPECT_EQ(rank_0.curves.at("step_accuracy").values.size(), 2U);
  }
}

TEST_F(ClassifyRuns, RealRanksGiveTheBitsOfEmulatedOnesWithTwoLossesAndAveragesAndRecomputation) {
  Cell cell = cell_of({3, 4});
  cell.own.auxiliary.weight = 0.5;
  cell.own.activation_checkpointing = true;
  cell.accumulation = 2;
  RunConfig config = config_of(cell);
  config.average_decay = 0.9;
  config.trace = TraceLevel::stats;
  CompareOptions options;
  options.run_a = run("emulated", config);
  config.backend = Backend::gloo;
  options.run_b = run("real", config);
  const Mechanism result = compare_traces(options).mechanism;
  EXPECT_EQ(result.verdict, VerdictKind::identical) << result.sentence;
}

TEST_F(ClassifyRuns, WithASecondLossItIsWithinTheBand) {
  Cell reference = cell_of({1, 12}), cell = cell_of({3, 4});
  for (Cell* each : {&reference, &cell}) each->own.auxiliary.weight = 0.5;
  cell.accumulation = 2;
  cell.own.activation_checkpointing = true;
  const Comparison found = forced(reference, cell);
  EXPECT_EQ(found.mechanism.verdict, VerdictKind::within_envelope) << found.mechanism.sentence;
}

TEST_F(ClassifyRuns, WhatAStepIsMadeOfStandsInItsTrace) {
  Cell cell = cell_of({3, 4});
  cell.own.auxiliary.weight = 0.5;
  cell.accumulation = 2;
  RunConfig config = config_of(cell);
  config.trace = TraceLevel::full;
  const Trace trace = read_trace(run("traced", config) + "/rank-1.trace");
  const StepRecords& step = trace.steps.back();
  const auto find = [&](Phase phase, const std::string& name) -> const Record* {
    const auto at = std::ranges::find_if(step.records, [&](const Record& it) { return it.phase == phase && it.name == name; });
    return at == step.records.end() ? nullptr : &*at;
  };
  for (const char* name : {"inputs", "labels"}) {
    ASSERT_NE(find(Phase::inputs, name), nullptr) << name;
    EXPECT_EQ(find(Phase::inputs, name)->ids.size(), 4U);
  }
  double loss = 0;
  for (const std::string term : {"cross_entropy", "reconstruction"}) {
    ASSERT_NE(find(Phase::loss, "loss/" + term), nullptr);
    loss += find(Phase::loss, "weight/" + term)->value * find(Phase::loss, "loss/" + term)->value;
  }
  EXPECT_NEAR(find(Phase::loss, "loss")->value, loss, 1e-5);
  for (const char* name : {"micro_losses", "micro_counts", "micro_rows"}) {
    ASSERT_NE(find(Phase::loss, name), nullptr) << name;
    EXPECT_EQ(find(Phase::loss, name)->shape, std::vector<int64_t>{2});
  }
  EXPECT_EQ(find(Phase::loss, "row_counts")->shape, std::vector<int64_t>{4});
  const std::vector<double> whole = values_of(*find(Phase::local_gradients, "mixer.weight")).value();
  for (const auto& [one, other] : {std::pair("micro 0", "micro 1"), std::pair("loss cross_entropy", "loss reconstruction")}) {
    const Record* const a = find(Phase::gradient_parts, std::string(one) + "/mixer.weight");
    const Record* const b = find(Phase::gradient_parts, std::string(other) + "/mixer.weight");
    ASSERT_TRUE(a != nullptr && b != nullptr) << one;
    const std::vector<double> x = values_of(*a).value(), y = values_of(*b).value();
    double dot = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(x[i] + y[i], whole[i], 1e-6);
      dot += x[i] * whole[i];
    }
    EXPECT_NEAR(a->dot, dot, 1e-9 + 1e-6 * std::abs(dot));
  }
  EXPECT_EQ(find(Phase::gradient_parts, "loss reconstruction/classes.weight"), nullptr) << "it does not reach the classes";
}

TEST_F(ClassifyRuns, AnAverageOfTheWeightsFollowsThem) {
  RunConfig config = config_of(cell_of({3, 4}));
  config.average_decay = 0.75;
  config.trace = TraceLevel::full;
  const Trace trace = read_trace(run("averaged", config) + "/rank-0.trace");
  std::vector<double> expected;
  for (const StepRecords& step : trace.steps) {
    for (const Record& record : step.records) {
      if (record.name != "mixer.bias" || (record.phase != Phase::parameters && record.phase != Phase::averaged_weights)) continue;
      const std::vector<double> values = values_of(record).value();
      if (record.phase == Phase::parameters) {
        if (expected.empty()) expected = values;  // it begins as the weights do
        if (step.step < 0) continue;
        for (std::size_t i = 0; i < values.size(); ++i) expected[i] = 0.75 * expected[i] + 0.25 * values[i];
      } else {
        for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-6);
      }
    }
  }
  config.average_decay = 0;
  for (const StepRecords& step : read_trace(run("plain", config) + "/rank-0.trace").steps) {
    for (const Record& record : step.records) EXPECT_NE(record.phase, Phase::averaged_weights);
  }
}

TEST_F(ClassifyRuns, AGlobalDenominatorIsWithinTheBand) {
  Cell cell = cell_of({3, 4});
  cell.rows = RowPartition::one_empty;
  cell.accumulation = 2;
  const Comparison found = forced(cell_of({1, 12}), cell);
  EXPECT_EQ(found.mechanism.verdict, VerdictKind::within_envelope) << found.mechanism.sentence;
}

TEST_F(ClassifyRuns, ManyRowsAreTakenInPartsOfOneStep) {
  constexpr int kRows = 264;  // more than a pass takes, and no multiple of it
  Cell reference = cell_of({1, kRows}), cell = cell_of({2, kRows / 2});
  for (Cell* each : {&reference, &cell}) each->own.dropout = 0.1;
  const Comparison found = forced(reference, cell);
  EXPECT_EQ(found.mechanism.verdict, VerdictKind::within_envelope) << found.mechanism.sentence;
  TraceReader trace(folder_.path() + "/forced_reference/rank-0.trace");
  const std::optional<StepRecords> step = trace.next();
  ASSERT_TRUE(step);
  int of_rows = 0;
  for (const Record& record : step->records) {
    if (record.name != "row_losses") continue;
    ++of_rows;
    EXPECT_EQ(record.shape, std::vector<int64_t>{kRows});
  }
  EXPECT_EQ(of_rows, 1);
}

TEST_F(ClassifyRuns, SharedStatisticsAreWithinTheBand) {
  Cell reference = cell_of({1, 12}), cell = cell_of({3, 4});
  reference.own.norm = cell.own.norm = NormKind::sync_batch;
  const Comparison found = forced(reference, cell);
  EXPECT_EQ(found.mechanism.verdict, VerdictKind::within_envelope) << found.mechanism.sentence;
}

TEST_F(ClassifyRuns, AMeanOfMeansIsNamedAtTheFirstStepOfUnequalCounts) {
  for (const DenominatorScope scope : {DenominatorScope::local, DenominatorScope::micro}) {
    for (const DenominatorOver over : {DenominatorOver::valid_steps, DenominatorOver::rows}) {
      Cell reference = cell_of({1, 12}), cell = cell_of({3, 4});
      cell.rows = RowPartition::unequal;
      cell.accumulation = 2;
      reference.own.denominator.over = over;
      cell.own.denominator = {over, scope};
      const Comparison found = forced(reference, cell);
      ASSERT_EQ(found.mechanism.verdict, VerdictKind::divergent) << found.mechanism.sentence;
      EXPECT_EQ(found.mechanism.first_divergence->phase, "loss");
      EXPECT_EQ(found.mechanism.first_divergence->step, 0);
      const std::vector<std::string> codes = named(found);
      ASSERT_EQ(codes.size(), 1U);
      EXPECT_TRUE(codes[0].starts_with("mean-of-means")) << codes[0];
      const char* what = over == DenominatorOver::rows ? "rows" : "valid time steps";
      // A rank's micro-steps have equally many rows: the mean of their means is its own mean.
      const bool micro = scope == DenominatorScope::micro && over != DenominatorOver::rows;
      const char* whose = micro ? "each micro-step's" : "each rank's";
      EXPECT_NE(codes[0].find(what), std::string::npos) << codes[0];
      EXPECT_NE(codes[0].find(whose), std::string::npos) << codes[0];
    }
  }
}

TEST_F(ClassifyRuns, NothingIsNamedAMeanOfMeansWhereCountsAreEqual) {
  Cell reference = cell_of({1, 12}), cell = cell_of({3, 4});
  reference.own.denominator.over = DenominatorOver::rows;
  cell.own.denominator = {DenominatorOver::rows, DenominatorScope::local};
  const Comparison found = forced(reference, cell);
  EXPECT_EQ(found.mechanism.verdict, VerdictKind::within_envelope) << found.mechanism.sentence;
}

TEST_F(ClassifyRuns, ABatchNormOfOwnRowsIsNamed) {
  Cell reference = cell_of({1, 12}), cell = cell_of({3, 4});
  reference.own.norm = cell.own.norm = NormKind::batch;
  const Comparison found = forced(reference, cell);
  ASSERT_EQ(found.mechanism.verdict, VerdictKind::divergent) << found.mechanism.sentence;
  const std::vector<std::string> codes = named(found);
  ASSERT_EQ(codes.size(), 1U);
  EXPECT_TRUE(codes[0].starts_with("batch-norm-local")) << codes[0];
}

TEST_F(ClassifyRuns, AnotherDenominatorIsNoMeanOfMeans) {
  Cell reference = cell_of({1, 12}), cell = cell_of({3, 4});
  cell.own.denominator.over = DenominatorOver::rows;
  const Comparison found = forced(reference, cell);
  ASSERT_EQ(found.mechanism.verdict, VerdictKind::divergent) << found.mechanism.sentence;
  EXPECT_TRUE(named(found).empty()) << named(found).front();
}

}  // namespace
}  // namespace lockstep
