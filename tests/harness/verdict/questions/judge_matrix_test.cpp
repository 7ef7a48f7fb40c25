// The judge from a config and files on disk to results, without a trainer: the runs are written by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/base/json.h"
#include "harness/verdict/plan/read_matrix.h"
#include "harness/verdict/questions/judge.h"
#include "harness/verdict/results/document.h"
#include "harness/verdict/trace/rank_result.h"
#include "harness/verdict/trace/writer.h"
#include "scenarios/energy/config.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

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
  JudgeMatrix() : out_(testing::TempDir() + "lockstep_judge_matrix_" + std::to_string(::getpid())) {
    std::filesystem::remove_all(out_);
    plan_ = make_plan(parse_matrix(kConfig, "by_hand.yaml", {}), out_, {"build", "libtorch", "isa", "data"});
    for (const PlannedRun& run : plan_.runs) write_run(run);
  }
  ~JudgeMatrix() override { std::filesystem::remove_all(out_); }

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

  std::string out_;
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

}  // namespace
}  // namespace lockstep
