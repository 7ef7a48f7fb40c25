#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>

#include "harness/answer/questions/matrix_judge.h"
#include "harness/answer/questions/question_judge.h"
#include "harness/answer/questions/sentences.h"
#include "harness/answer/results/words.h"
#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/writer.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/read_matrix.h"
#include "scenarios/energy/spec.h"
#include "tests/support/said.h"
#include "tests/support/suite_config.h"
#include "tests/support/synthetic_matrix.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::PlantedCell;
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

/// The verdict, what mechanism and outcome say where it is another (of the mechanism not that it is within its envelope), and of a
/// failure all of it; then the exit status.
std::string text_of(const Results& results) {
  std::string text;
  for (const CellResult& cell : results.cells) {
    text += fmt::format("{}{}", name_of(cell.verdict), cell.as_expected ? "" : ", not as expected");
    if (const auto& m = cell.mechanism; m && m->verdict != cell.verdict && m->verdict != VerdictKind::within_envelope)
      text += fmt::format(", mechanism {}", name_of(m->verdict));
    if (const auto& m = cell.mechanism; m && m->first_divergence) text += fmt::format(" from step {}", m->first_divergence->step);
    if (const auto& o = cell.outcome; o && o->verdict != cell.verdict) text += fmt::format(", outcome {}", name_of(o->verdict));
    if (const auto& f = cell.failure; f)
      text += fmt::format(", {} {} {}: {}", to_word(f->kind), f->run, f->rank, f->message);
    text += "; ";
  }
  return text + fmt::format("exit {}{}", results.summary.exit_code, results.summary.can_tell ? "" : ", cannot tell");
}

SyntheticMatrix with(int seeds, const std::vector<PlantedCell>& cells) {
  SyntheticMatrix matrix(seeds);
  for (const PlantedCell& cell : cells) matrix.add_cell(cell);
  return matrix;
}

SyntheticMatrix forced_matrix();

using M = SyntheticMatrix;
const std::vector<VerdictKind> kSame = {VerdictKind::equivalent};
const PlantedCell kGlobal{"8x3 global"};

struct Row {
  const char* what;
  SyntheticMatrix matrix;
  std::function<void(M&)> change = {};
};

void say_each(const std::vector<Row>& rows) {
  support::Said said;
  for (const Row& row : rows) {
    SyntheticMatrix matrix = row.matrix;
    if (row.change) row.change(matrix);
    said(row.what, text_of(matrix.judge()));
  }
}

void ask_mechanism(M& m) { m.plan.matrix.question = "mechanism"; }

TEST(MatrixJudge, SaysOfEachCellWhatItsRunsShow) {
  // A fault planted in a run of each of two seeds, of which some have acted.
  const auto planted = [&](const std::vector<std::string>& acted) {
    return [=](M& m) {
      ask_mechanism(m);
      for (PlannedRun& run : m.plan.runs) {
        if (run.cell == "8x3 planted" && run.role == RunRole::cell) run.config.mutant.name = "collective_extra";
      }
      for (const std::string& run : acted) m.result(run).faults_acted = {"mutant"};
    };
  };
  const auto parted_at = [](int64_t step) {
    Certification parted;
    parted.steps = step;
    parted.divergence.emplace().step = step;
    return parted;
  };
  // The cell under another name, after so many steps.
  const auto twin = [](int64_t steps) {
    return [=](M& m) {
      Cell& cell = m.plan.matrix.cells.emplace_back(m.plan.matrix.cells[0]);
      cell.name = "8x3 twin";
      cell.config.steps = steps;
    };
  };
  say_each({
      {"a mechanism that parts, and one that does not", with(1, {kGlobal, {"8x3 grad x 8"}}),
       [](M& m) {
         ask_mechanism(m);
         m.mechanisms["8x3 grad x 8 seed 0"].verdict = VerdictKind::divergent;
         m.mechanisms["8x3 grad x 8 seed 0"].first_divergence.emplace().step = 17;
       }},
      {"an outcome, though the mechanism is asked", with(4, {{"8x3 global", -0.2}}), ask_mechanism},
      {"a fault that never acted, whatever is expected", with(2, {{"8x3 planted", 0, 0.008, 0, false, {VerdictKind::failed}}}),
       planted({})},
      {"one that acted with one seed alone", with(2, {{"8x3 planted"}}), planted({"8x3 planted seed 0"})},
      {"one that acted with each", with(2, {{"8x3 planted"}}), planted({"8x3 planted seed 0", "8x3 planted seed 1"})},
      {"no traces", with(3, {kGlobal}),
       [](M& m) {
         for (PlannedRun& run : m.plan.runs) run.config.trace = TraceLevel::off;
         m.mechanisms.clear();
       }},
      {"real ranks that part from the emulated run, whatever is expected",
       with(10, {{"8x3 same", 0, 0.008, 0, false, kSame}, {"8x3 other", 0, 0.008, 0, false, {VerdictKind::divergent}}}),
       [&](M& m) { m.certifications["8x3 same certify"] = m.certifications["8x3 other certify"] = parted_at(7); }},
      {"a run that the plan holds under another name", with(3, {kGlobal}), twin(100)},
      {"one that it does not hold", with(3, {kGlobal}), twin(99)},
  });
}

