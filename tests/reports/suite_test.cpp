// A suite's results in every format.

#include "reports/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/verdict/results/document.h"
#include "reports/format.h"
#include "reports/plots/suite_chart.h"
#include "tests/support/suite_fixture.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Results results() { return suite_results(); }

/// Without what the suite measured.
Results plain_results() {
  Results plain = results();
  plain.suite->tables.clear();
  plain.suite->charts.clear();
  return plain;
}

/// Where `text` first stands, behind `from`; the end if it does not.
std::size_t place_of(const std::string& in, const std::string& text, std::size_t from = 0) { return std::min(in.find(text, from), in.size()); }

TEST(SuiteReport, TableHasGoodOutcomesThenFaultsThenUndecidedOnes) {
  const OutcomeTable table = outcome_table(*results().suite, true);
  std::vector<std::string> names;
  for (const auto& outcome : table.outcomes) names.push_back(outcome.name);
  EXPECT_THAT(names, ElementsAre("whole, old", "torn", "not reached"));
  EXPECT_THAT(table.rows[0].cases, ElementsAre(1000, 2, 0));
  EXPECT_THAT(table.rows[1].cases, ElementsAre(7, 0, 1));
}

TEST(SuiteReport, TableCanBeOneRowAFailure) {
  Results each = results();
  each.suite->table.push_back({"killed", "rank 1, write", "torn", CaseVerdict::fault, 5});
  const OutcomeTable table = outcome_table(*each.suite, false);
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_THAT(table.rows[0].cases, ElementsAre(1000, 7, 0));
}

