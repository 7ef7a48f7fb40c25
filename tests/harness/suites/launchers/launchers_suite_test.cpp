// Every launcher's ranks are told apart, each planted mistake is refused or named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "harness/suites/launchers/answers.h"
#include "harness/suites/launchers/launchers.h"
#include "harness/suites/launchers/words.h"
#include "tests/support/suite_run.h"

namespace lockstep {
namespace {

using support::cases_of;
using support::expect_silent;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

SuiteResult run(const std::string& section, const std::string& only = "") {
  return support::run_tried(launchers_suite(), "name: slice\nsuite: launchers\nlaunchers: {" + section + "}\n", only);
}

TEST(LaunchersSuite, IsSilentWithoutAMistake) {
  const SuiteResult result = run("most_nodes: 3, most_ranks_a_node: 8, planted: false");
  expect_silent(result, 100);
  // Eight on one node, and on two and three with all alike, the last short, and the first long as well; one a node has no such others.
  EXPECT_EQ(cases_of(result, "every launcher", "as it must be"), 5 * (8 + 2 * (8 + 7 + 7)) + 3);
  EXPECT_EQ(cases_of(result, "two nodes of eight ranks", "as it must be"), 5);
}

TEST(LaunchersSuite, FindsWhatIsPlanted) {
  const SuiteResult result = run("most_nodes: 3, most_ranks_a_node: 4");
  EXPECT_EQ(result.faults, 0) << support::findings_of(result);
  std::set<std::string> planted;
  for (const SuiteFinding& finding : result.findings) {
    EXPECT_EQ(finding.verdict, CaseVerdict::planted) << finding.sentence;
    planted.insert(finding.trial);
  }
  EXPECT_EQ(planted, (std::set<std::string>{"planted:deleted-devices", "planted:half", "planted:other-rank", "planted:other-world",
                                            "planted:written-world"}));
}

TEST(LaunchersSuite, SaysWhoseGpuIsTaken) {
  const SuiteResult result = run("", "planted:deleted-devices");
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_THAT(result.findings[0].sentence,
              AllOf(HasSubstr("the job was given GPUs 1; without CUDA_VISIBLE_DEVICES local rank 0 takes GPU 0"), HasSubstr("not the job's")));
}

TEST(LaunchersSuite, TellsWhatEachRankTookItselfFor) {
  const SuiteResult result = run("most_nodes: 2, most_ranks_a_node: 2, planted: false");
  ASSERT_EQ(result.tables.size(), 2U);
  const SuiteTable &asked = result.tables[0], &ranks = result.tables[1];
  // Six launchers at every placement, five of them on two nodes of eight, two pairs, a batch script, devices.
  ASSERT_EQ(asked.rows.size(), 6U + 5 + 2 + 1 + 1);
  EXPECT_THAT(asked.rows[0].cells, ElementsAre("every launcher", "lockstep", "6", "16", "0"));
  for (const TableRow& row : asked.rows) EXPECT_EQ(row.verdict, CaseVerdict::good) << row.cells[1];
  ASSERT_EQ(ranks.rows.size(), 16U);
  EXPECT_THAT(ranks.rows[9].cells, ElementsAre("9", "9/16, 1, GPU 1", "9/16, 1, GPU 1", "9/16, 1, GPU 1", "9/16, 1, GPU 1", "9/16, 1, GPU 1"));
}

TEST(LaunchersSuite, HasNoTableOfWhatWasNotAsked) {
  EXPECT_TRUE(run("", "planted:half").tables.empty());
}

TEST(Answers, MarkWhatIsWrong) {
  Measurements m;
  const MeasuredTrial trial(m);
  launchers::Answers answers;
  answers.expect({"every launcher", "torchrun"});
  launchers::Answers::answered({"every launcher", "torchrun"}, {4, 0});
  launchers::Answers::answered({"every launcher", "torchrun"}, {6, 2, "rank 1 is mistaken for rank 0"});
  launchers::Answers::answered_by_rank("torchrun", {{"0/2, 0, GPU 0", false}, {"0/2, 0, GPU 0", true}});
  const std::vector<SuiteTable> tables = answers.tables(m);
  ASSERT_EQ(tables.size(), 2U);
  EXPECT_THAT(tables[0].rows[0].cells, ElementsAre("every launcher", "torchrun", "2", "10", "2", "rank 1 is mistaken for rank 0"));
  EXPECT_EQ(tables[0].rows[0].verdict, CaseVerdict::fault);
  EXPECT_EQ(tables[1].rows[0].verdict, CaseVerdict::good);
  EXPECT_THAT(tables[1].rows[1].cells, ElementsAre("1", "✗ 0/2, 0, GPU 0"));
  EXPECT_EQ(tables[1].rows[1].verdict, CaseVerdict::fault);
}

TEST(LaunchersSuite, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(support::problem_of(launchers_suite(), "name: x\nsuite: launchers\nlaunchers: {most_node: 3}\n"),
              AllOf(HasSubstr("tried.yaml:3:13"), HasSubstr("most_nodes")));
  EXPECT_THAT(support::problem_of(launchers_suite(), "name: x\nsuite: launchers\nlaunchers: {most_nodes: 0}\n"), HasSubstr("tried.yaml:3:"));
}

TEST(LaunchersSuite, IsReadByItsOldNameToo) {
  EXPECT_EQ(support::run_tried(launchers_suite(), std::string("name: x\n") + "laboratory" + ": " + "starters" + "\n" + "starters" + ": {most_nodes: 2, planted: false}\n", "devices:given").faults, 0);
}

TEST(Placement, NumbersRanksNodeByNode) {
  const launchers::Placement placement{{2, 1, 3}};
  EXPECT_EQ(placement.world(), 6);
  EXPECT_EQ(placement.node_of(2), 1);
  EXPECT_EQ(placement.node_of(3), 2);
  EXPECT_EQ(placement.local_rank_of(5), 2);
  EXPECT_EQ(launchers::in_words(placement), "nodes of 2 + 1 + 3");
  EXPECT_EQ(launchers::in_words({{8, 8}}), "2 nodes of 8");
}

}  // namespace
}  // namespace lockstep