TEST(MatrixJudge, SaysOfEachCellWhatBecameOfItAlone) {
  const auto usual = [] { return SyntheticMatrix::usual(); };
  const auto failed = [](const std::string& run, int rank, const char* error) {
    return [=](M& m) { m.result(run, rank).status = "failed", m.result(run, rank).error = error; };
  };
  const auto lost = [](const std::string& run, int rank) {
    return [=](M& m) { m.results.erase(m.path_of(run, rank)); };
  };
  const auto without = [](auto which) { return [=](M& m) { std::erase_if(m.plan.runs, which); }; };
  const auto emulated = [](M& m) {
    std::erase_if(m.plan.runs, [](const PlannedRun& run) { return run.role == RunRole::certify; });
    m.plan.matrix.ranks = RanksPolicy::emulated;
  };
  say_each({
      {"another verdict than expected, and one of which nothing is expected",
       with(10, {{"8x3 global", -0.094, 0.02, 0, false, kSame}, {"8x3 free", -0.094, 0.02}})},
      {"one seed", with(1, {{"8x3 global", 0, 0, 0, false, kSame}})},
      {"a power control that is missed",
       with(10, {kGlobal, {"control", -0.347, 0.018, 0, true}, {"missed", 0, 0.008, 0, true}})},
      {"one that its mechanism shows alone", with(10, {{"blind", 0, 0.008, 0, true}}),
       [](M& m) { m.mechanisms["blind seed 0"].verdict = VerdictKind::divergent; }},
      {"the same, asked of the mechanism", with(10, {{"blind", 0, 0.008, 0, true}}),
       [](M& m) { ask_mechanism(m), m.mechanisms["blind seed 0"].verdict = VerdictKind::divergent; }},
      {"a power control that is undecided",
       with(10, {{"8x3 global", 0.001, 0.008, 0, false, kSame}, {"undecided", -0.02, 0.1, 0, true}})},
      {"an expected failure", with(10, {{"8x3 broken", 0, 0.008, 0, false, {VerdictKind::failed}}}),
       lost("8x3 broken seed 2", 5)},
      {"undecided, and nothing expected", with(10, {{"8x3 free", 0, 0.3}})},
      {"failed, and nothing expected", with(10, {{"8x3 free", 0, 0.3}}), lost("8x3 free seed 2", 5)},
      {"a failed reference", usual(), failed("1x24 global seed 1", 0, "out of memory")},
      {"NaN in a metric", usual(),
       [](M& m) { m.result("8x3 global seed 6").metrics["accuracy_24"] = std::numeric_limits<double>::quiet_NaN(); }},
      {"a metric that is missing", with(3, {kGlobal}), [](M& m) { m.plan.matrix.primary.metric = "accuracy_7"; }},
      {"the same, asked of the mechanism", with(3, {kGlobal}),
       [](M& m) { ask_mechanism(m), m.plan.matrix.primary.metric = "accuracy_7"; }},
      {"a torn trace", usual(), [](M& m) { m.mechanisms.erase("8x3 local seed 0"); }},
      {"a prefix that ends early", with(3, {kGlobal}), [](M& m) { m.certifications["8x3 global certify"].steps = 12; }},
      {"no prefix of real ranks", with(3, {kGlobal}),
       without([](const PlannedRun& run) { return run.role == RunRole::certify; })},
      {"none is wanted", with(3, {kGlobal}), emulated},
      {"a failed prefix", with(3, {kGlobal}), failed("8x3 global certify", 2, "connection reset")},
      {"a failed forced run", forced_matrix(), lost("forced-cell", 0)},
      {"a failed twin of the reference", forced_matrix(), lost("reference-twin", 0)},
      {"a failed twin of the cell", forced_matrix(), lost("cell-twin", 0)},
      {"a forced reference that is missing", forced_matrix(),
       without([](const PlannedRun& run) { return run.id == "forced-reference"; })},
      {"no cell", with(2, {})},
  });
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
    EXPECT_EQ(inputs.run_a, "out/synthetic/runs/1x24 global seed 0");
    EXPECT_EQ(inputs.run_b, "out/synthetic/runs/8x3 global seed 0");
    EXPECT_EQ(inputs.forced_reference, "out/synthetic/runs/forced-reference");
    EXPECT_EQ(inputs.forced_cell, "out/synthetic/runs/forced-cell");
    EXPECT_EQ(inputs.reference_twin, "out/synthetic/runs/reference-twin");
    EXPECT_EQ(inputs.cell_twin, "out/synthetic/runs/cell-twin");
  };
  EXPECT_EQ(matrix.judge().cells[0].verdict, VerdictKind::equivalent);
  EXPECT_EQ(calls, 1);
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

