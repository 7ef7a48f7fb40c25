// What results.json says of a suite.

#include "harness/verdict/results/results_description.h"

// The member's own spelling is its key.
#define KEY(member, ...) {#member, &S::member __VA_OPT__(, ) __VA_ARGS__}

namespace lockstep::results_format {

template <>
Object<SuiteCount> describe() {
  using S = SuiteCount;
  return {"laboratory_count", "Cases of one failure at one kind of place that ended alike.",
          {KEY(failure, "What was done to the subject."), KEY(place, "Where: a kind of operation, on a rank."),
           KEY(outcome), KEY(verdict), KEY(cases, at_least(1))}};
}

template <>
Object<TimelineStep> describe() {
  using S = TimelineStep;
  return {"timeline_step", "What one rank, process or thread did.",
          {{"actor", &S::process}, KEY(operation), KEY(mark, "What was done to it there; empty: nothing.")}};
}

template <>
Object<SuiteFinding> describe() {
  using S = SuiteFinding;
  return {"laboratory_finding", "A case that came out wrong, or undecided.",
          {KEY(trial, "Its name, as --only takes it."), KEY(failure), KEY(place), KEY(outcome), KEY(verdict),
           KEY(sentence), KEY(timeline, "In the order in which it happened; empty: there is none to show."),
           KEY(replay, "The command that runs this trial again.")}};
}

template <>
Object<TableColumn> describe() {
  using S = TableColumn;
  return {"table_column", "A column of a suite's table.",
          {KEY(head), KEY(unit, "Empty: none."), KEY(numbers, "They are aligned to the right.")}};
}

template <>
Object<TableRow> describe() {
  using S = TableRow;
  return {"table_row", "A row of a suite's table; rows of faults are shown first.",
          {KEY(cells, "One a column, as people read it."), KEY(verdict)}};
}

template <>
Object<SuiteTable> describe() {
  using S = SuiteTable;
  return {"laboratory_table", "What a suite measured or heard, row by row.",
          {KEY(title), KEY(why, "How to read it; may be empty."), KEY(columns), KEY(rows),
           KEY(folded, "One to look things up in: a terminal shows its faults alone.")},
          [](SuiteTable& table) {
            for (const TableRow& row : table.rows) {
              if (row.cells.size() != table.columns.size())
                throw Unreadable("a row of a table with other cells than its columns");
            }
          }};
}

template <>
Object<ChartAxis> describe() {
  using S = ChartAxis;
  return {"chart_axis", "An axis of a suite's chart.",
          {KEY(name), KEY(unit, "Empty: none."), KEY(log, "It is logarithmic.")}};
}

template <>
Object<ChartPoint> describe() {
  using S = ChartPoint;
  return {"chart_point", "", {KEY(x, finite()), KEY(y, finite())}};
}

template <>
Object<ChartSeries> describe() {
  using S = ChartSeries;
  return {"chart_series", "A line, or a row of dots.", {KEY(name), KEY(verdict), KEY(points)}};
}

template <>
Object<ChartPanel> describe() {
  using S = ChartPanel;
  return {"chart_panel", "Series that stand together.", {KEY(name), KEY(series)}};
}

template <>
Object<ChartMark> describe() {
  using S = ChartMark;
  return {"chart_mark", "A value of x that is marked.", {KEY(name), KEY(at, finite())}};
}

template <>
Object<SuiteChart> describe() {
  using S = SuiteChart;
  return {"laboratory_chart", "What a suite measured, drawn.",
          {KEY(title), KEY(why, "How to read it; may be empty."), KEY(x), KEY(y),
           KEY(by_row, "Each series is a row with a dot at every x; y says nothing. Else it is a line."), KEY(marks),
           KEY(panels, "All have the same axes.")}};
}

template <>
Object<SuiteResult> describe() {
  using S = SuiteResult;
  return {"laboratory",
          "Trials of a library or of a program under failures; only where the config names a suite.",
          {KEY(kind), KEY(subject), KEY(trials, at_least(0)),
           KEY(cases, at_least(0), "That the trials held: one trial may hold many."), KEY(faults, at_least(0)),
           KEY(undecided, at_least(0)), KEY(seconds, finite()), KEY(table), KEY(findings),
           KEY(findings_left_out, at_least(0), "Found and counted in the table, but not listed."), KEY(facts),
           KEY(notes, "What could not be seen."),
           KEY(tables, if_any(usual<std::vector<SuiteTable>>()), "Only where the suite gives any."),
           KEY(charts, if_any(usual<std::vector<SuiteChart>>()), "Only where the suite gives any.")}};
}

}  // namespace lockstep::results_format