TEST(SuiteReport, EveryFormatSaysWhatWasFoundAndHowToSeeItAgain) {
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

TEST(SuiteReport, TheTerminalCountsByFailureAndPlace) {
  const std::string text = render(results(), "text");
  EXPECT_THAT(text, HasSubstr("killed, rank 0, write"));
  EXPECT_THAT(text, HasSubstr("1000"));
  EXPECT_THAT(text, HasSubstr("✗ Faults found: 12 trials (1010 cases), 2 wrong, 1 undecided."));
  EXPECT_THAT(text, HasSubstr("A power loss is not shown."));
  EXPECT_THAT(text, HasSubstr("operations tried: 11 of 11"));
}

TEST(SuiteReport, ThePageShowsTheTimeline) {
  const std::string page = render(results(), "html");
  EXPECT_THAT(page, HasSubstr("killed before it"));
  EXPECT_THAT(page, HasSubstr("Does it survive &lt;kills&gt;?"));
}

TEST(SuiteReport, IsGoodWhereNothingWasFound) {
  Results each = results();
  each.suite->faults = each.suite->undecided = 0;
  each.summary.exit_code = 0;
  EXPECT_EQ(suite_status(each).word, "No fault found");
  each.suite->undecided = 1;
  each.summary.exit_code = 5;
  EXPECT_EQ(suite_status(each).word, "Undecided");
}

TEST(SuiteTables, StandInEveryFormat) {
  for (const ReportFormat& format : report_formats()) {
    const std::string text = render(results(), std::string(format.name));
    EXPECT_THAT(text, HasSubstr("What they took")) << format.name;
    EXPECT_THAT(text, HasSubstr("41.00")) << format.name;
    EXPECT_THAT(text, HasSubstr("Time against size")) << format.name;
    if (format.name != "json") {
      EXPECT_THAT(text, HasSubstr("time (us)")) << format.name;
      EXPECT_THAT(text, Not(HasSubstr("<one>"))) << format.name;
    }
  }
}

TEST(SuiteTables, AreNowhereWhereThereAreNone) {
  const std::string page = render(plain_results(), "html");
  for (const char* trace : {"table class=\"given", "id=\"chart-", "id=\"table-", "id=\"every-"}) EXPECT_THAT(page, Not(HasSubstr(trace)));
  EXPECT_THAT(render(plain_results(), "json"), testing::AllOf(Not(HasSubstr("\"tables\"")), Not(HasSubstr("\"charts\""))));
  EXPECT_THAT(render(plain_results(), "md"), Not(HasSubstr("### Outcomes by failure")));
  EXPECT_EQ(tables_text(*plain_results().suite, true, 118), "");
}

TEST(SuiteTables, WhatIsWrongIsRedAndFirst) {
  const std::string page = render(results(), "html"), text = tables_text(*results().suite, true, 118), markdown = render(results(), "md");
  const std::size_t wrong = place_of(page, "<tr class=\"wrong\"><td class=\"t-bad\">✗ broadcast");
  EXPECT_LT(wrong, place_of(page, ">gather|all<"));
  EXPECT_LT(wrong, place_of(page, "id=\"chart-"));
  EXPECT_LT(place_of(text, "\x1b[31m    ✗ broadcast"), place_of(text, "gather|all"));
  EXPECT_LT(place_of(markdown, "| **✗ broadcast** | **41.00** | **3** |"), place_of(markdown, "### Time against size"));
  // A folded table with a fault is open, and of its rows a terminal shows that one.
  EXPECT_THAT(page, HasSubstr("id=\"table-broadcast\""));
  EXPECT_THAT(text, testing::AllOf(HasSubstr("✗ 1048576"), Not(HasSubstr("900.00"))));
}

TEST(SuiteTables, WithoutAFaultChartsStandFirstAndFoldedTablesInDetails) {
  Results each = results();
  for (SuiteTable& table : each.suite->tables) {
    for (TableRow& row : table.rows) row.verdict = CaseVerdict::good;
  }
  const std::string page = render(each, "html");
  EXPECT_THAT(page, Not(HasSubstr("class=\"wrong\"")));
  EXPECT_LT(place_of(page, "id=\"chart-"), place_of(page, "id=\"table-what-they-took"));
  EXPECT_LT(place_of(page, "id=\"every-figure"), place_of(page, "<summary>broadcast</summary>"));
  EXPECT_THAT(render(each, "md"), HasSubstr("<details><summary>broadcast</summary>"));
}

TEST(SuiteTables, ATerminalSaysWhereLongOnesStand) {
  SuiteResult suite;
  SuiteTable table{"Long", "", {{"n", "", true}}, {}, false};
  for (int i = 0; i < 31; ++i) table.rows.push_back({{std::to_string(100 + i)}});
  suite.tables = {table};
  EXPECT_EQ(tables_text(suite, false, 118), "Long\n  (31 rows: report.html)\n");
  suite.tables[0].rows[7].verdict = CaseVerdict::fault;
  EXPECT_EQ(tables_text(suite, false, 118), "Long\n        n\n    ✗ 107\n  (31 rows: report.html)\n");
}

TEST(SuiteTables, AreBrokenInTheirHeadsWhereATerminalIsNarrow) {
  SuiteResult suite;
  suite.tables = {{"Wide", "", {{"family", "", false}, {"longest time", "ms", true}}, {{{"processes", "12"}}}, false}};
  EXPECT_EQ(tables_text(suite, false, 40), "Wide\n    family     longest time (ms)\n    processes                 12\n");
  EXPECT_EQ(tables_text(suite, false, 24), "Wide\n    family     longest\n                  time\n                  (ms)\n    processes       12\n");
}

TEST(SuiteTables, GiveALineToEachRowWhateverTheTextsAndLeaveOutEmptyColumns) {
  SuiteResult suite;
  const std::string words = "a sentence that is much longer than anybody has columns for";
  suite.tables = {{"Words", "", {{"fault", "", false}, {"twins", "", true}, {"what it does", "", false}, {"n", "", true}}, {{{"kill", "", words, "3"}}}, false}};
  EXPECT_EQ(tables_text(suite, false, 40), "Words\n    fault  what it does                n\n    kill   a sentence that is much l…  3\n");
  EXPECT_THAT(tables_markdown(suite), Not(HasSubstr("twins")));
}

TEST(SuiteTables, LetALongListOfGoodOutcomesBeFolded) {
  Results each = results();
  each.suite->table.clear();
  each.suite->faults = 0;
  for (int i = 0; i < 40; ++i) each.suite->table.push_back({"kind " + std::to_string(i), "rank 0", "named", CaseVerdict::good, 3});
  EXPECT_THAT(render(each, "html"), HasSubstr("<summary>40 rows</summary>"));
  EXPECT_THAT(render(each, "md"), HasSubstr("<details><summary>40 rows</summary>"));
  EXPECT_THAT(render(each, "text"), testing::AllOf(HasSubstr("(40 failures without a fault)"), Not(HasSubstr("kind 7"))));
  // What is wrong stays in sight.
  each.suite->table[7] = {"kind 7", "rank 0", "missed", CaseVerdict::fault, 3};
  each.suite->faults = 3;
  EXPECT_THAT(render(each, "html"), Not(HasSubstr("<summary>40 rows</summary>")));
  EXPECT_THAT(render(each, "text"), testing::AllOf(HasSubstr("kind 7"), HasSubstr("(39 failures without a fault)")));
  // The good ones are counted, with tables beside them or without.
  each.suite->tables.clear();
  EXPECT_THAT(render(each, "text"), testing::ContainsRegex("39 failures without a fault\\) +117"));
}

TEST(SuiteCharts, AreDrawnInOneFrame) {
  const SuiteChart chart = results().suite->charts[0];
  const std::string drawing = chart_drawing(chart);
  EXPECT_THAT(drawing, testing::AllOf(HasSubstr("<figcaption>gather|all</figcaption>"), HasSubstr("class=\"line c1\""), HasSubstr("class=\"line bad\"")));
  EXPECT_THAT(drawing, HasSubstr("<figcaption class=\"t-bad\">✗ broadcast: 2 ranks</figcaption>"));
  EXPECT_THAT(drawing, HasSubstr("up: time (us), to the right: size (B)"));
  EXPECT_THAT(drawing, HasSubstr("2 ranks: 35.2 us at 4 B, 900 us at 1 MiB"));
  const ChartFrame frame = frame_of(chart);
  std::vector<std::string> ticks;
  for (const Tick& tick : ticks_of(chart.x, frame.x, 4)) ticks.push_back(tick.text);
  EXPECT_THAT(ticks, ElementsAre("32 B", "1 KiB", "32 KiB", "1 MiB"));
}

TEST(SuiteCharts, HaveARowForEachSeriesAndALineForEachMark) {
  const std::string drawing = chart_drawing(results().suite->charts[1]);
  EXPECT_THAT(drawing, testing::AllOf(HasSubstr("T: 1000 ms"), HasSubstr(">Processes<"), HasSubstr("✗ stop"), HasSubstr("kill: median 20 ms, at most 31 ms")));
  // Nothing took no time on a logarithmic axis: an arrow at its edge.
  EXPECT_THAT(drawing, HasSubstr("M1 0 10-6 10 6z"));
}

TEST(SuiteCharts, AreTypedWhereNothingCanBeDrawn) {
  const std::vector<std::string> lines = chart_lines(results().suite->charts[0]), rows = chart_lines(results().suite->charts[1]);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "gather|all, 2 ranks   ▁▂▆  35.2 to 900 us");
  EXPECT_EQ(lines[2], "✗ broadcast, 2 ranks  ▁▆   41 to 812 us");
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_THAT(rows[1], testing::AllOf(testing::StartsWith("✗ stop"), HasSubstr("●"), testing::EndsWith("1004 to 2900 ms")));
  EXPECT_EQ(rows[3], "│ T: 1000 ms");
}