// The judge from a config and files on disk to results, without a trainer: the runs are written by hand.

constexpr const char* kConfig = R"(# Does it learn the same?
name: by_hand
trainer: energy
data: {source: synthetic}
steps: 6
seeds: 0..2
question: outcome
primary: {metric: accuracy_24, margin: 0.03, alpha: 0.05}
certify_steps: 4
forced_steps: []
reference: {layout: 1x24, negatives: global}
axes:
  layout: [3x8]
  negatives: [global, local]
power_controls: [{negatives: local}]
expect:
  - {when: {negatives: global}, verdict: equivalent}
  - {when: {negatives: local}, verdict: divergent}
)";

class JudgeMatrix : public testing::Test {
 protected:
  JudgeMatrix() {
    plan_ = make_plan(parse_matrix(kConfig, "by_hand.yaml", {}), out_, {"build", "libtorch", "isa", "data"});
    for (const PlannedRun& run : plan_.runs) write_run(run);
  }

  std::string dir_of(const PlannedRun& run) const { return out_ + "/runs/" + run.id; }
  const PlannedRun& run_of(const std::string& cell, RunRole role, int64_t seed) const {
    const PlannedRun* run = find_run(plan_, cell, role, seed);
    if (!run) throw std::runtime_error("no " + std::string(name_of(role)) + " run of " + cell);
    return *run;
  }
  Results judge() const { return judge_matrix(plan_, {out_, "lockstep run by_hand.yaml", {}, 2}); }

  /// `flipped_rank`: one value of its local gradient at step 2 is another.
  void write_run(const PlannedRun& run, int flipped_rank = -1) const {
    std::filesystem::create_directories(dir_of(run));
    nlohmann::json described = {{"provenance", {{"host", "one"}, {"threads", "1"}}}};
    seal(described);
    std::ofstream(dir_of(run) + "/run.json") << described.dump();
    const int world = run.config.layout.world_size;
    const int64_t steps = run.role == RunRole::certify ? 4 : 6;
    for (int rank = 0; rank < world; ++rank) {
      write_trace(run, rank, steps, rank == flipped_rank);
      RankResult result;
      result.rank = rank;
      result.world_size = world;
      result.config_hash = run.hash;
      result.status = "finished";
      result.steps_done = steps;
      for (int64_t step = 0; step < steps; ++step) {
        for (const char* curve : {"loss", "loss_over_log_n"}) {
          result.curves[curve].steps.push_back(step);
          result.curves[curve].values.push_back(energy(run.config).negatives == Negatives::local ? 0.2 : 0.3);
        }
      }
      const double noise = 0.004 * static_cast<double>(run.config.seed % 3) * (world > 1 ? 1 : -1);
      if (rank == 0)
        result.metrics["accuracy_24"] = (energy(run.config).negatives == Negatives::local ? 0.6 : 0.7) + noise;
      write_rank_result(dir_of(run) + "/rank-" + std::to_string(rank) + ".result.json", result);
    }
  }

