#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "harness/answer/results/words.h"
#include "harness/base/json.h"
#include "reports/format.h"
#include "reports/plots/chart.h"
#include "reports/suite.h"
#include "tests/support/results_fixture.h"

// A suite's results in every format.

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

std::string tables_text(const SuiteResult& suite, bool colour, int width) {
  std::string text;
  for (const Section& section : sections_of(suite.tables, suite.charts)) text += text_of(section, colour, width);
  return text;
}

/// Where `text` first stands, behind `from`; the end if it does not.
std::size_t place_of(const std::string& in, const std::string& text, std::size_t from = 0) { return std::min(in.find(text, from), in.size()); }

TEST(SuiteReport, TableCanBeOneRowAFailure) {
  Results each = results();
  each.suite->table.push_back({"killed", "rank 1, write", "torn", CaseVerdict::fault, 5});
  const OutcomeTable table = outcome_table(*each.suite, false);
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_THAT(table.rows[0].cases, ElementsAre(1000, 7, 0));
}

TEST(SuiteReport, IsGoodWhereNothingWasFound) {
  Results each = results();
  each.suite->faults = each.suite->undecided = 0;
  each.summary.exit_code = 0;
  EXPECT_EQ(status_of(each).word, "No fault found");
  each.suite->undecided = 1;
  each.summary.exit_code = 5;
  EXPECT_EQ(status_of(each).word, "Undecided");
}

TEST(SuiteTables, AreNowhereWhereThereAreNone) {
  const std::string page = render(plain_results(), "html");
  for (const char* trace : {"table class=\"given", "id=\"chart-", "id=\"table-", "id=\"every-"}) EXPECT_THAT(page, Not(HasSubstr(trace)));
  EXPECT_THAT(render(plain_results(), "json"), testing::AllOf(Not(HasSubstr("\"tables\"")), Not(HasSubstr("\"charts\""))));
  EXPECT_EQ(tables_text(*plain_results().suite, true, 118), "");
}

TEST(SuiteTables, WhatIsWrongIsRedAndFirst) {
  const std::string page = render(results(), "html"), text = tables_text(*results().suite, true, 118), markdown = render(results(), "md");
  const std::size_t wrong = place_of(page, "<tr class=\"wrong\"><th scope=\"row\" class=\"t-bad\">✗ broadcast");
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
  EXPECT_THAT(markdown_of(suite_sections(suite)[1]), Not(HasSubstr("twins")));
}

