#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/questions/matrix_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "harness/verdict/results/document.h"
#include "scenarios/energy/config.h"
#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

using support::SyntheticMatrix;
using testing::ElementsAre;
using testing::HasSubstr;

const CellResult& cell_of(const Results& results, const std::string& name) {
  for (const CellResult& cell : results.cells) {
    if (cell.scenario == name) return cell;
  }
  throw std::runtime_error("no cell " + name);
}

TEST(MatrixJudge, ACleanMatrixIsAsExpected) {
  const Results results = SyntheticMatrix::usual().judge();
  ASSERT_EQ(results.cells.size(), 3u);
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::equivalent);
  EXPECT_EQ(results.cells[1].verdict, VerdictKind::divergent);
  EXPECT_EQ(results.cells[2].verdict, VerdictKind::divergent);
  for (const CellResult& cell : results.cells) {
    EXPECT_TRUE(cell.as_expected);
    EXPECT_FALSE(cell.failure);
    ASSERT_TRUE(cell.mechanism && cell.outcome);
    EXPECT_EQ(cell.mechanism->verdict, VerdictKind::within_envelope);
    EXPECT_TRUE(cell.certification.wanted);
    EXPECT_EQ(cell.certification.steps, 20);
    EXPECT_EQ(cell.certification.backend, "gloo");
    EXPECT_EQ(cell.run, cell.scenario + " seed 0");
    EXPECT_EQ(cell.reference_run, "1x24 global seed 0");
  }
  EXPECT_EQ(results.summary.exit_code, 0);
  EXPECT_TRUE(results.summary.can_tell);
  EXPECT_FALSE(results.summary.margin_refused);
  EXPECT_EQ(results.steps, 100);
}

TEST(MatrixJudge, TrainingMetricsAreMeansOverRanksAndTheLastFiftySteps) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  const Results results = matrix.judge();
  double last = 0;
  const Series& curve = matrix.result("1x24 global seed 0").curves["loss_over_log_n"];
  for (std::size_t i = 50; i < 100; ++i) last += curve.values[i] / 50;
  bool found = false;
  for (const MetricDifference& other : cell_of(results, "8x3 local").outcome->others) {
    if (other.metric != "train_loss_over_log_n") continue;
    found = true;
    EXPECT_NEAR(other.mean, -0.1, 1e-12);
    EXPECT_NEAR(other.reference_mean, last, 1e-12);
  }
  EXPECT_TRUE(found);
  EXPECT_THAT(cell_of(results, "8x3 local").outcome->sentence,
              HasSubstr("although its training loss / log N and its raw cross-entropy are lower"));
}

TEST(MatrixJudge, SaysOfACellWhatItsConfigMeans) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  RunConfig& config = matrix.plan.matrix.cells[1].config;
  config.layout = {24, 1};
  energy(config).negatives = Negatives::local;
  config.backend = Backend::gloo;
  matrix.plan.matrix.cells[1].short_name = "24x1 local";
  matrix.plan.matrix.cells[1].reference.layout = {1, 24};
  const Results results = matrix.judge();
  const CellResult& cell = results.cells[1];
  EXPECT_EQ(cell.layout, (Layout{24, 1}));
  EXPECT_TRUE(cell.no_negatives);
  EXPECT_TRUE(cell.real_ranks);
  EXPECT_EQ(cell.short_name, "24x1 local");
  EXPECT_FALSE(results.cells[0].no_negatives);
  EXPECT_EQ(results.references[0].layout, (Layout{1, 24}));
}

TEST(MatrixJudge, DoesNotDependOnTheNumberOfThreads) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  const std::string one = results_to_json(matrix.judge());
  matrix.options.jobs = 7;
  EXPECT_EQ(results_to_json(matrix.judge()), one);
}

TEST(MatrixJudge, AnUnexpectedVerdictIsNotAsExpected) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 global", -0.094, 0.02, 0.0, false, {VerdictKind::equivalent}});
  matrix.add_cell({"8x3 free", -0.094, 0.02, 0.0, false, {}});
  const Results results = matrix.judge();
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::divergent);
  EXPECT_FALSE(results.cells[0].as_expected);
  EXPECT_TRUE(results.cells[1].as_expected);
  EXPECT_EQ(results.summary.exit_code, 1);
}

TEST(MatrixJudge, OneSeedIsInconclusiveForAnOutcome) {
  SyntheticMatrix matrix(1);
  matrix.add_cell({"8x3 global", 0.0, 0.0, 0.0, false, {VerdictKind::equivalent}});
  const Results results = matrix.judge();
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::inconclusive);
  EXPECT_EQ(results.cells[0].outcome->seeds_needed, 2);
  EXPECT_EQ(results.summary.exit_code, 5);
}