  void write_trace(const PlannedRun& run, int rank, int64_t steps, bool flipped) const {
    TraceHeader header;
    header.config_hash = run.hash;
    header.rank = rank;
    header.world_size = run.config.layout.world_size;
    header.trainer = "energy";
    header.started_by = run.config.backend == Backend::gloo ? "real" : "emulated";
    TraceWriter writer(dir_of(run) + "/rank-" + std::to_string(rank) + ".trace", header);
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<int64_t> ids;
      for (int64_t i = rank; i < 24; i += header.world_size) ids.push_back(24 * step + i);
      const std::array<int64_t, 1> shape{4};
      std::array<float, 4> own{1.0F + static_cast<float>(rank), 2, 3, static_cast<float>(step)};
      const std::array<float, 4> shared{1, 2, 3, static_cast<float>(step)};
      if (flipped && step == 2) own[1] = 2.0000002F;
      writer.begin_step(step);
      writer.samples(ids);
      writer.scalar(Phase::control, "lr", run.config.lr, Sharing::replicated);
      writer.scalar(Phase::loss, "loss", 3.0, Sharing::own);
      writer.tensor(Phase::local_gradients, "head.weight", {own.data(), DType::float32, shape, {}},
                    Sharing::own);
      for (Phase phase : {Phase::reduced_gradients, Phase::parameters}) {
        writer.tensor(phase, "head.weight", {shared.data(), DType::float32, shape, {}}, Sharing::replicated);
      }
      writer.end_step();
    }
    writer.finish();
  }

  const TempFolder folder_;
  const std::string out_ = folder_.path();
  Plan plan_;
};

TEST_F(JudgeMatrix, ReadsWhatRunsLeftAndJudgesIt) {
  const Results results = judge();
  ASSERT_EQ(results.cells.size(), 2u);
  EXPECT_EQ(results.question_text, "Does it learn the same?");
  for (const CellResult& cell : results.cells) {
    EXPECT_FALSE(cell.failure) << cell.failure->message;
    EXPECT_TRUE(cell.as_expected) << cell.scenario;
    EXPECT_EQ(cell.certification.steps, 4);
    EXPECT_FALSE(cell.certification.divergence);
    ASSERT_TRUE(cell.mechanism);
    EXPECT_EQ(cell.mechanism->compared_steps, 6);
  }
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::equivalent);
  EXPECT_EQ(results.cells[1].verdict, VerdictKind::divergent);
  EXPECT_THAT(results.cells[1].outcome->sentence, HasSubstr("although its training loss"));
  EXPECT_THAT(results.cells[1].rerun, HasSubstr("negatives==local"));
  EXPECT_EQ(results.summary.exit_code, 0);
  EXPECT_EQ(results_to_json(results_from_json(results_to_json(results), "r")), results_to_json(results));
}

TEST_F(JudgeMatrix, EachRerunLineSelectsItsCellAlone) {
  for (const CellResult& cell : judge().cells) {
    const std::string& line = cell.rerun;
    const std::size_t begin = line.find('\'') + 1;
    Overrides overrides;
    overrides.only = line.substr(begin, line.rfind('\'') - begin);
    const Matrix selected = parse_matrix(kConfig, "by_hand.yaml", overrides);
    ASSERT_EQ(selected.cells.size(), 1u) << line;
    EXPECT_EQ(selected.cells[0].name, cell.scenario);
  }
}

