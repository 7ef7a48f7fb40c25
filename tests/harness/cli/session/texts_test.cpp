#include "harness/cli/session/texts.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

RankFailure dead(const std::string& run) {
  return {run, FailureKind::died, 1, 17, "all_gather loss.actions", "killed by signal 9 (SIGKILL)", {"one", "two"}};
}

TEST(FailureBlock, SaysWhatWhereAndHowToRepeatIt) {
  EXPECT_EQ(failure_block(dead("8x3-global-s0-12345678"), "out/p", "lockstep run c.yaml --only x"),
            "\nFAILED 8x3-global-s0-12345678\n"
            "  died: killed by signal 9 (SIGKILL)\n"
            "  first: rank 1, after 17 steps, in all_gather loss.actions\n"
            "  its last lines:\n    | one\n    | two\n"
            "  files: out/p/runs/8x3-global-s0-12345678\n"
            "  again: lockstep run c.yaml --only x\n");
}

TEST(FailureBlocks, TakeTheCellsOwnCommand) {
  LaunchReport report;
  report.failures = {dead("a"), dead("b")};
  Results results;
  results.cells.resize(1);
  results.cells[0].rerun = "lockstep run c.yaml --only a";
  results.cells[0].failure = Failure{};
  results.cells[0].failure->run = "a";
  const std::string text = failure_blocks(report, "o", results, "lockstep run c.yaml");
  EXPECT_THAT(text, HasSubstr("again: lockstep run c.yaml --only a\n"));
  EXPECT_THAT(text, HasSubstr("again: lockstep run c.yaml\n"));
}

TEST(FailureBlocks, CountWhatIsTooMuchToShow) {
  LaunchReport report;
  for (int i = 0; i < 7; ++i) report.failures.push_back(dead("r" + std::to_string(i)));
  RankFailure waiting;
  waiting.run = "w";
  waiting.kind = FailureKind::not_started;
  waiting.message = "it needs r0, which failed";
  report.failures.push_back(waiting);
  const std::string text = failure_blocks(report, "o", {}, "again");
  EXPECT_THAT(text, HasSubstr("FAILED r4"));
  EXPECT_THAT(text, Not(HasSubstr("FAILED r5")));
  EXPECT_THAT(text, HasSubstr("2 more runs failed"));
  EXPECT_THAT(text, HasSubstr("1 runs were not started"));
  EXPECT_EQ(failure_blocks({}, "o", {}, "again"), "");
}

TEST(FailuresByRun, KeepEveryField) {
  LaunchReport report;
  report.failures = {dead("a")};
  const Failure failure = failures_by_run(report).at("a");
  EXPECT_EQ(failure.kind, FailureKind::died);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.step, 17);
  EXPECT_EQ(failure.operation, "all_gather loss.actions");
  EXPECT_EQ(failure.last_lines.size(), 2U);
}

TEST(OpeningText, StatesSeedsBuildAndConfigFirst) {
  Prepared prepared;
  prepared.plan.matrix.name = "parity";
  prepared.plan.matrix.seeds = {0, 1, 2};
  prepared.plan.matrix.cells.resize(2);
  prepared.plan.runs.resize(3);
  prepared.plan.runs[0].reused = true;
  prepared.identity = {"b0", "2.13.0", "avx2", "d0"};
  const std::string text = opening_text(prepared, 2);
  EXPECT_THAT(text, HasSubstr("parity: 2 cells, seeds 0..2\n"));
  EXPECT_THAT(text, HasSubstr("build b0 · LibTorch 2.13.0 · avx2 · data d0\n"));
  EXPECT_THAT(text,
              HasSubstr("resolved config " + plan_hash(prepared.plan) + " · 3 runs: 2 to do, 1 reused"));
}

TEST(PlanHash, ChangesWithAnyRun) {
  Plan plan;
  plan.runs.resize(2);
  plan.runs[0].hash = "a";
  const std::string before = plan_hash(plan);
  plan.runs[1].hash = "b";
  EXPECT_NE(plan_hash(plan), before);
}

TEST(SeedsText, ShortensRows) {
  EXPECT_EQ(seeds_text({0, 1, 2, 3}), "0..3");
  EXPECT_EQ(seeds_text({0, 2, 5}), "0, 2, 5");
  EXPECT_EQ(seeds_text({4}), "4");
}

}  // namespace
}  // namespace lockstep
