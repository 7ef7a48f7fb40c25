// What the report tells of faults: who noticed, when, in which words, and what was not noticed.

#include "harness/suites/faults/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::faults {
namespace {

using testing::ElementsAre;

Noticed named(const std::string& kind, const std::string& by, double after_s, const std::string& words, int64_t lost = 0) {
  return {kind, by, after_s, words, lost};
}

const SuiteTable& table(const std::vector<SuiteTable>& tables, const std::string& title) {
  for (const SuiteTable& each : tables) {
    if (each.title == title) return each;
  }
  throw std::runtime_error("no table " + title);
}

/// As a trial of its own.
void noticed(const Noticed& one) {
  static int trials = 0;
  note(std::to_string(++trials), one);
}

constexpr const char* kFamilyTable = "Who noticed, by family of faults";
constexpr const char* kKindTable = "Who noticed what, when, in which words";

TEST(FaultFigures, TellWhoNoticedWhenInWhichWordsAndWhatWasLost) {
  Measurements m;
  const MeasuredTrial trial(m);
  noticed(named("kill", "died", 0.030, "rank 1 was killed"));
  noticed(named("kill", "died", 0.010, "rank 0 was killed", 2));
  noticed(named("kill", "died", 0.020, "rank 2 was killed"));
  noticed(named("flip_gradient", "compared", -1, "rank 0, step 0: gradients/w1 at element 6"));
  note_control("kill", true);
  const std::vector<SuiteTable> tables = Figures(m).tables();
  const SuiteTable& kinds = table(tables, kKindTable);
  ASSERT_EQ(kinds.rows.size(), 2U);
  EXPECT_THAT(kinds.rows[0].cells, ElementsAre("kill", "the rank is killed between two collectives", "died", "3 of 3", "20", "30", "2", "1 of 1", "rank 0 was killed"));
  EXPECT_THAT(kinds.rows[1].cells, ElementsAre("flip_gradient", "one bit of the rank's own gradient flips", "compared", "1 of 1", "at the end", "", "0", "",
                                               "rank 0, step 0: gradients/w1 at element 6"));
  EXPECT_EQ(kinds.rows[0].verdict, CaseVerdict::good);
  EXPECT_THAT(table(tables, kFamilyTable).rows[0].cells, ElementsAre("Processes that end", "1", "died", "3 of 3", "20", "30", "2", "1 of 1"));
}

TEST(FaultFigures, AProgramThatWasMissedAndATwinOfWhichSomethingWasSaidAreFaults) {
  Measurements m;
  const MeasuredTrial trial(m);
  noticed(named("stop", "hung", 1.0, "rank 0 is stopped by a signal"));
  noticed({"stop", "", -1, "", 0, "missed", CaseVerdict::fault});
  noticed(named("slow", "slow", 1.0, "rank 0 is slow, or in a loop"));
  note_control("slow", false);
  const SuiteTable kinds = table(Figures(m).tables(), kKindTable);
  EXPECT_EQ(kinds.rows[0].verdict, CaseVerdict::fault);
  EXPECT_EQ(kinds.rows[0].cells[3], "1 of 2; missed");
  EXPECT_EQ(kinds.rows[1].verdict, CaseVerdict::fault);
  EXPECT_EQ(kinds.rows[1].cells[7], "0 of 1");
  EXPECT_EQ(table(Figures(m).tables(), kFamilyTable).rows[0].verdict, CaseVerdict::fault);
}

TEST(FaultFigures, DrawEachProgramAgainstTheThresholds) {
  Measurements m;
  const MeasuredTrial trial(m);
  noticed(named("stop", "hung", 1.004, "stopped by a signal"));
  noticed(named("kill", "died", 0.030, "killed"));
  for (int i = 1; i <= 1000; ++i) measured().sample("from a stop to the alarm", 1e-3 * i);
  const std::vector<SuiteChart> charts = Figures(m).charts(1, 2);
  ASSERT_EQ(charts.size(), 2U);
  EXPECT_TRUE(charts[0].by_row);
  EXPECT_EQ(charts[0].marks[0].at, 1000);
  EXPECT_EQ(charts[0].marks[1].at, 2000);
  ASSERT_EQ(charts[0].panels.size(), 2U);
  EXPECT_EQ(charts[0].panels[1].name, "Processes that live and give no sign");
  EXPECT_DOUBLE_EQ(charts[0].panels[1].series[0].points[0].x, 1004);
  // Of many durations the percentiles.
  ASSERT_EQ(charts[1].panels[0].series[0].points.size(), 100U);
  EXPECT_DOUBLE_EQ(charts[1].panels[0].series[0].points[98].x, 990);
  EXPECT_THAT(table(Figures(m).tables(), "Deaths and stops at random moments").rows[0].cells, ElementsAre("from a stop to the alarm", "1000", "500.5", "990.0", "1000.0"));
}

TEST(FaultFigures, OfNothingThereIsNothing) {
  const Measurements m;
  EXPECT_TRUE(Figures(m).tables().empty());
  EXPECT_TRUE(Figures(m).charts(1, 2).empty());
}

}  // namespace
}  // namespace lockstep::faults
