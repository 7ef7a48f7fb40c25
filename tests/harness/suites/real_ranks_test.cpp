#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/jobs/orders/faults/order.h"
#include "harness/run/libraries.h"
#include "harness/suites/checkpoint/trainer/restarts.h"
#include "harness/suites/checkpoint/trainer/resumes.h"
#include "harness/suites/engine/run_trials.h"
#include "harness/suites/faults/faults.h"
#include "harness/suites/faults/judge.h"
#include "tests/support/suite_run.h"
#include "tests/support/temp_folder.h"
#include "tests/support/whole.h"

// The labelled suite: a slice of it on real ranks, and what judges it notices a bench that does not watch.

namespace lockstep::faults {
namespace {

using testing::HasSubstr;

std::string text_of(const std::string& more) { return "name: tried\nlaboratory: faults\nfaults:\n" + more; }

/// One trial, in which nothing is found.
void expect_silent(const std::string& more, const std::string& only) {
  const SuiteResult result = support::run_tried(faults_suite(), text_of(more), only, 1);
  EXPECT_EQ(result.trials, 1) << only;
  support::expect_silent(result);
}

TEST(FaultsSuite, NamesADeathAStopAWrongCallANumberAndAFlippedBit) {
  for (const char* trial : {"wrong:kill:1", "wrong:stop:1", "wrong:wrong_size:2", "wrong:nan:1", "wrong:flip_weight:2"}) {
    expect_silent("  threshold_s: 0.3\n", trial);
  }
}

TEST(FaultsSuite, IsSilentOnTheirTwins) {
  for (const char* trial : {"control:kill:1:0", "control:wrong_size:2:0", "control:nan:1:0"}) {
    expect_silent("  threshold_s: 0.5\n", trial);
  }
}

TEST(FaultsSuite, FindsABenchThatDoesNotWatch) {
  const std::string unwatched = text_of("  threshold_s: 0.3\n  deadline_s: 1.5\n  mistake: unwatched\n");
  EXPECT_EQ(support::run_tried(faults_suite(), unwatched, "wrong:stop:1", 1).faults, 1);
}

TEST(FaultsSuite, RefusesWordsThatItDoesNotKnow) {
  EXPECT_THAT(support::problem_of(faults_suite(), text_of("  tries: [wrnog]\n")), HasSubstr("wrong"));
  EXPECT_THAT(support::problem_of(faults_suite(), text_of("  threshold: 1\n")), HasSubstr("threshold_s"));
  EXPECT_THAT(support::problem_of(faults_suite(), text_of("  mistake: unwacthed\n")), HasSubstr("unwatched"));
}

TEST(FaultKinds, AreManyAndEachHasItsTwinAndItsWords) {
  std::set<std::string_view> names;
  for (const FaultKind& kind : fault_kinds()) {
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
    EXPECT_FALSE(kind.wrong.empty() || kind.control.empty() || kind.says.empty()) << kind.name;
  }
  EXPECT_GE(names.size(), 36U);
}

Played finished_by_all(int world) {
  Played played;
  for (int rank = 0; rank < world; ++rank) {
    played.results.emplace_back();
    played.results.back().status = "finished";
  }
  played.acted_at = 1;
  return played;
}

TEST(FaultJudge, CallsAFaultMissedThatNobodySpokeOf) {
  const Played played = finished_by_all(3);
  Order order;
  order.kind = "flip_weight";
  const FaultKind& kind = *std::ranges::find(fault_kinds(), "flip_weight", &FaultKind::name);
  EXPECT_EQ(judge_wrong(kind, order, played, said_of(played, {}, {})).outcome, "missed");
  EXPECT_EQ(judge_control(kind, order, played, said_of(played, {}, {})).outcome, "silent");
}

TEST(FaultJudge, WantsTheRightRankAndTheRightWords) {
  Played played = finished_by_all(3);
  RankFailure failure;
  failure.kind = FailureKind::died;
  failure.rank = 2;
  failure.message = "killed by signal 9 (SIGKILL)";
  played.run.failure = failure;
  Order order;
  order.kind = "kill";
  order.rank = 1;
  const FaultKind& kind = *std::ranges::find(fault_kinds(), "kill", &FaultKind::name);
  EXPECT_EQ(judge_wrong(kind, order, played, said_of(played, {}, {})).outcome, "named wrongly");
  order.rank = 2;
  EXPECT_EQ(judge_wrong(kind, order, played, said_of(played, {}, {})).outcome, "named");
  played.left_behind = {"process 17 (S)"};
  EXPECT_EQ(judge_wrong(kind, order, played, said_of(played, {}, {})).outcome, "left behind");
  EXPECT_EQ(judge_control(kind, order, played, said_of(played, {}, {})).outcome, "false alarm");
}

TEST(FaultJudge, NamesStepRankTensorAndElementWhereRecordsPart) {
  const std::vector<std::vector<std::string>> good{{"0\tw\ta\tb", "1\tw\ta\tb"}, {"0\tw\ta\tb", "1\tw\ta\tb"}};
  std::vector<std::vector<std::string>> bad = good;
  EXPECT_EQ(first_difference(good, bad), "");
  bad[1][1] = "1\tw\ta\tc";
  EXPECT_EQ(first_difference(good, bad), "rank 1, step 1: w at element 1");
}

}  // namespace
}  // namespace lockstep::faults

// The suite over real runs: a slice of each experiment is silent on the trainer as it is, and what judges them notices
// what is wrong.

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
  EXPECT_EQ(run_silent(config_of("  tries: [kill]\n  points: 1\n")).trials, 2 + 2 + 2 + 4 + 1);
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
  EXPECT_EQ(run_silent(config_of("  tries: [resume]\n  resume_steps: 2\n")).trials, 5);
}

TEST(TrainerSuite, NamesEveryKindThatIsLeftOut) {
  EXPECT_GE(run_silent(config_of("  tries: [left_out]\n")).trials, 30);
}

TEST(TrainerSuite, IsSilentOnRandomKillsAndSignals) {
  const int each = support::whole_or(1, 2);
  const std::string count = std::to_string(each);
  const SuiteResult result =
      run_silent(config_of("  tries: [cycle, preempt]\n  cycles: " + count + "\n  signals: " + count + "\n"));
  EXPECT_EQ(result.cases, each + 1 + each);
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
