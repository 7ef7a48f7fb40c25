// Failures and places against outcomes, and each finding with its timeline.

#include "reports/suite.h"

#include <string>
#include <vector>

#include "harness/base/text.h"
#include "reports/html/parts.h"
#include "reports/plots/suite_chart.h"
#include "reports/text.h"

namespace lockstep {
namespace {

const char* css_of(CaseVerdict verdict) {
  if (verdict == CaseVerdict::fault) return "t-bad";
  return verdict == CaseVerdict::undecided ? "t-und" : "t-ok";
}

void write_given_rows(Markup& out, const SuiteTable& given) {
  const SuiteTable table = with_words(given);
  std::vector<Column> heads;
  for (const TableColumn& column : table.columns) heads.push_back(column.numbers ? numbers(head_words(column)) : Column(head_words(column)));
  open_table(out, "given", heads);
  for (const TableRow* row : rows_in_order(table)) {
    const bool fault = row->verdict == CaseVerdict::fault;
    const std::vector<std::string> cells = cells_of(*row);
    if (fault)
      out.open("tr", {{"class", "wrong"}});
    else
      out.open("tr");
    const std::string colour = row->verdict == CaseVerdict::good ? "" : css_of(row->verdict);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string css = i < heads.size() && heads[i].numbers ? (colour.empty() ? "n" : "n " + colour) : colour;
      if (css.empty())
        out.element("td", {}, cells[i]);
      else
        out.element("td", {{"class", css}}, cells[i]);
    }
    out.close();
  }
  close_table(out);
}

/// Tables one below the other, each in a section; folded ones that follow each other share one.
void write_given_tables(Markup& out, const SuiteResult& suite, bool with_fault) {
  bool open = false, folds = false;
  for (const SuiteTable* table : tables_in_order(suite)) {
    if (has_fault(*table) != with_fault) continue;
    const bool folded = table->folded && !with_fault;
    if (!open || !folded || !folds) {
      if (open) out.close();
      if (folded)
        open_section(out, "every-figure", "All figures", "");
      else
        open_section(out, "table-" + slug(table->title), clean_line(table->title), clean_line(table->why));
    }
    open = true;
    folds = folded;
    if (folded) out.open("details").element("summary", {}, clean_line(table->title));
    if (folded && !table->why.empty()) out.element("p", {{"class", "why"}}, clean_line(table->why));
    write_given_rows(out, *table);
    if (folded) out.close();
  }
  if (open) out.close();
}

void write_charts(Markup& out, const SuiteResult& suite) {
  for (const SuiteChart& chart : suite.charts) {
    const std::string drawing = chart_drawing(chart);
    if (drawing.empty()) continue;
    open_section(out, "chart-" + slug(chart.title), clean_line(chart.title), clean_line(chart.why));
    out.raw(drawing).close();
  }
}

void write_table(Markup& out, const SuiteResult& suite) {
  const OutcomeTable table = outcome_table(suite, true);
  open_section(out, "outcomes", "Outcomes by failure",
               "Cases by failure, place and outcome. Outcomes in red are faults.");
  const bool folded = folds_outcomes(suite);
  if (folded) out.open("details").element("summary", {}, counted(static_cast<int64_t>(table.rows.size()), "row"));
  std::vector<Column> heads{"failure", "place"};
  for (const OutcomeTable::Outcome& outcome : table.outcomes) heads.push_back(numbers(clean_line(outcome.name)));
  open_table(out, "suite", heads);
  for (const OutcomeTable::Row& row : table.rows) {
    out.open("tr").element("td", {}, clean_line(row.failure)).element("td", {}, clean_line(row.place));
    for (std::size_t i = 0; i < row.cases.size(); ++i) {
      out.open("td", {{"class", "n"}});
      if (row.cases[i] == 0)
        out.text("·");
      else
        out.element("b", {{"class", css_of(table.outcomes[i].verdict)}}, std::to_string(row.cases[i]));
      out.close();
    }
    out.close();
  }
  close_table(out);
  if (folded) out.close();
  for (const std::string& note : suite.notes) out.element("p", {{"class", "why"}}, clean_line(note));
  out.close();
}

void write_finding(Markup& out, const SuiteFinding& finding) {
  out.open("details");
  out.open("summary").element("b", {{"class", css_of(finding.verdict)}}, clean_line(finding.outcome));
  out.text(" " + clean_line(finding.trial) + ": " + clean_line(finding.sentence)).close();
  if (!finding.timeline.empty()) {
    open_table(out, "timeline", {numbers("operation"), "process", "what", "injected fault"});
    int number = 0;
    for (const TimelineStep& step : finding.timeline) {
      out.open("tr").element("td", {{"class", "n"}}, std::to_string(++number));
      out.element("td", {}, clean_line(step.process)).element("td", {}, clean_line(step.operation));
      out.open("td").element("b", {{"class", step.mark.empty() ? "t-ok" : "t-bad"}}, clean_line(step.mark)).close();
      out.close();
    }
    close_table(out);
  }
  if (!finding.replay.empty()) out.open("pre").element("code", {}, clean_line(finding.replay)).close();
  out.close();
}

}  // namespace

void write_rewards(Markup& out, const Page& page) {
  for (std::size_t i = 0; i < page.results.cells.size(); ++i) {
    const CellResult& cell = page.results.cells[i];
    if (!cell.mechanism || cell.mechanism->tables.empty()) continue;
    const SuiteTable& first = cell.mechanism->tables.front();
    open_section(out, "rewards-" + page.anchors[i], "Rewards · " + name_words(cell.scenario), clean_line(first.why));
    for (const SuiteTable& table : cell.mechanism->tables) write_given_rows(out, table);
    for (const SuiteChart& chart : cell.mechanism->charts) {
      out.element("p", {{"class", "why"}}, clean_line(chart.title + ": " + chart.why)).raw(chart_drawing(chart));
    }
    out.close();
  }
}

void write_suite(Markup& out, const SuiteResult& suite) {
  write_given_tables(out, suite, true);
  write_charts(out, suite);
  write_given_tables(out, suite, false);
  write_table(out, suite);
  if (suite.findings.empty()) return;
  open_section(out, "findings", "Findings, case by case",
               suite.findings_left_out > 0
                   ? "The first case of each row of the table; " + std::to_string(suite.findings_left_out) +
                         " more are counted in the table."
                   : std::string());
  for (const SuiteFinding& finding : suite.findings) write_finding(out, finding);
  out.close();
}

}  // namespace lockstep