TEST_F(JudgeMatrix, ARealRankWithOneOtherBitTakesTheCertificateAway) {
  const Results clean = judge();
  const std::string name = clean.cells[0].scenario;
  write_run(run_of(name, RunRole::certify, 0), 1);
  const Results results = judge();
  ASSERT_TRUE(results.cells[0].certification.divergence);
  EXPECT_EQ(results.cells[0].certification.steps, 2);
  EXPECT_EQ(results.cells[0].certification.divergence->rank, 1);
  EXPECT_EQ(results.cells[0].certification.divergence->where, "head.weight");
  EXPECT_FALSE(results.cells[0].as_expected);
  EXPECT_TRUE(results.cells[1].as_expected);
  EXPECT_EQ(results.summary.exit_code, 1);
}

// One digit of a metric's bits: it read as another metric, and the cell as undecided.
TEST_F(JudgeMatrix, OneChangedDigitOfAResultIsDamageAndNoFinding) {
  const PlannedRun& run = run_of(judge().cells[0].scenario, RunRole::cell, 1);
  const std::string path = dir_of(run) + "/rank-0.result.json";
  std::string text = read_text(path);
  const std::size_t at = text.find("\"bits\": \"") + 14;
  text[at] = text[at] == '0' ? '1' : '0';
  write_text(path, text);
  const Results results = judge();
  ASSERT_TRUE(results.cells[0].failure);
  EXPECT_EQ(results.cells[0].failure->kind, FailureKind::unreadable);
  EXPECT_THAT(results.cells[0].failure->message, HasSubstr(path + " is damaged: its checksum is "));
  EXPECT_EQ(results.cells[0].cause->code, "file-damaged");
  EXPECT_THAT(results.cells[0].cause->remedy, HasSubstr("Run the same command again"));
  EXPECT_EQ(results.summary.exit_code, 7);
}

TEST_F(JudgeMatrix, AResultOfAnotherRunIsRefusedByName) {
  const std::string name = judge().cells[0].scenario;
  const PlannedRun &run = run_of(name, RunRole::cell, 1), &other = run_of(name, RunRole::cell, 2);
  const std::string file = "/rank-0.result.json";
  write_text(dir_of(run) + file, read_text(dir_of(other) + file));
  const Results results = judge();
  ASSERT_TRUE(results.cells[0].failure);
  EXPECT_THAT(results.cells[0].failure->message,
              HasSubstr("is of another run: its config hash is " + other.hash + ", where " + run.hash +
                        " was expected"));
}

TEST_F(JudgeMatrix, ATornTraceOrAMissingResultFailsItsCellAlone) {
  const std::string global = judge().cells[0].scenario, local = judge().cells[1].scenario;
  const std::string trace = dir_of(run_of(global, RunRole::cell, 0)) + "/rank-1.trace";
  std::fstream file(trace, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(trace) / 2));
  file.write("\xff\x00\xff\x00\xff\x00", 6);
  file.close();
  Results results = judge();
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::failed);
  EXPECT_EQ(results.cells[0].failure->kind, FailureKind::unreadable);
  EXPECT_THAT(results.cells[0].failure->message, HasSubstr("rank-1.trace"));
  EXPECT_EQ(results.cells[1].verdict, VerdictKind::divergent);

  std::filesystem::remove(dir_of(run_of(local, RunRole::cell, 2)) + "/rank-2.result.json");
  results = judge();
  EXPECT_EQ(results.cells[1].failure->kind, FailureKind::lost);
  EXPECT_EQ(results.cells[1].failure->rank, 2);
  EXPECT_EQ(results.summary.exit_code, 7);
}

// What every question must have, whichever it is: both halves, facts that agree with each other, a config that
// asks it, and words in the documentation.

namespace fs = std::filesystem;
using testing::Contains;

const fs::path kSource = LOCKSTEP_SOURCE_DIR;

/// Questions that a config of configs/ asks.
std::set<std::string> asked_in_configs() {
  std::set<std::string> asked;
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource / "configs")) {
    const bool suite = support::is_suite_config(entry.path());
    if (entry.path().extension() == ".yaml" && !suite) asked.insert(read_matrix(entry.path().string(), {}).question);
  }
  return asked;
}

