#include "reports/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/base/text.h"
#include "reports/plots/chart.h"
#include "reports/text.h"

namespace lockstep {
namespace {

constexpr int kWholeText = 1 << 20;
/// A terminal shows one row a failure where the rows by place would fill more than this, and only wrong ones where those would too.
constexpr std::size_t kMostPlaceRows = 30;
constexpr std::size_t kTerminalFindings = 5, kMarkdownFindings = 50;

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

std::string count_text(int64_t cases) { return cases == 0 ? "·" : std::to_string(cases); }

std::string timeline_line(const TimelineStep& step) {
  std::string line = clean_line(step.process) + ": " + clean_line(step.operation);
  if (!step.mark.empty()) line += " ← " + clean_line(step.mark);
  return line;
}

std::string fenced_lines(const std::vector<std::string>& lines) {
  std::string text = "\n````text\n";
  for (const std::string& line : lines) text += line + "\n";
  return text + "````\n";
}

void suite_property(Markup& out, std::string_view name, std::string_view value) {
  out.empty("property", {{"name", std::string(name)}, {"value", std::string(value)}});
}

std::string figures_of(const SuiteResult& suite) {
  return fmt::format("{} ({}), {} wrong, {} undecided", counted(suite.trials, "trial"),
                     counted(suite.cases, "case"), suite.faults, suite.undecided);
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

bool folds_outcomes(const SuiteResult& suite) {
  return !suite.tables.empty() && suite.faults == 0 && outcome_table(suite, true).rows.size() > kMostPlaceRows;
}

Status suite_status(const Results& results) {
  const SuiteResult& suite = *results.suite;
  const std::string figures = figures_of(suite) + ".";
  if (results.summary.exit_code == 6 || suite.cases == 0)
    return {"?", "und", "Nothing selected", "No trial was run, so nothing is judged."};
  if (suite.faults > 0) return {"✗", "bad", "Faults found", figures};
  if (results.summary.exit_code == 5) return {"?", "und", "Undecided", figures};
  return {"✓", "ok", "No fault found", figures};
}

std::string suite_text(const Results& results, bool colour, int width) {
  const SuiteResult& suite = *results.suite;
  const int columns = width > 0 ? std::max(width, kNarrowestWidth) : kWholeText;
  const auto paint = [colour](std::string_view text, const char* code) {
    return colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
  };
  std::string out =
      paint(shorten(clean_line(results.name) + " · " + clean_line(suite.subject), columns), "1") + "\n";
  out += tables_text(suite, colour, table_width(width));
  OutcomeTable table = outcome_table(suite, true);
  const bool by_place = table.rows.size() <= kMostPlaceRows;
  if (!by_place) table = outcome_table(suite, false);
  std::vector<std::vector<std::string>> rows(1);
  rows.front().push_back(by_place ? "failure, place" : "failure");
  for (const OutcomeTable::Outcome& outcome : table.outcomes) rows.front().push_back(heading_of(outcome));
  const bool only_wrong = table.rows.size() > kMostPlaceRows;
  for (const OutcomeTable::Row& row : table.rows) {
    if (only_wrong && !came_out_wrong(table, row)) continue;
    rows.push_back({clean_line(row.failure) + (row.place.empty() ? "" : ", " + clean_line(row.place))});
    for (const int64_t cases : row.cases) rows.back().push_back(count_text(cases));
  }
  const auto shown_failures = static_cast<int64_t>(rows.size()) - 1;
  if (const auto left_out = static_cast<int64_t>(table.rows.size()) - shown_failures; left_out > 0) {
    rows.push_back({fmt::format("({} without a fault)", counted(left_out, "failure"))});
    for (std::size_t i = 0; i < table.outcomes.size(); ++i) {
      int64_t cases = 0;
      for (const OutcomeTable::Row& row : table.rows) cases += came_out_wrong(table, row) ? 0 : row.cases[i];
      rows.back().push_back(count_text(cases));
    }
  }
  out += aligned_columns(rows, "   ", table_width(width));
  if (!by_place) out += "  (by place: see report.html)\n";
  for (const auto& [what, figure] : suite.facts)
    out += wrapped(clean_line(what) + ": " + clean_line(figure), std::min(columns, 118));
  for (const std::string& note : suite.notes) out += wrapped(clean_line(note), std::min(columns, 118));
  std::size_t shown = 0;
  for (const SuiteFinding& finding : suite.findings) {
    if (finding.verdict != CaseVerdict::fault) continue;
    if (++shown > kTerminalFindings) break;
    out += paint(shorten("✗ " + clean_line(finding.trial) + ": " + clean_line(finding.sentence), columns), "31") + "\n";
    if (!finding.replay.empty()) out += shorten("  again: " + clean_line(finding.replay), columns) + "\n";
  }
  if (suite.faults > static_cast<int64_t>(kTerminalFindings))
    out += "  (more: report.html and results.json)\n";
  const Status status = suite_status(results);
  std::string ended = wrapped(fmt::format("{} {}: {}", status.symbol, status.word, status.detail), columns);
  ended.pop_back();
  out += paint(ended, suite.faults > 0 ? "31" : "32") + "\n";
  if (!results.rerun.empty()) out += shorten("again: " + clean_line(results.rerun), columns) + "\n";
  return out;
}

std::string suite_markdown(const Results& results) {
  const SuiteResult& suite = *results.suite;
  const Status status = suite_status(results);
  std::string out = fmt::format("## {} {}: {}\n\n{}\n\n{}\n\n", status.symbol, status.word,
                                escape_markdown(results.name), escape_markdown(suite.subject),
                                escape_markdown(status.detail));
  const OutcomeTable table = outcome_table(suite, true);
  if (const std::string measured = tables_markdown(suite); !measured.empty())
    out += measured.substr(1) + "\n### Outcomes by failure\n\n";
  const bool folded = folds_outcomes(suite);
  if (folded) out += "<details><summary>" + counted(static_cast<int64_t>(table.rows.size()), "row") + "</summary>\n\n";
  out += "| failure | place |";
  for (const OutcomeTable::Outcome& outcome : table.outcomes) out += " " + escape_markdown(heading_of(outcome)) + " |";
  out += "\n|---|---|";
  for (std::size_t i = 0; i < table.outcomes.size(); ++i) out += "--:|";
  out += "\n";
  for (const OutcomeTable::Row& row : table.rows) {
    out += fmt::format("| {} | {} |", escape_markdown(row.failure), escape_markdown(row.place));
    for (const int64_t cases : row.cases) out += " " + count_text(cases) + " |";
    out += "\n";
  }
  if (folded) out += "\n</details>\n";
  for (const auto& [what, figure] : suite.facts)
    out += fmt::format("\n{}: {}\n", escape_markdown(what), escape_markdown(figure));
  for (const std::string& note : suite.notes) out += "\n" + escape_markdown(note) + "\n";
  std::size_t shown = 0;
  for (const SuiteFinding& finding : suite.findings) {
    if (finding.verdict != CaseVerdict::fault || ++shown > kMarkdownFindings) continue;
    out += fmt::format("\n### {}: {}\n\n{}\n", escape_markdown(finding.outcome), escape_markdown(finding.trial),
                       escape_markdown(finding.sentence));
    std::vector<std::string> lines;
    for (const TimelineStep& step : finding.timeline) lines.push_back(timeline_line(step));
    if (!lines.empty()) out += fenced_lines(lines);
    if (!finding.replay.empty()) out += "\nRun it again:\n" + fenced_lines({clean_line(finding.replay)});
  }
  if (!results.rerun.empty()) out += "\nThe whole suite again:\n" + fenced_lines({clean_line(results.rerun)});
  return out;
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
  Markup out;
  out.raw("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
  const std::string tests = std::to_string(table.rows.size()), failed = std::to_string(failures);
  out.open("testsuites", {{"name", "lockstep"}, {"tests", tests}, {"failures", failed}, {"errors", "0"}});
  out.open("testsuite", {{"name", clean_line(results.name)}, {"tests", tests}, {"failures", failed},
                         {"errors", "0"}, {"skipped", "0"}});
  out.open("properties");
  suite_property(out, "config", results.config_file);
  suite_property(out, "laboratory", suite.kind);
  suite_property(out, "subject", suite.subject);
  suite_property(out, "exit_code", std::to_string(results.summary.exit_code));
  suite_property(out, "rerun", results.rerun);
  for (const auto& [what, figure] : suite.facts) suite_property(out, what, figure);
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

namespace {

/// A terminal shows no table of more rows whole, and no chart of more series.
constexpr std::size_t kMostTerminalRows = 30, kMostTerminalSeries = 12;
constexpr int kStripColumns = 40;
constexpr int kLongestCell = 80, kTitleWidth = 118;

bool is_fault(const TableRow& row) { return row.verdict == CaseVerdict::fault; }

std::size_t series_of(const SuiteChart& chart) {
  std::size_t count = 0;
  for (const ChartPanel& panel : chart.panels) count += panel.series.size();
  return count;
}

/// Where a value stands between the ends of its axis, 0 to 1.
double share_of(const AxisRange& range, double at) { return std::clamp((at - range.low) / (range.high - range.low), 0.0, 1.0); }

/// The points of a line by their heights.
std::string bars_of(const SuiteChart& chart, const ChartFrame& frame, const ChartSeries& series) {
  constexpr std::array<const char*, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string bars;
  for (const ChartPoint& point : series.points) {
    const double at = on_axis(chart.y, point.y);
    bars += std::isfinite(at) ? kBars[static_cast<std::size_t>(std::lround(7 * share_of(frame.y, at)))] : " ";
  }
  return bars;
}

/// Dots on a strip, the marks behind them.
std::string strip_of(const SuiteChart& chart, const ChartFrame& frame, const ChartSeries& series) {
  std::array<const char*, kStripColumns> cells;
  cells.fill("·");
  const auto place = [&](double value) {
    const double at = on_axis(chart.x, value);
    return std::isfinite(at) ? static_cast<std::size_t>(std::lround((kStripColumns - 1) * share_of(frame.x, at))) : 0;
  };
  for (const ChartMark& mark : chart.marks) cells[place(mark.at)] = "│";
  for (const ChartPoint& point : series.points) cells[place(point.x)] = "●";
  return fmt::format("{}", fmt::join(cells, ""));
}

std::string range_words(const SuiteChart& chart, const ChartSeries& series) {
  const ChartAxis& axis = chart.by_row ? chart.x : chart.y;
  if (series.points.empty()) return "—";
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const ChartPoint& point : series.points) {
    low = std::min(low, chart.by_row ? point.x : point.y);
    high = std::max(high, chart.by_row ? point.x : point.y);
  }
  const std::string end = value_words(axis, high);
  return low == high ? end : value_words({axis.name, "", axis.log}, low) + " to " + end;
}

std::string table_text(const SuiteTable& given, bool colour, int width) {
  const SuiteTable table = with_words(given);
  std::vector<const TableRow*> rows = rows_in_order(table);
  const bool whole = !table.folded && rows.size() <= kMostTerminalRows;
  if (!whole) std::erase_if(rows, [](const TableRow* row) { return !is_fault(*row); });
  if (rows.empty() && table.folded) return "";
  std::string out = shorten(clean_line(table.title), width) + "\n";
  std::vector<Column> heads;
  for (const TableColumn& column : table.columns) heads.push_back(column.numbers ? numbers(head_words(column)) : Column(head_words(column)));
  std::vector<std::vector<std::string>> cells;
  for (const TableRow* row : rows) {
    cells.push_back(cells_of(*row));
    for (std::string& cell : cells.back()) cell = short_line(cell, kLongestCell);
  }
  if (!rows.empty()) {
    for (const TableLine& line : table_lines(heads, cells, "    ", width)) {
      const bool red = colour && line.row && is_fault(*rows[*line.row]);
      out += (red ? "\x1b[31m" + line.text + "\x1b[0m" : line.text) + "\n";
    }
  }
  if (!whole) out += fmt::format("  ({} rows: report.html)\n", table.rows.size());
  return out;
}

std::string pipe_table(const SuiteTable& given) {
  const SuiteTable table = with_words(given);
  std::string out = "|", rule = "|";
  for (const TableColumn& column : table.columns) {
    out += " " + escape_markdown(head_words(column)) + " |";
    rule += column.numbers ? "--:|" : "---|";
  }
  out += "\n" + rule + "\n";
  for (const TableRow* row : rows_in_order(table)) {
    out += "|";
    for (const std::string& cell : cells_of(*row)) {
      const std::string text = escape_markdown(cell);
      out += is_fault(*row) && !text.empty() ? " **" + text + "** |" : " " + text + " |";
    }
    out += "\n";
  }
  return out;
}

std::string table_markdown(const SuiteTable& table) {
  const bool folded = table.folded && !has_fault(table);
  const std::string title = escape_markdown(table.title), why = table.why.empty() ? "" : escape_markdown(table.why) + "\n\n";
  if (!folded) return "\n### " + title + "\n\n" + why + pipe_table(table);
  return "\n<details><summary>" + escape_markup(clean_line(table.title)) + "</summary>\n\n" + why + pipe_table(table) + "\n</details>\n";
}

std::string chart_markdown(const SuiteChart& chart) {
  const std::vector<std::string> lines = chart_lines(chart);
  if (lines.empty()) return "";
  std::string out = "\n### " + escape_markdown(chart.title) + "\n\n";
  if (!chart.why.empty()) out += escape_markdown(chart.why) + "\n\n";
  out += "````text\n";
  for (const std::string& line : lines) out += line + "\n";
  return out + "````\n";
}

}  // namespace

std::vector<const TableRow*> rows_in_order(const SuiteTable& table) {
  std::vector<const TableRow*> rows;
  for (const TableRow& row : table.rows) rows.push_back(&row);
  std::ranges::stable_partition(rows, [](const TableRow* row) { return is_fault(*row); });
  return rows;
}

SuiteTable with_words(const SuiteTable& table) {
  SuiteTable some = table;
  for (std::size_t i = some.columns.size(); i-- > 0;) {
    if (some.rows.empty() || std::ranges::any_of(some.rows, [i](const TableRow& row) { return !row.cells[i].empty(); })) continue;
    some.columns.erase(some.columns.begin() + static_cast<std::ptrdiff_t>(i));
    for (TableRow& row : some.rows) row.cells.erase(row.cells.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return some;
}

bool has_fault(const SuiteTable& table) { return std::ranges::any_of(table.rows, is_fault); }

std::vector<const SuiteTable*> tables_in_order(const SuiteResult& suite) {
  std::vector<const SuiteTable*> tables;
  for (const SuiteTable& table : suite.tables) tables.push_back(&table);
  std::ranges::stable_partition(tables, [](const SuiteTable* table) { return has_fault(*table); });
  return tables;
}

std::string head_words(const TableColumn& column) { return name_with_unit(column.head, column.unit); }

std::vector<std::string> cells_of(const TableRow& row) {
  std::vector<std::string> cells;
  for (const std::string& cell : row.cells) cells.push_back(clean_line(cell));
  if (is_fault(row) && !cells.empty()) cells.front().insert(0, "✗ ");
  return cells;
}

std::vector<std::string> chart_lines(const SuiteChart& chart) {
  const ChartFrame frame = frame_of(chart);
  std::vector<std::string> lines;
  if (frame.empty) return lines;
  std::vector<std::string> names, drawn;
  int name_width = 0, drawn_width = 0;
  for (const ChartPanel& panel : chart.panels) {
    for (const ChartSeries& series : panel.series) {
      const bool panel_named = !chart.by_row && !panel.name.empty();
      const std::string name = (panel_named ? clean_line(panel.name) + ", " : "") + clean_line(series.name);
      names.push_back((series.verdict == CaseVerdict::fault ? "✗ " : "") + name);
      drawn.push_back(chart.by_row ? strip_of(chart, frame, series) : bars_of(chart, frame, series));
      name_width = std::max(name_width, display_width(names.back()));
      drawn_width = std::max(drawn_width, display_width(drawn.back()));
    }
  }
  std::size_t i = 0;
  for (const ChartPanel& panel : chart.panels) {
    for (const ChartSeries& series : panel.series) {
      lines.push_back(fmt::format("{}  {}  {}", pad_right(names[i], name_width), pad_right(drawn[i], drawn_width), range_words(chart, series)));
      ++i;
    }
  }
  for (const ChartMark& mark : chart.marks) lines.push_back("│ " + clean_line(mark.name) + ": " + value_words(chart.x, mark.at));
  return lines;
}

std::string tables_text(const SuiteResult& suite, bool colour, int width) {
  std::string out;
  for (const SuiteTable* table : tables_in_order(suite)) out += table_text(*table, colour, width);
  for (const SuiteChart& chart : suite.charts) {
    const std::vector<std::string> lines = chart_lines(chart);
    if (lines.empty()) continue;
    const std::string title = clean_line(chart.title) + ", " + axis_words(chart.by_row ? chart.x : chart.y);
    if (series_of(chart) > kMostTerminalSeries) {
      out += shorten(title + ": report.html draws it", std::min(width, kTitleWidth)) + "\n";
      continue;
    }
    out += shorten(title, std::min(width, kTitleWidth)) + "\n";
    for (const std::string& line : lines) out += shorten("    " + line, width) + "\n";
  }
  return out;
}

std::string tables_markdown(const SuiteResult& suite) {
  std::string out;
  const std::vector<const SuiteTable*> tables = tables_in_order(suite);
  for (const SuiteTable* table : tables) {
    if (has_fault(*table)) out += table_markdown(*table);
  }
  for (const SuiteChart& chart : suite.charts) out += chart_markdown(chart);
  for (const SuiteTable* table : tables) {
    if (!has_fault(*table)) out += table_markdown(*table);
  }
  return out;
}

}  // namespace lockstep