TEST(MatrixJudge, TheMechanismAnswersAMechanismQuestion) {
  SyntheticMatrix matrix(1);
  matrix.plan.matrix.question = "mechanism";
  matrix.add_cell(
      {"8x3 global", 0.0, 0.0, 0.0, false, {VerdictKind::identical, VerdictKind::within_envelope}});
  matrix.add_cell(
      {"8x3 grad x 8", 0.0, 0.0, 0.0, false, {VerdictKind::identical, VerdictKind::within_envelope}});
  Mechanism& planted = matrix.mechanisms["8x3 grad x 8 seed 0"];
  planted.verdict = VerdictKind::divergent;
  planted.first_divergence.emplace();
  planted.first_divergence->step = 17;
  planted.sentence = "Step 17, local gradients, rank 5: head.weight.";
  const Results results = matrix.judge();
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::within_envelope);
  EXPECT_FALSE(results.cells[0].outcome) << "one seed, and the outcome is not asked for";
  EXPECT_TRUE(results.cells[0].as_expected);
  EXPECT_EQ(results.cells[1].verdict, VerdictKind::divergent);
  EXPECT_EQ(results.cells[1].mechanism->first_divergence->step, 17);
  EXPECT_EQ(results.summary.exit_code, 1);
}

TEST(MatrixJudge, SeveralSeedsGiveAnOutcomeBesideTheMechanism) {
  SyntheticMatrix matrix(4);
  matrix.plan.matrix.question = "mechanism";
  matrix.add_cell({"8x3 global", -0.2});
  const Results results = matrix.judge();
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::within_envelope);
  ASSERT_TRUE(results.cells[0].outcome);
  EXPECT_EQ(results.cells[0].outcome->verdict, VerdictKind::divergent);
}

TEST(MatrixJudge, APowerControlThatIsMissedMeansThatTheMatrixCannotTell) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.add_cell({"missed", 0.0, 0.008, 0.0, true, {}});
  const Results results = matrix.judge();
  EXPECT_EQ(cell_of(results, "missed").verdict, VerdictKind::equivalent);
  EXPECT_FALSE(cell_of(results, "missed").as_expected);
  EXPECT_FALSE(results.summary.can_tell);
  EXPECT_EQ(results.summary.power_controls, 2);
  EXPECT_EQ(results.summary.power_controls_caught, 1);
  EXPECT_EQ(results.summary.exit_code, 1);
}

TEST(MatrixJudge, APowerControlIsJudgedByItsOutcomeWhateverItsMechanismIs) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.add_cell({"blind", 0.0, 0.008, 0.0, true, {}});
  matrix.mechanisms["blind seed 0"].verdict = VerdictKind::divergent;
  EXPECT_EQ(cell_of(matrix.judge(), "blind").verdict, VerdictKind::equivalent);
  matrix.plan.matrix.question = "mechanism";
  EXPECT_EQ(cell_of(matrix.judge(), "blind").verdict, VerdictKind::equivalent);
}

TEST(MatrixJudge, AnUndecidedPowerControlIsUndecidedOnly) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 global", 0.001, 0.008, 0.0, false, {VerdictKind::equivalent}});
  matrix.add_cell({"undecided", -0.02, 0.1, 0.0, true, {}});
  const Results results = matrix.judge();
  EXPECT_EQ(results.summary.exit_code, 5);
  EXPECT_FALSE(results.summary.can_tell);
}

TEST(MatrixJudge, AFailureThatTheLauncherSawFailsTheCellAlone) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  Failure died;
  died.run = "8x3 global seed 4";
  died.kind = FailureKind::died;
  died.rank = 3;
  died.step = 17;
  died.last_lines = {"step 16", "killed"};
  matrix.options.failures[died.run] = died;
  const Results results = matrix.judge();
  const CellResult& cell = cell_of(results, "8x3 global");
  EXPECT_EQ(cell.verdict, VerdictKind::failed);
  EXPECT_FALSE(cell.as_expected);
  EXPECT_EQ(cell.failure->rank, 3);
  EXPECT_THAT(cell.failure->last_lines, ElementsAre("step 16", "killed"));
  EXPECT_TRUE(cell.mechanism) << "what its trace shows still stands";
  EXPECT_EQ(cell_of(results, "8x3 local").verdict, VerdictKind::divergent);
  EXPECT_EQ(results.summary.exit_code, 3);
  ASSERT_FALSE(cell.curves.empty()) << "the seeds that finished";
}

