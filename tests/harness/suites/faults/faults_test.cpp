// The labelled suite: a slice of it on real ranks, and what judges it notices a bench that does not watch.

#include "harness/suites/faults/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "harness/base/errors.h"
#include "harness/base/machine.h"
#include "harness/jobs/orders/faults/order.h"
#include "harness/suites/engine/run_trials.h"
#include "harness/suites/faults/judge.h"
#include "tests/support/temp_folder.h"

namespace lockstep::faults {
namespace {

using testing::HasSubstr;

SuiteConfig read(const std::string& more) {
  const SuiteKind* const kinds[] = {&faults_suite()};
  return read_suite("name: tried\nlaboratory: faults\nfaults:\n" + more, "tried.yaml", {}, kinds);
}

SuiteResult run_config(const std::string& more, const std::string& only, bool silent = true) {
  const TempFolder folder;
  const SuiteConfig config = read(more);
  const int stop = 0;
  const SuiteRun run{folder.path(), 1, &stop, [](const std::string&) {}};
  TrialOptions options;
  options.only = only;
  options.clock = monotonic_s;
  SuiteResult result = run_trials(*config.suite, run, options).result;
  for (const SuiteFinding& finding : result.findings) {
    if (silent) ADD_FAILURE() << finding.trial << ": " << finding.outcome << ": " << finding.sentence;
  }
  return result;
}

std::string problem_of(const std::string& more) {
  try {
    read(more);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(FaultsSuite, NamesADeathAStopAWrongCallANumberAndAFlippedBit) {
  for (const char* trial : {"wrong:kill:1", "wrong:stop:1", "wrong:wrong_size:2", "wrong:nan:1", "wrong:flip_weight:2"}) {
    EXPECT_EQ(run_config("  threshold_s: 0.3\n", trial).trials, 1) << trial;
  }
}

TEST(FaultsSuite, IsSilentOnTheirTwins) {
  for (const char* trial : {"control:kill:1:0", "control:wrong_size:2:0", "control:nan:1:0"}) {
    EXPECT_EQ(run_config("  threshold_s: 0.5\n", trial).trials, 1) << trial;
  }
}

TEST(FaultsSuite, FindsABenchThatDoesNotWatch) {
  const SuiteResult result = run_config("  threshold_s: 0.3\n  deadline_s: 1.5\n  mistake: unwatched\n", "wrong:stop:1", false);
  EXPECT_EQ(result.faults, 1);
}

TEST(FaultsSuite, RefusesWordsThatItDoesNotKnow) {
  EXPECT_THAT(problem_of("  tries: [wrnog]\n"), HasSubstr("wrong"));
  EXPECT_THAT(problem_of("  threshold: 1\n"), HasSubstr("threshold_s"));
  EXPECT_THAT(problem_of("  mistake: unwacthed\n"), HasSubstr("unwatched"));
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
