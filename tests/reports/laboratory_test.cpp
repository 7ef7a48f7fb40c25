// A laboratory's results in every format.

#include "reports/laboratory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/results/document.h"
#include "reports/format.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Results results() {
  Results results;
  results.name = "saver";
  results.question = std::string(kLaboratoryQuestion);
  results.question_text = "Does it survive <kills>?";
  results.rerun = "lockstep run saver.yaml";
  results.summary.exit_code = 1;
  LaboratoryResult& laboratory = results.laboratory.emplace();
  laboratory.kind = "program";
  laboratory.subject = "torch.save & friends";
  laboratory.trials = 12;
  laboratory.cases = 1010;
  laboratory.faults = 2;
  laboratory.undecided = 1;
  laboratory.table = {{"killed", "rank 0, write", "torn", CaseVerdict::fault, 2},
                      {"killed", "rank 0, write", "whole, old", CaseVerdict::good, 1000},
                      {"EIO", "rank 1, rename", "whole, old", CaseVerdict::good, 7},
                      {"EIO", "rank 1, rename", "not reached", CaseVerdict::undecided, 1}};
  laboratory.findings = {{"kill@0:3", "killed", "rank 0, write", "torn", CaseVerdict::fault, "rank 0 is killed. It <refuses>.",
                          {{"rank 0", "open a|b", ""}, {"rank 0", "write a|b", "killed before it"}}, "sh out/replay/kill-0-3.sh"},
                         {"EIO@1:4", "EIO", "rank 1, rename", "not reached", CaseVerdict::undecided, "never", {}, ""}};
  laboratory.facts = {{"operations tried", "11 of 11"}};
  laboratory.notes = {"A power loss is not shown."};
  return results;
}

TEST(LaboratoryReport, TableHasGoodOutcomesThenFaultsThenUndecidedOnes) {
  const OutcomeTable table = outcome_table(*results().laboratory, true);
  std::vector<std::string> names;
  for (const auto& outcome : table.outcomes) names.push_back(outcome.name);
  EXPECT_THAT(names, ElementsAre("whole, old", "torn", "not reached"));
  EXPECT_THAT(table.rows[0].cases, ElementsAre(1000, 2, 0));
  EXPECT_THAT(table.rows[1].cases, ElementsAre(7, 0, 1));
}

TEST(LaboratoryReport, TableCanBeOneRowAFailure) {
  Results each = results();
  each.laboratory->table.push_back({"killed", "rank 1, write", "torn", CaseVerdict::fault, 5});
  const OutcomeTable table = outcome_table(*each.laboratory, false);
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_THAT(table.rows[0].cases, ElementsAre(1000, 7, 0));
}

TEST(LaboratoryReport, EveryFormatSaysWhatWasFoundAndHowToSeeItAgain) {
  for (const ReportFormat& format : report_formats()) {
    const std::string text = render(results(), std::string(format.name));
    EXPECT_THAT(text, HasSubstr("0:3")) << format.name;  // Markdown writes @ as an entity
    EXPECT_THAT(text, HasSubstr("kill-0-3.sh")) << format.name;
    EXPECT_THAT(text, HasSubstr("torn")) << format.name;
    if (format.name == "html" || format.name == "junit") {
      EXPECT_THAT(text, Not(HasSubstr("<refuses>"))) << format.name;
    }
  }
}

TEST(LaboratoryReport, TheTerminalCountsByFailureAndPlace) {
  const std::string text = render(results(), "text");
  EXPECT_THAT(text, HasSubstr("killed, rank 0, write"));
  EXPECT_THAT(text, HasSubstr("1000"));
  EXPECT_THAT(text, HasSubstr("✗ Faults found: 12 trials (1010 cases), 2 wrong, 1 undecided."));
  EXPECT_THAT(text, HasSubstr("A power loss is not shown."));
  EXPECT_THAT(text, HasSubstr("operations tried: 11 of 11"));
}

TEST(LaboratoryReport, ThePageShowsTheTimeline) {
  const std::string page = render(results(), "html");
  EXPECT_THAT(page, HasSubstr("killed before it"));
  EXPECT_THAT(page, HasSubstr("Does it survive &lt;kills&gt;?"));
}

TEST(LaboratoryReport, IsGoodWhereNothingWasFound) {
  Results each = results();
  each.laboratory->faults = each.laboratory->undecided = 0;
  each.summary.exit_code = 0;
  EXPECT_EQ(laboratory_status(each).word, "No fault found");
  each.laboratory->undecided = 1;
  each.summary.exit_code = 5;
  EXPECT_EQ(laboratory_status(each).word, "Undecided");
}

TEST(LaboratoryResults, AreReadAsTheyWereWritten) {
  const std::string text = results_to_json(results());
  const Results read = results_from_json(text, "results.json");
  EXPECT_EQ(results_to_json(read), text);
  ASSERT_TRUE(read.laboratory);
  EXPECT_EQ(read.laboratory->findings[0].timeline[1].mark, "killed before it");
  EXPECT_EQ(read.question, "laboratory");
}

}  // namespace
}  // namespace lockstep