TEST(MatrixJudge, AnExpectedFailureIsAsExpected) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 broken", 0.0, 0.008, 0.0, false, {VerdictKind::failed}});
  matrix.results.erase(matrix.path_of("8x3 broken seed 2", 5));
  const Results results = matrix.judge();
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::failed);
  EXPECT_TRUE(results.cells[0].as_expected);
  EXPECT_EQ(results.summary.exit_code, 0);
}

TEST(MatrixJudge, AFaultThatNeverActedIsNoVerdictWhateverIsExpected) {
  SyntheticMatrix matrix(2);
  matrix.add_cell({"8x3 planted", 0.0, 0.008, 0.0, false, {VerdictKind::failed}});
  matrix.plan.matrix.question = "mechanism";
  for (PlannedRun& run : matrix.plan.runs) {
    if (run.cell == "8x3 planted" && run.role == RunRole::cell) run.config.mutant.name = "collective_extra";
  }
  const Results idle = matrix.judge();
  EXPECT_EQ(idle.cells[0].verdict, VerdictKind::failed);
  ASSERT_TRUE(idle.cells[0].failure);
  EXPECT_EQ(idle.cells[0].failure->kind, FailureKind::idle);
  EXPECT_FALSE(idle.cells[0].as_expected);
  EXPECT_EQ(idle.summary.exit_code, 1);
  EXPECT_THAT(idle.summary.sentence, HasSubstr("the planted fault collective_extra"));
  EXPECT_THAT(idle.summary.sentence, HasSubstr("never acted"));

  matrix.result("8x3 planted seed 0", 7).faults_acted = {"mutant"};
  EXPECT_EQ(matrix.judge().cells[0].failure->kind, FailureKind::idle) << "that of the other seed has not";
  matrix.result("8x3 planted seed 1").faults_acted = {"mutant"};
  matrix.plan.matrix.cells[0].expected = {VerdictKind::within_envelope};
  const Results acted = matrix.judge();
  EXPECT_EQ(acted.cells[0].verdict, VerdictKind::within_envelope);
  EXPECT_EQ(acted.summary.exit_code, 0);
}

TEST(MatrixJudge, AnythingButFailedWillDoWhereNothingIsExpected) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 free", 0.0, 0.3});
  EXPECT_TRUE(matrix.judge().cells[0].as_expected);
  matrix.results.erase(matrix.path_of("8x3 free seed 2", 5));
  const Results results = matrix.judge();
  EXPECT_FALSE(results.cells[0].as_expected);
  EXPECT_EQ(results.cells[0].failure->kind, FailureKind::lost);
  EXPECT_EQ(results.cells[0].failure->rank, 5);
}

TEST(MatrixJudge, AFailedReferenceFailsItsCells) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.result("1x24 global seed 1").status = "failed";
  matrix.result("1x24 global seed 1").error = "out of memory";
  const Results results = matrix.judge();
  for (const CellResult& cell : results.cells) {
    EXPECT_EQ(cell.verdict, VerdictKind::failed);
    EXPECT_EQ(cell.failure->run, "1x24 global seed 1");
    EXPECT_EQ(cell.failure->message, "out of memory");
  }
}

TEST(MatrixJudge, NaNInAMetricFailsTheRunByName) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.result("8x3 global seed 6").metrics["accuracy_24"] = std::numeric_limits<double>::quiet_NaN();
  const CellResult cell = cell_of(matrix.judge(), "8x3 global");
  EXPECT_EQ(cell.verdict, VerdictKind::failed);
  EXPECT_EQ(cell.failure->kind, FailureKind::nonfinite);
  EXPECT_EQ(cell.failure->run, "8x3 global seed 6");
  EXPECT_THAT(cell.failure->message, HasSubstr("accuracy_24 is nan"));
}

TEST(MatrixJudge, AMissingPrimaryMetricFailsAnOutcomeAndOnlyThat) {
  SyntheticMatrix matrix(3);
  matrix.plan.matrix.primary.metric = "accuracy_7";
  matrix.add_cell({"8x3 global"});
  EXPECT_EQ(matrix.judge().cells[0].failure->kind, FailureKind::unmeasured);
  matrix.plan.matrix.question = "mechanism";
  EXPECT_EQ(matrix.judge().cells[0].verdict, VerdictKind::within_envelope);
}

