// A slice of the suite of rewards on emulated ranks: silent on what is right, and every mutant is named.

#include "harness/suites/rewards/reward_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "harness/suites/rewards/emulated.h"
#include "harness/suites/rewards/judge.h"
#include "tests/support/suite_run.h"

namespace lockstep::rewards {
namespace {

using testing::HasSubstr;

std::string config_of(const std::string& more) { return "name: tried\nlaboratory: rewards\nrewards:\n" + more; }

SuiteResult run_config(const std::string& more, int jobs = 2) {
  return support::run_tried(rewards_suite(), config_of(more), "", jobs);
}

void expect_no_fault(const SuiteResult& result) {
  EXPECT_EQ(result.faults + result.undecided, 0);
  for (const SuiteFinding& finding : result.findings) {
    if (finding.verdict != CaseVerdict::planted) ADD_FAILURE() << finding.trial << ": " << finding.outcome << ": " << finding.sentence;
  }
}

std::string problem_of(const std::string& more) { return support::problem_of(rewards_suite(), config_of(more)); }

TEST(RewardTrials, FindNothingOnGoodCases) {
  const SuiteResult result = run_config("  cases: 100\n  real_cases: 0\n  mutants: false\n  faults: false\n");
  EXPECT_EQ(result.cases, 100);
  expect_no_fault(result);
  EXPECT_TRUE(result.findings.empty());
}

TEST(RewardTrials, DoNotDependOnTheNumberOfJobs) {
  const std::string more = "  cases: 40\n  real_cases: 0\n  mutants: false\n  faults: false\n";
  EXPECT_EQ(run_config(more, 1).facts, run_config(more, 4).facts);
}

TEST(RewardTrials, NameEveryMutantAtItsFirstStep) {
  const SuiteResult result =
      run_config("  ranks: [3]\n  cases: 1\n  real_cases: 0\n  mutant_cases: 1\n  faults: false\n");
  expect_no_fault(result);
  std::set<std::string> named;
  for (const SuiteCount& row : result.table) {
    if (row.verdict == CaseVerdict::planted) named.insert(row.failure);
  }
  EXPECT_GE(named.size(), 80u);
  for (const Mutant& mutant : mutants()) EXPECT_TRUE(named.contains(std::string(mutant.name))) << mutant.name;
}

TEST(RewardTrials, LeaveWithOneErrorWhereSomethingFails) {
  const SuiteResult result = run_config(
      "  ranks: [1, 3]\n  cases: 1\n  real_cases: 0\n  mutants: false\n  score_deadline_s: 0.1\n");
  expect_no_fault(result);
  EXPECT_EQ(result.cases, 1 + 4 + 6);
}

TEST(RewardTrials, HoldRowsOfAGivenShapeAndConvention) {
  expect_no_fault(run_config("  ranks: [2, 4]\n  cases: 20\n  real_cases: 0\n  mutants: false\n  faults: false\n  rows: 6\n"
                             "  group_size: 4\n  convention: {ddof: 1, epsilon: 1e-6, floor: 0, group_of_one: raw}\n"));
}

TEST(RewardTrials, RefuseWhatCannotBeWithItsPlace) {
  EXPECT_THAT(problem_of("  ranks: [2, 3]\n  rows: 6\n  group_size: 4\n"),
              HasSubstr("tried.yaml:6:3: rewards.group_size: groups of 4 do not divide the 18 rows of 3 ranks"));
  EXPECT_THAT(problem_of("  cases: 0\n"), HasSubstr("tried.yaml:4:10"));
  EXPECT_THAT(problem_of("  ranks: [0]\n"), HasSubstr("tried.yaml:4:"));
  EXPECT_THAT(problem_of("  ranks: [2, 2]\n"), HasSubstr("names a number twice"));
  EXPECT_THAT(problem_of("  group_size: 4\n"), HasSubstr("set rewards.rows"));
  EXPECT_THAT(problem_of("  convention: {floor_place: deviatoin}\n"), HasSubstr("did you mean"));
  EXPECT_THAT(problem_of("  convention: {ddof: 2}\n"), HasSubstr("tried.yaml:4:"));
  EXPECT_THAT(problem_of("  convention: 3\n"), HasSubstr("must be a map of keys"));
  EXPECT_THAT(problem_of("  convention: {ddof: 1}\n  convention.ddof: 0\n"), HasSubstr("given with and without its group"));
  EXPECT_THAT(problem_of("  deadline_s: 1\n  score_deadline_s: 2\n"), HasSubstr("tried.yaml:5:3: rewards.score_deadline_s: must be below"));
  EXPECT_THAT(problem_of("  case: 3\n  rank: [1]\n"), testing::AllOf(HasSubstr("4:3"), HasSubstr("5:3")));
}

TEST(Mutants, HaveNamesOfTheirOwnAndCausesThatExist) {
  std::set<std::string_view> names;
  for (const Mutant& mutant : mutants()) {
    EXPECT_TRUE(names.insert(mutant.name).second) << mutant.name;
    EXPECT_FALSE(help_of(mutant.cause).empty()) << mutant.name;
  }
}

/// A judge that cannot say no is none: each kind of answer that is wrong is called so.
TEST(Judge, CallsWrongAnswersWrong) {
  const Case one = make_telling_case(1, 0, 3);
  const Plant plant = plant_of({.seed = 1, .world = 3}, {0, "zeros_elsewhere", FaultKind::none});
  Answer right;
  right.code = "zeros";
  right.step = right.acted = 1;
  right.findings = 1;
  EXPECT_EQ(judge_mutant(one, plant, {right, right, right}).verdict, CaseVerdict::planted);
  Answer other = right, late = right, silent = right, besides = right;
  other.code = "expanded";
  late.step = 2;
  silent.code.clear();
  besides.findings = 2;
  EXPECT_EQ(judge_mutant(one, plant, {other, other, other}).outcome, "named wrongly");
  EXPECT_EQ(judge_mutant(one, plant, {late, late, late}).outcome, "named too late");
  EXPECT_EQ(judge_mutant(one, plant, {silent, silent, silent}).outcome, "not found");
  EXPECT_EQ(judge_mutant(one, plant, {besides, besides, besides}).outcome, "named, and something besides");
  EXPECT_EQ(judge_mutant(one, plant, {right, other, right}).outcome, "ranks were told differently");
}

TEST(Judge, SeesAnotherBitAnAlarmAndADistance) {
  const Case one = make_telling_case(1, 0, 3);
  const std::vector<Played> good = play_emulated(one);
  Distances far;
  ASSERT_EQ(judge_case(one, good, 4, far).verdict, CaseVerdict::good);
  std::vector<Played> bad = good;
  bad[2].digest[0] ^= 1;
  EXPECT_EQ(judge_case(one, bad, 4, far).outcome, "ranks differ");
  bad = good;
  bad[0].findings.push_back({"zeros", {}, 0, {1}, "step 0"});
  EXPECT_EQ(judge_case(one, bad, 4, far).outcome, "false alarm");
  bad = good;
  bad[0].steps[1].advantages.values[2] += 1e-13;
  EXPECT_EQ(judge_case(one, bad, 4, far).outcome, "far from one process");
  bad = good;
  bad[0].steps[1].partitioned.by_rank[1][0].rows += 1;
  EXPECT_EQ(judge_case(one, bad, 4, far).outcome, "not what one process has");
  bad = good;
  bad[0].numbers[0] ^= 1;
  EXPECT_EQ(judge_case(one, bad, 4, far).outcome, "depends on the layout");
  EXPECT_EQ(judge_real(one, {answer_of(good[0]), answer_of(good[1])}, answer_of(good[0])).verdict, CaseVerdict::good);
  Answer other = answer_of(good[1]);
  other.digest[0] ^= 1;
  EXPECT_EQ(judge_real(one, {answer_of(good[0]), other}, answer_of(good[0])).outcome, "ranks differ");
}

TEST(Judge, SeesARankThatKeptHalfAStep) {
  Case one = make_telling_case(1, 0, 3);
  one.fault = FaultKind::throws;
  one.fault_step = 1;
  const std::vector<Played> by_rank = play_emulated(one);
  const std::string kept = by_rank[0].kept;
  std::vector<Answer> answers{answer_of(by_rank[0]), answer_of(by_rank[1]), answer_of(by_rank[2])};
  EXPECT_EQ(judge_fault(one, answers, kept).verdict, CaseVerdict::good);
  answers[1].kept[0] ^= 1;
  EXPECT_EQ(judge_fault(one, answers, kept).outcome, "half updated");
  answers[1].code = "rank-ended";
  EXPECT_EQ(judge_fault(one, answers, kept).outcome, "another error");
}

}  // namespace
}  // namespace lockstep::rewards
