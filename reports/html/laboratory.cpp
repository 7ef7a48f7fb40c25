// Failures and places against outcomes, and each finding with its timeline.

#include "reports/laboratory.h"

#include "reports/html/parts.h"
#include "reports/text.h"

namespace lockstep {
namespace {

const char* css_of(CaseVerdict verdict) {
  if (verdict == CaseVerdict::fault) return "t-bad";
  return verdict == CaseVerdict::undecided ? "t-und" : "t-ok";
}

void write_table(Markup& out, const LaboratoryResult& laboratory) {
  const OutcomeTable table = outcome_table(laboratory, true);
  open_section(out, "outcomes", "What came of each failure",
               "Cases by failure, place and outcome. An outcome in the colour of a fault is one.");
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
