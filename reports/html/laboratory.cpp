// Failures and places against outcomes, and each finding with its timeline.

#include "reports/laboratory.h"

#include <string>
#include <vector>

#include "harness/base/counted.h"
#include "reports/html/parts.h"
#include "reports/laboratory_tables.h"
#include "reports/plots/laboratory_chart.h"
#include "reports/text.h"

namespace lockstep {
namespace {

const char* css_of(CaseVerdict verdict) {
  if (verdict == CaseVerdict::fault) return "t-bad";
  return verdict == CaseVerdict::undecided ? "t-und" : "t-ok";
}

void write_given_rows(Markup& out, const LaboratoryTable& given) {
  const LaboratoryTable table = with_words(given);
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
void write_given_tables(Markup& out, const LaboratoryResult& laboratory, bool with_fault) {
  bool open = false, folds = false;
  for (const LaboratoryTable* table : tables_in_order(laboratory)) {
    if (has_fault(*table) != with_fault) continue;
    const bool folded = table->folded && !with_fault;
    if (!open || !folded || !folds) {
      if (open) out.close();
      if (folded)
        open_section(out, "every-figure", "Every figure", "");
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

void write_charts(Markup& out, const LaboratoryResult& laboratory) {
  for (const LaboratoryChart& chart : laboratory.charts) {
    const std::string drawing = chart_drawing(chart);
    if (drawing.empty()) continue;
    open_section(out, "chart-" + slug(chart.title), clean_line(chart.title), clean_line(chart.why));
    out.raw(drawing).close();
  }
}

void write_table(Markup& out, const LaboratoryResult& laboratory) {
  const OutcomeTable table = outcome_table(laboratory, true);
  open_section(out, "outcomes", "What came of each failure",
               "Cases by failure, place and outcome. An outcome in the colour of a fault is one.");
  const bool folded = folds_outcomes(laboratory);
  if (folded) out.open("details").element("summary", {}, counted(static_cast<int64_t>(table.rows.size()), "row"));
  std::vector<Column> heads{"failure", "place"};
  for (const OutcomeTable::Outcome& outcome : table.outcomes) heads.push_back(numbers(clean_line(outcome.name)));
  open_table(out, "laboratory", heads);
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
  for (const std::string& note : laboratory.notes) out.element("p", {{"class", "why"}}, clean_line(note));
  out.close();
}

void write_finding(Markup& out, const LaboratoryFinding& finding) {
  out.open("details");
  out.open("summary").element("b", {{"class", css_of(finding.verdict)}}, clean_line(finding.outcome));
  out.text(" " + clean_line(finding.trial) + ": " + clean_line(finding.sentence)).close();
  if (!finding.timeline.empty()) {
    open_table(out, "timeline", {numbers("operation"), "who", "what", "done to it"});
    int number = 0;
    for (const TimelineStep& step : finding.timeline) {
      out.open("tr").element("td", {{"class", "n"}}, std::to_string(++number));
      out.element("td", {}, clean_line(step.actor)).element("td", {}, clean_line(step.operation));
      out.open("td").element("b", {{"class", step.mark.empty() ? "t-ok" : "t-bad"}}, clean_line(step.mark)).close();
      out.close();
    }
    close_table(out);
  }
  if (!finding.replay.empty()) out.open("pre").element("code", {}, clean_line(finding.replay)).close();
  out.close();
}

}  // namespace

void write_laboratory(Markup& out, const LaboratoryResult& laboratory) {
  write_given_tables(out, laboratory, true);
  write_charts(out, laboratory);
  write_given_tables(out, laboratory, false);
  write_table(out, laboratory);
  if (laboratory.findings.empty()) return;
  open_section(out, "findings", "What was found, case by case",
               laboratory.findings_left_out > 0
                   ? "The first of each row of the table; " + std::to_string(laboratory.findings_left_out) +
                         " more are counted there."
                   : std::string());
  for (const LaboratoryFinding& finding : laboratory.findings) write_finding(out, finding);
  out.close();
}

}  // namespace lockstep
