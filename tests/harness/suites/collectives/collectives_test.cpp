// Collectives of real ranks: every element right, and the one that is changed on purpose found and named.

#include "harness/suites/collectives/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/suites/collectives/figures.h"
#include "tests/support/suite_run.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

SuiteResult run(const std::string& section, const std::string& only = "") {
  return support::run_tried(collectives_suite(), "name: slice\nlaboratory: collectives\ncollectives: {" + section + "}\n", only);
}

TEST(Collectives, GiveEveryElementRight) {
  const SuiteResult result = run("most_ranks: 3, least_bytes: 4, most_bytes: 4096, factor: 32, most_calls: 3, planted: false");
  support::expect_silent(result);
  // Ten of two and of three ranks; a barrier has one size.
  // And all-reduce with other threads, on two ranks: two sizes, each both ways in five rounds.
  EXPECT_EQ(result.trials, 20 + 1);
  EXPECT_EQ(result.cases, 2 * (9 * 3 + 1) + 2 * 2 * 5);
  EXPECT_EQ(support::fact(result, "wrong elements"), "0 in 56 measurements");
  // A line for each collective, then each with every size; bandwidth and time by size of all but the barrier.
  ASSERT_EQ(result.tables.size(), 12U);
  EXPECT_EQ(result.tables[0].rows.size(), 10U);
  EXPECT_EQ(result.tables[1].rows.size(), 2U) << "threads";
  EXPECT_EQ(result.tables[2].rows.size(), 6U);
  EXPECT_THAT(result.tables[2].rows[3].cells, testing::Contains("12"));
  ASSERT_EQ(result.charts.size(), 2U);
  EXPECT_EQ(result.charts[0].panels.size(), 9U);
}

TEST(Collectives, AChangedElementIsFoundAndNamed) {
  const SuiteResult result = run("most_ranks: 2, most_bytes: 4, most_calls: 1", "failure==planted: one element of what a rank got is changed");
  EXPECT_EQ(result.faults, 0) << support::findings_of(result);
  EXPECT_EQ(result.trials, static_cast<int64_t>(collectives::collective_names().size()) - 1);
  for (const SuiteFinding& finding : result.findings) {
    EXPECT_EQ(finding.verdict, CaseVerdict::planted);
    EXPECT_THAT(finding.sentence, AllOf(HasSubstr("rank 2 has"), HasSubstr("at element 39, not")));
  }
  EXPECT_EQ(static_cast<int64_t>(result.findings.size()), result.trials);
}

}  // namespace
}  // namespace lockstep