TEST(SuiteTables, LetALongListOfGoodOutcomesBeFolded) {
  Results each = results();
  each.suite->table.clear();
  each.suite->faults = 0;
  for (int i = 0; i < 40; ++i) each.suite->table.push_back({"kind " + std::to_string(i), "rank 0", "named", CaseVerdict::good, 3});
  EXPECT_THAT(render(each, "html"), HasSubstr("<summary>40 rows by place</summary>"));
  EXPECT_THAT(render(each, "md"), HasSubstr("<details><summary>40 rows by place</summary>"));
  EXPECT_THAT(render(each, "text"), testing::AllOf(HasSubstr("(40 failures without a fault)"), Not(HasSubstr("kind 7"))));
  // What is wrong stays in sight.
  each.suite->table[7] = {"kind 7", "rank 0", "missed", CaseVerdict::fault, 3};
  each.suite->faults = 3;
  EXPECT_LT(place_of(render(each, "html"), ">kind 7<"),
            place_of(render(each, "html"), "<summary>40 rows by place</summary>"));
  EXPECT_THAT(render(each, "text"), testing::AllOf(HasSubstr("kind 7"), HasSubstr("(39 failures without a fault)")));
  // The good ones are counted, with tables beside them or without.
  each.suite->tables.clear();
  EXPECT_THAT(render(each, "text"), testing::ContainsRegex("39 failures without a fault\\) +117"));
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

// One hostile text in the place of every free text of results.json, in every format of report.

using nlohmann::json;

const std::string kHostile = std::string(1, '\0') + "\x1b]0;x\x07\xe2\x80\xae\nFORGED <script>x</script> |PIPE `TICK ````` \x1b[31mRED ]]> \"onload=\"x\"";

/// A pointer without its numbers: the elements of a list are alike.
std::string kind_of_place(const json::json_pointer& at) {
  std::string kind;
  for (json::json_pointer rest = at; !rest.empty(); rest.pop_back()) {
    const std::string& part = rest.back();
    kind = "/" + (part.find_first_not_of("0123456789") == std::string::npos ? std::string("*") : part) + kind;
  }
  return kind;
}

void each_text(const json& value, const json::json_pointer& at, const std::function<void(const json::json_pointer&)>& visit) {
  if (value.is_string() && at != json::json_pointer("/checksum")) visit(at);
  if (!value.is_structured()) return;
  for (const auto& [key, item] : value.items()) each_text(item, value.is_array() ? at / static_cast<std::size_t>(std::stoul(key)) : at / key, visit);
}

/// Reads a document that somebody sealed.
Results read(json document) {
  seal(document);
  return results_from_json(document.dump(), "results.json");
}

bool is_read(const json& document) {
  try {
    read(document);
    return true;
  } catch (const std::exception&) {
    return false;  // a word of a list, a number in hexadecimal
  }
}

/// Every text that may be any text is the hostile one. `free`: which kinds of places take it; what is not known yet is tried.
Results poisoned(const Results& results, std::map<std::string, bool>& free) {
  json document = json::parse(results_to_json(results));
  const json clean = document;
  each_text(clean, json::json_pointer(), [&](const json::json_pointer& at) {
    const auto [known, is_new] = free.emplace(kind_of_place(at), false);
    if (is_new) {
      json tried = clean;
      tried[at] = kHostile;
      known->second = is_read(tried);
    }
    if (known->second) document[at] = kHostile;
  });
  return read(document);
}

void expect_no_controls(const std::string& text, const std::string& where) {
  for (const std::string& raw : {std::string(1, '\0'), std::string("\x1b"), std::string("\x07"), std::string("\xe2\x80\xae")}) {
    const std::size_t at = text.find(raw);
    EXPECT_EQ(at, std::string::npos) << where << ": " << text.substr(at == std::string::npos ? 0 : at - std::min<std::size_t>(at, 200), 300);
  }
}

void expect_markup_as_text(const std::string& page, const std::string& where) {
  expect_no_controls(page, where);
  EXPECT_EQ(page.find("<script>x"), std::string::npos) << where;
  EXPECT_EQ(page.find("]]>"), std::string::npos) << where;
  std::istringstream in(page);
  boost::property_tree::ptree tree;
  EXPECT_NO_THROW(boost::property_tree::read_xml(in, tree)) << where;
}

/// Lines of Markdown outside fences, whose ends the text inside must not write.
std::string outside_fences(const std::string& text) {
  std::istringstream in(text);
  std::string out, fence;
  for (std::string line; std::getline(in, line);) {
    const std::string ticks = line.substr(0, line.find_first_not_of('`'));
    if (fence.empty() && ticks.size() >= 3)
      fence = ticks;
    else if (!fence.empty() && ticks.size() >= fence.size() && ticks == line)
      fence.clear();
    else if (fence.empty() && !line.starts_with("<details><summary>"))  // HTML on one line
      out += line + "\n";
  }
  EXPECT_TRUE(fence.empty()) << "a fence stays open";
  return out;
}

TEST(ForeignText, IsShownAsTextInEveryReport) {
  const std::pair<std::string, Results (*)()> fixtures[]{{"suite", suite_results}, {"certificate", certificate_results},
      {"detection", detection_results}, {"mechanism", mechanism_results}, {"outcome", outcome_results},
      {"sequential", sequential_results}, {"convergence", convergence_results}};  // the largest last: each new kind reads it anew
  std::map<std::string, bool> free;
  for (const auto& [name, fixture] : fixtures) {
    const Results results = poisoned(fixture(), free);
    for (const char* markup : {"html", "junit"}) expect_markup_as_text(render(results, markup), name + " " + markup);
    const std::string markdown = render(results, "md"), outside = outside_fences(markdown);
    expect_no_controls(markdown, name + " md");
    for (const char* raw : {"<script", "\nFORGED"}) EXPECT_EQ(outside.find(raw), std::string::npos) << name << ": " << outside.substr(outside.find(raw) == std::string::npos ? 0 : outside.find(raw) - std::min<std::size_t>(outside.find(raw), 100), 200);
    for (const char* marked : {"|PIPE", "`TICK"}) {
      for (std::size_t at = outside.find(marked); at != std::string::npos; at = outside.find(marked, at + 1))
        EXPECT_EQ(outside.substr(at - 1, 1), "\\") << name << ": " << outside.substr(at - std::min<std::size_t>(at, 100), 150);
    }
    const std::string text = render(results, "text"), coloured = terminal_table(results, true, 100);
    expect_no_controls(text, name + " text");
    EXPECT_EQ(text.find("\nFORGED"), std::string::npos) << name;
    for (const char* raw : {"\x1b]", "\x07", "\xe2\x80\xae", "\x1b[31mRED", "\nFORGED"}) EXPECT_EQ(coloured.find(raw), std::string::npos) << name << " in colour";
    EXPECT_EQ(json::parse(render(results, "json")), json::parse(results_to_json(results))) << name;
  }
  EXPECT_GT(std::ranges::count_if(free, [](const auto& kind) { return kind.second; }), 60);
}

using testing::AllOf;
using Rows = std::vector<std::pair<std::string, std::string>>;

Rows config_with(const std::string& key, const std::string& value, Rows rows) {
  for (auto& [name, text] : rows) {
    if (name == key) text = value;
  }
  return rows;
}

Growth::Rule rule(const std::string& name, double exponent, double mean) {
  Growth::Rule rule{"8x3 local lr_rule=" + name, name, exponent, VerdictKind::inconclusive, {}};
  rule.difference.metric = "accuracy_24";
  rule.difference.mean = mean;
  rule.difference.interval = {mean - 0.01, mean + 0.01, 0.95};
  rule.n = std::isnan(mean) ? 0 : 10;
  return rule;
}

Results grown() {
  Results results = outcome_results();
  Growth growth;
  growth.reference = "1x3 local";
  growth.from = {1, 3};
  growth.to = {8, 3};
  growth.from_batch = 3;
  growth.to_batch = 24;
  growth.rules = {rule("none", 0, -0.1), rule("sqrt", 0.5, 0), rule("linear", 1, -0.06),
                  rule("adam_sqrt", 0.5, std::nan(""))};
  growth.best = "sqrt";
  growth.not_worse = {"linear"};
  growth.sentence = "From 1x3 to 8x3 (3 to 24 rows) sqrt has the best mean 24-way accuracy.";
  results.growth = {growth};
  NoiseScale scale;
  scale.batch = 35.4;
  scale.interval = {28.2, std::numeric_limits<double>::infinity(), 0.95};
  scale.steps = 400;
  scale.caveat = "Holds for ranks of 3 rows | alone.";
  results.cells[0].noise_scale = results.cells[2].noise_scale = results.cells[3].noise_scale = scale;
  results.growth[0].rules[0].cell = results.cells[0].scenario;
  results.growth[0].rules[1].cell = results.cells[2].scenario;
  return results;
}

TEST(GrowthReport, SaysOfARuleWithoutACellThatItIsNotJudged) {
  EXPECT_THAT(terminal_table(grown(), false, 118), testing::ContainsRegex("adam_sqrt +0.50 +— .* not judged\n"));
  EXPECT_THAT(markdown_summary(grown()), AllOf(HasSubstr("| adam\\_sqrt | 0.50 | — | — | — | — | not judged |"),
                                               HasSubstr("| 35.40 | \\[28.20, infinite\\] | 400 | Holds for ranks of 3 rows \\| alone. |")));
}

/// At 24 rows against 24, without a rule of the rate: what a noise scale or a rule would say answers nothing.
Results at_equal_batch() {
  Results results = grown();
  const auto ruled = [](const CellResult& cell) { return cell.scenario.find("lr_rule") != std::string::npos; };
  std::erase_if(results.cells, ruled);
  Growth& growth = results.growth[0];
  growth.reference = "1x24 global";
  growth.from = {1, 24};
  growth.from_batch = 24;
  growth.rules = {rule("none", std::nan(""), -0.1)};
  growth.best = "none";
  return results;
}

TEST(GrowthReport, IsLeftOutWhereNeitherBatchNorRuleVaries) {
  const Results equal = at_equal_batch();
  ASSERT_FALSE(varies_batch_or_rate_rule(equal));
  for (const std::string& text : {terminal_table(equal, false, 118), markdown_summary(equal), html_report(equal)}) {
    EXPECT_THAT(text, AllOf(Not(HasSubstr("oise scale")), Not(HasSubstr("ules of the learning rate")),
                            Not(HasSubstr("id=\"growth\"")), Not(HasSubstr("id=\"noise-scale\"")),
                            Not(HasSubstr("has the best mean"))));
  }
  Results grows = equal;
  grows.growth[0].from_batch = 3;
  Results ruled = equal;
  ruled.cells[0].config = config_with("lr_rule", "sqrt", ruled.cells[0].config);
  for (const Results& varied : {grows, ruled}) {
    EXPECT_THAT(terminal_table(varied, false, 118), HasSubstr("Which learning-rate rule fits"));
    EXPECT_THAT(markdown_summary(varied), HasSubstr("### How noisy are the gradients?"));
    EXPECT_THAT(html_report(varied), AllOf(HasSubstr("id=\"growth\""), HasSubstr("id=\"noise-scale\"")));
  }
}

TEST(RateScaling, IsVariedByTheBatchOrByARuleOfSeveralRanks) {
  Results results;
  const auto add = [&results](Layout layout, const std::string& rule) -> CellResult& {
    CellResult& cell = results.cells.emplace_back();
    cell.layout = layout;
    cell.config = {{"lr_rule", rule}};
    cell.reference = "reference";
    return cell;
  };
  results.references = {{"reference", {}, {{"lr_rule", "linear"}}, {}, Layout{1, 24}}};
  add({8, 3}, "none");
  EXPECT_FALSE(varies_batch_or_rate_rule(results)) << "linear changes nothing in one process";
  add({8, 3}, "sqrt").power_control = true;
  add({8, 6}, "sqrt").noise = true;
  EXPECT_FALSE(varies_batch_or_rate_rule(results)) << "neither controls nor A/A pairs ask";
  Results ruled = results, grown = results;
  ruled.cells[0].config[0].second = "linear";
  EXPECT_TRUE(varies_batch_or_rate_rule(ruled)) << "eight times the rate of the reference";
  grown.cells[0].layout = Layout{8, 6};
  EXPECT_TRUE(varies_batch_or_rate_rule(grown));
}

}  // namespace
}  // namespace lockstep