TEST(SuiteCharts, AreNotDrawnWithoutAPoint) {
  SuiteChart chart{"Nothing", "", {"size", "B", true}, {"time", "us", true}, false, {}, {{"a", {{"2 ranks", CaseVerdict::good, {{0, 0}}}}}}};
  EXPECT_EQ(chart_drawing(chart), "");
  EXPECT_TRUE(chart_lines(chart).empty());
  chart.panels.clear();
  EXPECT_EQ(chart_drawing(chart), "");
}

TEST(SuiteCharts, HaveTicksHoweverNarrowTheirRange) {
  const ChartAxis axis{"time", "ms", true};
  for (const auto& [low, high] : {std::pair{20.0, 21.0}, {1.0, 1e9}, {1e-9, 2e-9}, {0.03, 400.0}}) {
    const SuiteChart chart{"", "", axis, {}, true, {}, {{"", {{"a", CaseVerdict::good, {{low, 0}, {high, 0}}}}}}};
    const AxisRange range = frame_of(chart).x;
    const std::vector<Tick> ticks = ticks_of(axis, range, 6);
    EXPECT_GE(ticks.size(), 1U) << low;
    EXPECT_LE(ticks.size(), 8U) << low;
    for (const Tick& tick : ticks) EXPECT_TRUE(tick.at >= range.low && tick.at <= range.high) << tick.text;
  }
}

TEST(SuiteResults, WithoutTablesAndChartsAreRead) {
  // As documents were written before there were any.
  const Results read = results_from_json(results_to_json(plain_results()), "results.json");
  EXPECT_TRUE(read.suite->tables.empty());
  EXPECT_TRUE(read.suite->charts.empty());
}

TEST(SuiteResults, RefuseARowWithOtherCellsThanColumns) {
  Results each = results();
  each.suite->tables[1].rows[0].cells.pop_back();
  try {
    results_from_json(results_to_json(each), "results.json");
    ADD_FAILURE() << "it was read";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), std::string("results.json: ") + "laboratory" + ".tables[1]: a row of a table with other cells than its columns");
  }
}

TEST(SuiteResults, AreReadAsTheyWereWritten) {
  const std::string text = results_to_json(results());
  const Results read = results_from_json(text, "results.json");
  EXPECT_EQ(results_to_json(read), text);
  ASSERT_TRUE(read.suite);
  EXPECT_EQ(read.suite->findings[0].timeline[1].mark, "killed before it");
  EXPECT_EQ(read.question, "laboratory");
  EXPECT_EQ(read.suite->tables[0].rows[1].verdict, CaseVerdict::fault);
  EXPECT_EQ(read.suite->charts[0].panels[0].series[0].points[1].y, 60);
}

}  // namespace
}  // namespace lockstep