TEST(MatrixJudge, ATornTraceFailsItsCellAlone) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.mechanisms.erase("8x3 local seed 0");
  const Results results = matrix.judge();
  const CellResult& cell = cell_of(results, "8x3 local");
  EXPECT_EQ(cell.verdict, VerdictKind::failed);
  EXPECT_EQ(cell.failure->kind, FailureKind::unreadable);
  EXPECT_THAT(cell.failure->message, HasSubstr("the checksum is wrong"));
  EXPECT_EQ(cell_of(results, "8x3 global").verdict, VerdictKind::equivalent);
}

TEST(MatrixJudge, WithoutTracesTheMechanismIsUndecided) {
  SyntheticMatrix matrix(3);
  matrix.add_cell({"8x3 global"});
  for (PlannedRun& run : matrix.plan.runs) run.config.trace = TraceLevel::off;
  matrix.mechanisms.clear();
  const Results results = matrix.judge();
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::equivalent);
  EXPECT_EQ(results.cells[0].mechanism->verdict, VerdictKind::inconclusive);
  EXPECT_THAT(results.cells[0].mechanism->sentence, HasSubstr("No traces were kept"));
}

TEST(MatrixJudge, RealRanksThatPartFromTheEmulatedRunAreNeverAsExpected) {
  for (VerdictKind expected : {VerdictKind::equivalent, VerdictKind::divergent}) {
    SyntheticMatrix matrix = SyntheticMatrix::usual();
    matrix.add_cell({"8x3 raced", 0.0, 0.008, 0.0, false, {expected}});
    Certification parted;
    parted.steps = 7;
    parted.divergence.emplace();
    parted.divergence->step = 7;
    parted.divergence->sentence = "Step 7, reduced gradients, bucket 1.";
    matrix.certifications["8x3 raced certify"] = parted;
    const Results results = matrix.judge();
    const CellResult& cell = cell_of(results, "8x3 raced");
    EXPECT_EQ(cell.mechanism->verdict, VerdictKind::divergent);
    EXPECT_EQ(cell.mechanism->first_divergence->step, 7);
    EXPECT_EQ(cell.verdict, VerdictKind::divergent);
    EXPECT_EQ(cell.outcome->verdict, VerdictKind::equivalent);
    EXPECT_FALSE(cell.as_expected);
    EXPECT_EQ(cell.certification.steps, 7);
    EXPECT_EQ(results.summary.exit_code, 1);
    EXPECT_THAT(results.summary.sentence, HasSubstr("The real ranks differ from the emulated run"));
  }
}

TEST(MatrixJudge, APrefixThatEndsEarlyDoesNotCertify) {
  SyntheticMatrix matrix(3);
  matrix.add_cell({"8x3 global"});
  matrix.certifications["8x3 global certify"].steps = 12;
  const CellResult cell = matrix.judge().cells[0];
  EXPECT_EQ(cell.verdict, VerdictKind::failed);
  EXPECT_THAT(cell.failure->message, HasSubstr("certifies 12 of 20 steps"));
}

TEST(MatrixJudge, AnEmulatedCellWithoutItsRealPrefixIsNotCertified) {
  SyntheticMatrix matrix(3);
  matrix.add_cell({"8x3 global"});
  std::erase_if(matrix.plan.runs, [](const PlannedRun& run) { return run.role == RunRole::certify; });
  EXPECT_EQ(matrix.judge().cells[0].verdict, VerdictKind::failed);
  matrix.plan.matrix.ranks = RanksPolicy::emulated;
  const CellResult chosen = matrix.judge().cells[0];
  EXPECT_EQ(chosen.verdict, VerdictKind::equivalent);
  EXPECT_FALSE(chosen.certification.wanted);
}

TEST(MatrixJudge, AFailedPrefixFailsItsCell) {
  SyntheticMatrix matrix(3);
  matrix.add_cell({"8x3 global"});
  matrix.result("8x3 global certify", 2).status = "failed";
  matrix.result("8x3 global certify", 2).error = "connection reset";
  const CellResult cell = matrix.judge().cells[0];
  EXPECT_EQ(cell.verdict, VerdictKind::failed);
  EXPECT_EQ(cell.failure->rank, 2);
  EXPECT_EQ(cell.certification.steps, 0);
}

/// A cell whose forced runs are planned beside those of another reference.
SyntheticMatrix forced_matrix() {
  SyntheticMatrix matrix(4);
  matrix.add_cell({"8x3 global"});
  RunConfig reference, cell, other;
  reference.layout = {1, 24};
  reference.forced.from = "1x24 global seed 0";
  cell = reference;
  cell.layout = {8, 3};
  other = reference;
  other.forced.from = "another reference";
  auto add = [&](RunRole role, const std::string& id, const RunConfig& config) {
    matrix.add_run(role, id, config, 0).id = id;
    matrix.results_of(id, config.layout.world_size);
  };
  add(RunRole::forced_reference, "forced-other", other);
  add(RunRole::forced_reference, "forced-reference", reference);
  add(RunRole::forced_cell, "forced-cell", cell);
  matrix.plan.runs.back().cell = "8x3 global";
  reference.forced.twin = cell.forced.twin = true;
  add(RunRole::forced_twin, "reference-twin", reference);
  add(RunRole::forced_twin, "cell-twin", cell);
  return matrix;
}

