#include "reports/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/base/text.h"
#include "reports/plots/chart.h"
#include "reports/text.h"

namespace lockstep {
namespace {

constexpr int kWholeText = 1 << 20;
/// One row a failure stands open where the rows by place would be more, and only wrong ones where those would too.
constexpr std::size_t kMostPlaceRows = 30;

/// Good outcomes, then faults, then what is undecided.
int rank_of(CaseVerdict verdict) { return static_cast<int>(verdict); }

std::string heading_of(const OutcomeTable::Outcome& outcome) {
  return (outcome.verdict == CaseVerdict::fault       ? "✗ "
          : outcome.verdict == CaseVerdict::undecided ? "? "
                                                      : "") +
         clean_line(outcome.name);
}

/// Is one of its cases a fault, or undecided?
bool came_out_wrong(const OutcomeTable& table, const OutcomeTable::Row& row) {
  for (std::size_t i = 0; i < row.cases.size(); ++i) {
    const CaseVerdict verdict = table.outcomes[i].verdict;
    if (row.cases[i] > 0 && (verdict == CaseVerdict::fault || verdict == CaseVerdict::undecided)) return true;
  }
  return false;
}

const char* css_of(CaseVerdict verdict) {
  if (verdict == CaseVerdict::fault) return "t-bad";
  return verdict == CaseVerdict::undecided ? "t-und" : "t-ok";
}

}  // namespace

OutcomeTable outcome_table(const SuiteResult& suite, bool by_place) {
  OutcomeTable table;
  for (const SuiteCount& count : suite.table) {
    const auto known = std::ranges::find(table.outcomes, count.outcome, &OutcomeTable::Outcome::name);
    if (known == table.outcomes.end()) table.outcomes.push_back({count.outcome, count.verdict});
  }
  std::ranges::stable_sort(table.outcomes, {}, [](const auto& each) { return rank_of(each.verdict); });
  for (const SuiteCount& count : suite.table) {
    const std::string place = by_place ? count.place : "";
    auto row = std::ranges::find_if(
        table.rows, [&](const auto& each) { return each.failure == count.failure && each.place == place; });
    if (row == table.rows.end()) {
      table.rows.push_back({count.failure, place, std::vector<int64_t>(table.outcomes.size())});
      row = std::prev(table.rows.end());
    }
    const auto at = std::ranges::find(table.outcomes, count.outcome, &OutcomeTable::Outcome::name);
    row->cases[static_cast<std::size_t>(at - table.outcomes.begin())] += count.cases;
  }
  return table;
}

/// Tables and charts on a terminal.
static std::string tables_text(const SuiteResult& suite, bool colour, int width) {
  std::string out;
  for (const Section& section : sections_of(suite.tables, suite.charts)) out += text_of(section, colour, width);
  return out;
}

void property(Markup& out, std::string_view name, std::string_view value) {
  out.empty("property", {{"name", std::string(name)}, {"value", std::string(value)}});
}

Markup junit_begin(const Results& results, std::size_t tests, std::ptrdiff_t failures, std::ptrdiff_t errors) {
  Attributes counts{{"name", "lockstep"}, {"tests", std::to_string(tests)}, {"failures", std::to_string(failures)},
                    {"errors", std::to_string(errors)}};
  Markup out;
  out.raw("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").open("testsuites", counts);
  counts[0].value = clean_line(results.name);
  counts.push_back({"skipped", "0"});
  out.open("testsuite", counts).open("properties");
  property(out, "config", results.config_file);
  return out;
}

/// The row's cases by outcome.
static std::string bar_of(const OutcomeTable& outcomes, const OutcomeTable::Row& row) {
  const auto all = static_cast<double>(std::accumulate(row.cases.begin(), row.cases.end(), int64_t{0}));
  std::vector<std::pair<double, std::string>> parts;
  for (std::size_t i = 0; i < row.cases.size(); ++i)
    parts.emplace_back(static_cast<double>(row.cases[i]) / all, css_of(outcomes.outcomes[i].verdict) + 2);
  return bar_drawing(parts);
}

static Table table_of(const OutcomeTable& outcomes) {
  Table table{.css = "suite", .columns = {"failure", "place", "of all cases"}, .rows = {}};
  table.columns[2].page = true;
  for (const OutcomeTable::Outcome& outcome : outcomes.outcomes) table.columns.push_back(numbers(heading_of(outcome)));
  for (const OutcomeTable::Row& row : outcomes.rows) {
    table.rows.push_back({{clean_line(row.failure), clean_line(row.place), Datum().drawn(bar_of(outcomes, row))}});
    for (std::size_t i = 0; i < row.cases.size(); ++i)
      table.rows.back().cells.push_back(
          row.cases[i] == 0 ? Datum("·") : Datum(std::to_string(row.cases[i]), css_of(outcomes.outcomes[i].verdict)));
  }
  return table;
}

/// One row a failure where rows by place are too many, and the wrong ones alone where those are too.
static Section outcomes_of(const SuiteResult& suite) {
  Section section{
      "outcomes", "Outcomes by failure", "Cases by failure, place and outcome. Outcomes in red are faults.", {}};
  OutcomeTable outcomes = outcome_table(suite, true);
  const bool by_place = outcomes.rows.size() <= kMostPlaceRows;
  const Table all = table_of(outcomes);
  if (!by_place) outcomes = outcome_table(suite, false);
  if (outcomes.rows.size() > kMostPlaceRows) {
    OutcomeTable::Row others{"", "", std::vector<int64_t>(outcomes.outcomes.size())};
    const auto good = [&](const OutcomeTable::Row& row) { return !came_out_wrong(outcomes, row); };
    for (const OutcomeTable::Row& row : outcomes.rows) {
      for (std::size_t i = 0; i < row.cases.size() && good(row); ++i) others.cases[i] += row.cases[i];
    }
    const auto left_out = static_cast<int64_t>(std::erase_if(outcomes.rows, good));
    others.failure = fmt::format("({} without a fault)", counted(left_out, "failure"));
    if (left_out > 0) outcomes.rows.push_back(std::move(others));
  }
  if (!outcomes.rows.empty()) section.parts.push_back(tabled(table_of(outcomes)));
  if (!by_place)
    section.parts.push_back(fold(counted(std::ssize(all.rows), "row") + " by place", {tabled(all)}));
  return section;
}

std::vector<Section> suite_sections(const SuiteResult& suite) {
  std::vector<Section> sections = sections_of(suite.tables, suite.charts);
  sections.insert(sections.begin(), outcomes_of(suite));
  Section findings{"findings",
                   "Findings, case by case",
                   suite.findings_left_out == 0
                       ? ""
                       : fmt::format("The first case of each row of the table; {} more are counted in the table.",
                                     suite.findings_left_out),
                   {}};
  for (const SuiteFinding& finding : suite.findings) {
    Table timeline{
        .css = "timeline", .columns = {numbers("operation"), "process", "what", "injected fault"}, .rows = {}};
    for (const TimelineStep& step : finding.timeline) {
      timeline.rows.push_back({{std::to_string(timeline.rows.size() + 1), clean_line(step.process),
                                clean_line(step.operation), Datum(clean_line(step.mark), "t-bad")}});
    }
    std::vector<Part> parts;
    if (!timeline.rows.empty()) parts.push_back(tabled(timeline));
    if (!finding.replay.empty()) parts.push_back(code(clean_line(finding.replay)));
    findings.parts.push_back(fold(clean_line(finding.trial), std::move(parts), "",
                                  {clean_line(finding.outcome + ": " + finding.sentence), css_of(finding.verdict)}));
  }
  sections.push_back(std::move(findings));
  return sections;
}

std::string suite_junit(const Results& results) {
  const SuiteResult& suite = *results.suite;
  const OutcomeTable table = outcome_table(suite, true);
  const auto faults_of = [&](const OutcomeTable::Row& row) {
    std::string text;
    for (std::size_t i = 0; i < row.cases.size(); ++i) {
      if (row.cases[i] == 0 || table.outcomes[i].verdict != CaseVerdict::fault) continue;
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", row.cases[i], clean_line(table.outcomes[i].name));
    }
    return text;
  };
  const auto failures = std::ranges::count_if(table.rows, [&](const auto& row) { return !faults_of(row).empty(); });
  Markup out = junit_begin(results, table.rows.size(), failures, 0);
  property(out, "laboratory", suite.kind);
  property(out, "subject", suite.subject);
  property(out, "exit_code", std::to_string(results.summary.exit_code));
  property(out, "rerun", results.rerun);
  for (const auto& [what, figure] : suite.facts) property(out, what, figure);
  out.close();
  for (const OutcomeTable::Row& row : table.rows) {
    out.open("testcase", {{"classname", "lockstep." + clean_line(results.name)},
                          {"name", clean_line(row.failure + ", " + row.place)}});
    if (const std::string faults = faults_of(row); !faults.empty()) {
      std::string body;
      for (const SuiteFinding& finding : suite.findings) {
        if (finding.failure != row.failure || finding.place != row.place || finding.verdict != CaseVerdict::fault)
          continue;
        body += clean_line(finding.trial) + ": " + clean_line(finding.sentence) + "\nRun it again: " +
                clean_line(finding.replay) + "\n";
      }
      out.open("failure", {{"type", "fault"}, {"message", faults}}).text(body).close();
    }
    out.close();
  }
  const std::string measured = tables_text(suite, false, kWholeText);
  if (!results.summary.sentence.empty() || !measured.empty())
    out.element("system-out", {}, results.summary.sentence + (measured.empty() ? "" : "\n" + measured));
  return out.take() + "\n";
}

}  // namespace lockstep
