// Whole runs of the trainer classify: emulated ranks against real ones, and verdicts with a fault in the loss or
// the normalisation and without.

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/verdict/compare/compare.h"
#include "harness/verdict/compare/forced/forced.h"
#include "harness/verdict/trace/rank_result.h"
#include "harness/verdict/trace/reader.h"
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

  support::TempFolder folder_;
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