TEST(MatrixJudge, HandsTheForcedRunsOfOneReferenceToTheForcedComparison) {
  SyntheticMatrix matrix = forced_matrix();
  int calls = 0;
  matrix.on_forced = [&](const ForcedInputs& inputs) {
    ++calls;
    EXPECT_EQ(inputs.reference_free, "out/synthetic/runs/1x24 global seed 0");
    EXPECT_EQ(inputs.cell_free, "out/synthetic/runs/8x3 global seed 0");
    EXPECT_EQ(inputs.forced_reference, "out/synthetic/runs/forced-reference");
    EXPECT_EQ(inputs.forced_cell, "out/synthetic/runs/forced-cell");
    EXPECT_EQ(inputs.reference_twin, "out/synthetic/runs/reference-twin");
    EXPECT_EQ(inputs.cell_twin, "out/synthetic/runs/cell-twin");
  };
  EXPECT_EQ(matrix.judge().cells[0].verdict, VerdictKind::equivalent);
  EXPECT_EQ(calls, 1);
}

TEST(MatrixJudge, AFailedForcedRunFailsTheCell) {
  SyntheticMatrix matrix = forced_matrix();
  matrix.results.erase(matrix.path_of("forced-cell", 0));
  const CellResult cell = matrix.judge().cells[0];
  EXPECT_EQ(cell.verdict, VerdictKind::failed);
  EXPECT_EQ(cell.failure->run, "forced-cell");
}

TEST(MatrixJudge, AFailedTwinFailsTheCell) {
  for (const char* twin : {"reference-twin", "cell-twin"}) {
    SyntheticMatrix matrix = forced_matrix();
    matrix.results.erase(matrix.path_of(twin, 0));
    const CellResult cell = matrix.judge().cells[0];
    EXPECT_EQ(cell.verdict, VerdictKind::failed);
    EXPECT_EQ(cell.failure->run, twin);
  }
}

TEST(MatrixJudge, AMissingForcedReferenceFailsTheCell) {
  SyntheticMatrix matrix = forced_matrix();
  std::erase_if(matrix.plan.runs, [](const PlannedRun& run) { return run.id == "forced-reference"; });
  const CellResult cell = matrix.judge().cells[0];
  EXPECT_EQ(cell.verdict, VerdictKind::failed);
  EXPECT_THAT(cell.failure->message, HasSubstr("no forced run of the reference"));
}

TEST(MatrixJudge, ARunThatThePlanHoldsUnderAnotherNameIsFoundByItsHash) {
  SyntheticMatrix matrix(3);
  matrix.add_cell({"8x3 global"});
  Cell twin = matrix.plan.matrix.cells[0];
  twin.name = "8x3 twin";
  matrix.plan.matrix.cells.push_back(twin);
  EXPECT_EQ(matrix.judge().cells[1].verdict, VerdictKind::equivalent);
  twin.config.steps = 99;
  matrix.plan.matrix.cells[1] = twin;
  EXPECT_THAT(matrix.judge().cells[1].failure->message,
              HasSubstr("the plan has no run of seed 0 of 8x3 twin"));
}

TEST(MatrixJudge, ReferencesAreListedOnceWithTheirMeansAndCurves) {
  const Results results = SyntheticMatrix::usual().judge();
  ASSERT_EQ(results.references.size(), 1u);
  EXPECT_EQ(results.references[0].name, "1x24 global");
  EXPECT_NEAR(results.references[0].metric_means.at("accuracy_24"), 0.7, 1e-12);
  ASSERT_EQ(results.references[0].curves.size(), 2u);
  EXPECT_EQ(results.references[0].curves[0].metric, "loss_over_log_n");
  EXPECT_EQ(results.references[0].curves[1].metric, "accuracy_24");
}

TEST(MatrixJudge, NoCellGivesNoVerdict) {
  SyntheticMatrix matrix(2);
  const Results results = matrix.judge();
  EXPECT_TRUE(results.cells.empty());
  EXPECT_EQ(results.summary.exit_code, 6);
}

}  // namespace
}  // namespace lockstep
