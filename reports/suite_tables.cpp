#include "reports/suite_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reports/plots/suite_frame.h"
#include "reports/text.h"
#include "reports/text_table.h"

namespace lockstep {
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
