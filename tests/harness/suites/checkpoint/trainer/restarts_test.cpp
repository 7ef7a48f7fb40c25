// The suite over real runs: a slice of each experiment is silent on the trainer as it is, and what judges them notices
// what is wrong.

#include "harness/suites/checkpoint/trainer/restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/base/errors.h"
#include "harness/run/libraries.h"
#include "harness/suites/checkpoint/trainer/bench.h"
#include "tests/support/suite_run.h"
#include "tests/support/temp_folder.h"
#include "tests/support/whole.h"

namespace lockstep::restarts {
namespace {

using testing::HasSubstr;

const std::string kMatrix = LOCKSTEP_SOURCE_DIR "/configs/smoke.yaml";

std::string config_of(const std::string& more) {
  return "name: tried\nlaboratory: trainer\ntrainer:\n  matrix: " + kMatrix +
         "\n  cell: 3x8 global\n  set: [model.width=8, model.hidden=16, data.series=24, data.series_steps=40, "
         "schedule=cosine, eval_every=2, running_stats=true]\n" +
         more;
}

SuiteResult run_config(const std::string& text) { return support::run_tried(trainer_suite(), text); }

SuiteResult run_silent(const std::string& text) {
  SuiteResult result = run_config(text);
  support::expect_silent(result);
  return result;
}

std::string problem_of(const std::string& text) { return support::problem_of(trainer_suite(), text); }

TEST(TrainerSuite, IsSilentOnKillsWithinSaves) {
  const SuiteResult result = run_silent(config_of("  tries: [kill]\n  points: 1\n"));
  EXPECT_EQ(result.trials, 2 + 2 + 2 + 4 + 1);
  EXPECT_EQ(result.faults + result.undecided, 0);
}

TEST(TrainerSuite, FindsASaverWhoseRanksWriteOneFile) {
  const SuiteResult result = run_config(
      config_of("  tries: [kill]\n  points: " + std::to_string(support::whole_or(4, 5)) + "\n  mistake: one_file_name\n"));
  EXPECT_GT(result.faults, 0);
  for (const SuiteFinding& finding : result.findings) {
    if (finding.verdict != CaseVerdict::fault) continue;
    EXPECT_EQ(finding.outcome, "torn") << finding.sentence;
    EXPECT_THAT(finding.sentence, HasSubstr("a checkpoint counts that is damaged"));
  }
}

TEST(TrainerSuite, IsSilentOnStops) {
  const SuiteResult result = run_silent(config_of("  tries: [resume]\n  resume_steps: 2\n"));
  EXPECT_EQ(result.trials, 5);
  EXPECT_EQ(result.faults + result.undecided, 0);
}

TEST(TrainerSuite, NamesEveryKindThatIsLeftOut) {
  const SuiteResult result = run_silent(config_of("  tries: [left_out]\n"));
  EXPECT_GE(result.trials, 30);
  EXPECT_EQ(result.faults + result.undecided, 0);
}

TEST(TrainerSuite, IsSilentOnRandomKillsAndSignals) {
  const int each = support::whole_or(1, 2);
  const std::string count = std::to_string(each);
  const SuiteResult result =
      run_silent(config_of("  tries: [cycle, preempt]\n  cycles: " + count + "\n  signals: " + count + "\n"));
  EXPECT_EQ(result.cases, each + 1 + each);
  EXPECT_EQ(result.faults + result.undecided, 0);
}

TEST(TrainerSuite, HasASchemaOfItsSection) {
  const nlohmann::ordered_json schema = trainer_suite().schema();
  EXPECT_EQ(schema.at("required"), (nlohmann::ordered_json{"matrix", "cell"}));
  EXPECT_EQ(schema.at("properties").at("set").at("items").at("type"), "string");
  EXPECT_EQ(schema.at("properties").at("tries").at("items").at("enum").size(), 6u);
}

TEST(TrainerSuite, RefusesWhatItCannotTry) {
  EXPECT_THAT(problem_of("name: tried\nlaboratory: trainer\ntrainer:\n  cell: x\n"), HasSubstr("trainer.matrix is missing"));
  EXPECT_THAT(problem_of(config_of("  tries: [kil]\n")), HasSubstr("unknown 'kil'; known are kill, resume, left_out"));
  EXPECT_THAT(problem_of("name: tried\nlaboratory: trainer\ntrainer:\n  matrix: " + kMatrix + "\n  cell: 5x5\n"),
              HasSubstr("trainer.cell: '5x5' selects no cell"));
  EXPECT_THAT(problem_of("name: tried\nlaboratory: trainer\ntrainer:\n  matrix: /nowhere.yaml\n  cell: 5x5\n"),
              HasSubstr("/nowhere.yaml"));
}

TEST(Shaped, SaysThatABatchCannotBeShared) {
  RunConfig config;
  config.layout = {3, 8};
  EXPECT_EQ(shaped(config, {4, 10, 2}).layout.rows_per_rank, 6);
  EXPECT_THROW(shaped(config, {5, 10, 2}), ConfigError);
}

/// Two equal runs of the trainer, and what is noticed when one of them is changed.
TEST(Judge, NamesTheRankAndTheStepAtWhichTwoRunsPart) {
  const TempFolder folder;
  const RestartsConfig config = [] {
    SuiteSource source;
    Problems problems("tried.yaml");
    source = support::read_tried(trainer_suite(), config_of("")).source;
    return read_restarts_config(source, problems);
  }();
  const int stop = 0;
  Bench bench(rank_program_path(), folder.path() + "/work", 60, &stop);
  const RunConfig run = shaped(config.subject.config, {2, 6, 2, 3, false, false});
  const std::string whole = reference(bench, "whole", run);
  EXPECT_EQ(kept_in(whole).whole, (std::vector<int64_t>{6, 4, 2}));

  const std::string same = bench.copy(whole, "same");
  EXPECT_EQ(first_difference(whole, same, 2), "");
  EXPECT_EQ(trace_difference_before(whole, same, 2, 6), "");

  RunConfig other = run;
  other.warmup_steps = 3;
  other.schedule = Schedule::warmup;
  const std::string changed = bench.empty("changed");
  bench.attempt(changed, other);
  EXPECT_THAT(trace_difference_before(whole, changed, 2, 6), HasSubstr("rank 0: trace: step 0: control, learning_rate"));
  EXPECT_THAT(first_difference(whole, changed, 2), HasSubstr("rank 0: curve "));

  std::filesystem::resize_file(trace_of(same, 1), std::filesystem::file_size(trace_of(same, 1)) / 2);
  EXPECT_THAT(first_difference(whole, same, 2), HasSubstr("rank 1: trace: step "));
  std::filesystem::remove(same + "/rank-1.result.json");
  EXPECT_THAT(first_difference(whole, same, 2), HasSubstr("rank 1: it did not finish"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(same + "/checkpoints")) {
    if (entry.path().filename() == "manifest.json") std::ofstream(entry.path(), std::ios::app) << "x";
  }
  EXPECT_TRUE(kept_in(same).whole.empty());
  EXPECT_EQ(kept_in(same).damaged, 3);
}

}  // namespace
}  // namespace lockstep::restarts