TEST(Questions, HaveAConfigAndAPlaceInTheDocumentation) {
  const std::set<std::string> asked = asked_in_configs();
  const std::string docs = read_file((kSource / "docs/config.md").string()).text;
  for (const QuestionPlan* question : question_plans()) {
    const std::string name(question->name);
    EXPECT_THAT(asked, Contains(name)) << "no config of configs/ asks it";
    EXPECT_THAT(docs, HasSubstr("`" + name + "`")) << "docs/config.md does not name it";
    EXPECT_FALSE(question->help.empty()) << name;
    EXPECT_FALSE(question->help.ends_with('?')) << name << ": it stands within sentences";
  }
}

TEST(Questions, AreOfOneNameAndOneDefaultEach) {
  std::set<std::string_view> names(question_names().begin(), question_names().end());
  EXPECT_EQ(names.size(), question_plans().size()) << "two have one name";
  EXPECT_EQ(default_question(), question_names().front());
  const auto of_several = [](const QuestionPlan* question) { return question->of_several_seeds; };
  EXPECT_EQ(std::ranges::count_if(question_plans(), of_several), 1);
  EXPECT_EQ(find_question("mechansim"), nullptr);
}

TEST(Questions, SayOfThemselvesWhatAgrees) {
  for (const QuestionPlan* question : question_plans()) {
    const std::string_view name = question->name;
    EXPECT_EQ(question->cells != nullptr || judge_of(name).judge_run != nullptr,
              question->references == References::own)
        << name;
    EXPECT_TRUE(!question->against_plain() || !question->trains) << name;
    EXPECT_EQ(question->compares_results, judge_of(name).compare_untraced != nullptr) << name;
  }
}

TEST(Questions, KeepTheirKeysUnderTheirName) {
  for (const QuestionPlan* question : question_plans()) {
    const std::string name(question->name);
    const bool has_keys = question->fields != nullptr || question->keys != nullptr;
    EXPECT_EQ(question->section != nullptr, has_keys) << name << ": a section is what its keys fill";
    if (question->fields != nullptr) {
      for (const MatrixField& field : question->fields())
        EXPECT_THAT(field.spec.key, testing::StartsWith(name + "."));
    }
    if (question->keys == nullptr) continue;
    for (const QuestionKey& key : question->keys()) {
      EXPECT_TRUE(key.key == name || key.key.starts_with(name + ".")) << key.key;
      EXPECT_EQ(find_question_key(key.key)->read, key.read) << key.key;
      EXPECT_TRUE(key.schema().contains("description") || key.schema().contains("anyOf")) << key.key;
    }
  }
}

TEST(Questions, JudgeACellThatNothingIsKnownOf) {
  const CellResult nothing;
  Results results;
  for (const QuestionPlan* question : question_plans()) {
    const QuestionJudge& judge = judge_of(question->name);
    EXPECT_EQ(judge.verdict(nothing), VerdictKind::inconclusive) << question->name;
    results.question = question->name;
    // Without its part of the results it neither decides alone nor speaks for all.
    if (judge.passed != nullptr) {
      EXPECT_EQ(judge.passed(results), std::nullopt) << question->name;
    }
    if (judge.whole_summary != nullptr) {
      EXPECT_TRUE(judge.whole_summary(results).empty()) << question->name;
    }
    EXPECT_TRUE(judge.sentences(results, SortedCells{}).empty()) << question->name;
  }
}

struct Weather {
  int rain = 3;
};

TEST(Sections, AreFoundByTheirTypeAndCopiedWithTheirMatrix) {
  Matrix matrix;
  matrix.sections.emplace_back(Weather{});
  Matrix copy = matrix;
  section_of<Weather>(copy).rain = 4;
  EXPECT_EQ(section_of<Weather>(matrix).rain, 3);
  EXPECT_EQ(section_of<Weather>(copy).rain, 4);
}

TEST(Sections, StandInEveryMatrixWithTheirDefaults) {
  std::size_t with_section = 0;
  for (const QuestionPlan* question : question_plans()) with_section += question->section != nullptr;
  const Matrix matrix;
  EXPECT_EQ(matrix.sections.size(), with_section);
  EXPECT_DEATH(section_of<Weather>(matrix), "has the section of every question");
}

}  // namespace
}  // namespace lockstep
