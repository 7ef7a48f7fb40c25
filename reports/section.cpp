#include "reports/section.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "reports/plots/chart.h"

namespace lockstep {

Note on_page(std::string words, std::string colour) {
  Note note(std::move(words), std::move(colour));
  note.page = true;
  return note;
}
Part prose(std::string text) { return {.kind = Part::Kind::prose, .text = std::move(text)}; }
Part heading(std::string text, std::string id, Note more) {
  return {.kind = Part::Kind::heading,
          .text = std::move(text),
          .id = std::move(id),
          .css = std::move(more.css),
          .more = std::move(more.text)};
}
Part code(std::string text) { return {.kind = Part::Kind::code, .text = std::move(text)}; }
Part list(std::vector<std::string> lines) { return {.kind = Part::Kind::list, .lines = std::move(lines)}; }
Part answered(std::vector<Answer> answers) {
  std::erase_if(answers, [](const Answer& each) { return each.text.empty(); });
  return {.kind = Part::Kind::answers, .answers = std::move(answers)};
}
Part tabled(Table table) { return {.kind = Part::Kind::table, .table = std::move(table)}; }
Part charted(SuiteChart chart) { return {.kind = Part::Kind::chart, .chart = std::move(chart)}; }
Part drawing(std::string html) { return {.kind = Part::Kind::drawing, .drawing = std::move(html)}; }
Part columns(std::vector<Part> parts) { return {.kind = Part::Kind::columns, .parts = std::move(parts)}; }
Part fold(std::string summary, std::vector<Part> parts, std::string id, Note more) {
  Part part = heading(std::move(summary), std::move(id), std::move(more));
  part.kind = Part::Kind::fold;
  part.parts = std::move(parts);
  return part;
}
Part on_pages(Part part) {
  part.page = true;
  return part;
}

static void open_table(Markup& out, std::string_view css, const std::vector<Column>& heads) {
  std::string label = "Table";
  for (const Column& column : heads) label += (&column == heads.data() ? ": " : ", ") + column.head;
  open_scroll(out, label);
  out.open("table", {{"class", std::string(css)}}).open("thead").open("tr");
  for (const Column& column : heads) {
    Attributes attributes{{"scope", "col"}};
    if (column.numbers) attributes.push_back({"class", "n"});
    out.element("th", attributes, column.head);
  }
  out.close().close().open("tbody");
}

namespace {

bool has_fault(const Table& table) { return std::ranges::any_of(table.rows, &DataRow::fault); }

bool is_empty(const Datum& cell) { return cell.text.empty() && cell.notes.empty() && cell.drawing.empty(); }

/// Faults first, as every format shows them, and without columns in which no row says anything.
Table in_order(Table table, bool page) {
  const bool grouped = std::ranges::any_of(table.rows, [](const DataRow& row) { return !row.group.empty(); });
  if (has_fault(table) && !grouped) std::ranges::stable_partition(table.rows, &DataRow::fault);
  const bool spanned =
      std::ranges::any_of(table.rows, [&](const DataRow& row) { return row.cells.size() != table.columns.size(); });
  for (std::size_t i = table.columns.size(); i-- > 0 && !spanned;) {
    const auto says = [i](const DataRow& row) { return i < row.cells.size() && !is_empty(row.cells[i]); };
    if ((page || !table.columns[i].page) && (table.rows.empty() || std::ranges::any_of(table.rows, says))) continue;
    table.columns.erase(table.columns.begin() + static_cast<std::ptrdiff_t>(i));
    for (DataRow& row : table.rows) row.cells.erase(row.cells.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (DataRow& row : table.rows) {
    if (row.fault && !row.cells.empty()) row.cells.front().text.insert(0, "✗ ");
  }
  return table;
}

/// A cell in one line.
std::string line_of(const Datum& cell) {
  std::vector<std::string> notes;
  for (const Note& note : cell.notes)
    if (!note.page) notes.push_back(note.text);
  const std::string text = clean_line(cell.text) + (cell.tag.empty() ? "" : " (" + cell.tag + ")");
  const std::string noted = clean_line(fmt::format("{}", fmt::join(notes, "; ")));
  return notes.empty() ? text : text.empty() ? noted : fmt::format("{} ({})", text, noted);
}

/// A heading's words, and what stands behind them.
std::string head_words(const Part& part) {
  return part.text + (part.text.empty() || part.more.empty() ? "" : " ") + part.more;
}

// Pages.

void write_words(Markup& out, const Datum& cell) {
  if (!cell.link.empty()) out.open("a", {{"href", cell.link}});
  if (cell.code)
    out.element("code", {}, cell.text);
  else if (!cell.css.empty())
    out.element("b", {{"class", cell.css}}, cell.text);
  else
    out.text(cell.text);
  if (!cell.link.empty()) out.close();
  if (!cell.tag.empty()) out.text(" ").element("span", {{"class", "tag"}}, cell.tag);
}

void write_cell(Markup& out, const Table& table, const Datum& cell, std::size_t column, std::size_t span) {
  const auto is = [&table](const char* css) { return table.css.find(css) != std::string::npos; };
  const bool labelled = column > 0 && (is("stack") || is("power") || is("dots"));
  const Column* head = column < table.columns.size() ? &table.columns[column] : nullptr;
  std::string css = head && head->numbers ? "n" : "";
  for (const std::string& more : {head ? head->css : std::string(), cell.box})
    css += (css.empty() || more.empty() ? "" : " ") + more;
  std::vector<Attribute> attributes;
  if (column == 0) attributes.push_back({"scope", cell.rows > 1 ? "rowgroup" : "row"});
  if (!css.empty()) attributes.push_back({"class", css});
  if (cell.rows > 1) attributes.push_back({"rowspan", std::to_string(cell.rows)});
  if (span > 1) attributes.push_back({"colspan", std::to_string(span)});
  if (labelled && head && !head->head.empty()) attributes.push_back({"data-label", head->head});
  out.open(column == 0 ? "th" : "td", attributes);
  write_words(out, cell);
  for (const Note& note : cell.notes)
    out.element("span", {{"class", note.css.empty() ? "sub" : "sub " + note.css}}, note.text);
  out.raw(cell.drawing).close();
}

void write_table(Markup& out, const Table& given) {
  const Table table = in_order(given, true);
  open_table(out, table.css, table.columns);
  std::size_t spanning = 0;  // rows that the first cell of an earlier one spans
  for (const DataRow& row : table.rows) {
    if (!row.group.empty())
      out.open("tr", {{"class", "group"}})
          .element("td", {{"colspan", std::to_string(table.columns.size())}}, row.group)
          .close();
    std::vector<Attribute> attributes;
    if (!row.id.empty()) attributes.push_back({"id", row.id});
    if (row.fault || !row.css.empty()) attributes.push_back({"class", row.fault ? "wrong" : row.css});
    out.open("tr", attributes);
    const std::size_t first = spanning > 0 ? 1 : 0;
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const bool last = i + 1 == row.cells.size();
      write_cell(out, table, row.cells[i], first + i, last ? table.columns.size() - first - i : 1);
    }
    spanning = spanning > 0        ? spanning - 1
               : row.cells.empty() ? 0
                                   : static_cast<std::size_t>(row.cells.front().rows) - 1;
    out.close();
  }
  if (!table.foot.empty()) {
    out.close().open("tfoot").open("tr").element("td", {{"class", "gap"}}, "").open("td", {{"class", "plot axis"}});
    out.raw(table.foot).close();
    out.element("td", {{"class", "gap"}, {"colspan", std::to_string(table.columns.size() - 2)}}, "").close();
  }
  out.close().close().close();
}

void write_head(Markup& out, const Part& part) {
  if (part.more.empty()) {
    out.text(part.text).close();
    return;
  }
  if (!part.text.empty()) out.element("b", {}, part.text).text(" ");
  out.element("b", {{"class", part.css}}, part.more).close();
}

std::vector<Attribute> identified(const Part& part) {
  return part.id.empty() ? std::vector<Attribute>{} : std::vector<Attribute>{{"id", part.id}};
}

}  // namespace

void write_part(Markup& out, const Part& part) {
  switch (part.kind) {
    case Part::Kind::heading:
      write_head(out.open("h3", identified(part)), part);
      return;
    case Part::Kind::prose:
      out.element("p", {{"class", "why"}}, part.text);
      return;
    case Part::Kind::list:
      out.open("ul");
      for (const std::string& line : part.lines) out.element("li", {}, line);
      out.close();
      return;
    case Part::Kind::answers:
      out.open("dl", {{"class", "asked"}});
      for (const Answer& each : part.answers)
        out.open("div").element("dt", {{"class", "t-" + each.css}}, each.question).element("dd", {}, each.text).close();
      out.close();
      return;
    case Part::Kind::code:
      out.element("pre", identified(part), part.text);
      return;
    case Part::Kind::table:
      write_table(out, part.table);
      return;
    case Part::Kind::chart:
      out.raw(chart_drawing(part.chart));
      return;
    case Part::Kind::drawing:
      out.raw(part.drawing);
      return;
    case Part::Kind::fold:
      out.open("details", identified(part));
      write_head(out.open("summary"), part);
      for (const Part& each : part.parts) write_part(out, each);
      out.close();
      return;
    case Part::Kind::columns:
      out.open("div", {{"class", "two"}});
      for (const Part& each : part.parts) write_part(out, each);
      out.close();
      return;
  }
}

void write_section(Markup& out, const Section& section) {
  if (section.parts.empty()) return;
  out.open("section", {{"id", section.id}});
  if (!section.title.empty()) out.element("h2", {}, section.title);
  if (!section.intro.empty()) out.element("p", {{"class", "why"}}, section.intro);
  for (const Part& part : section.parts) write_part(out, part);
  out.close();
}

// Markdown.

std::string fenced(const std::string& text) {
  std::size_t longest = 2, run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fence + "text\n" + text + (text.ends_with('\n') ? "" : "\n") + fence + "\n";
}

static std::string pipe_table(const Table& given) {
  constexpr int kLongestCell = 400;
  const Table table = in_order(given, false);
  std::string out = "|", rule = "|";
  for (const Column& column : table.columns) {
    out += " " + escape_markdown(column.head) + " |";
    rule += column.numbers ? "--:|" : "---|";
  }
  out += "\n" + rule + "\n";
  for (const DataRow& row : table.rows) {
    if (!row.group.empty())
      out += "| *" + escape_markdown(row.group) + "* |" + std::string(table.columns.size() - 1, '|') + "\n";
    out += "|";
    for (const Datum& cell : row.cells) {
      const std::string text = escape_markdown(short_line(line_of(cell), kLongestCell));
      out += row.fault && !text.empty() ? " **" + text + "** |" : " " + text + " |";
    }
    out += "\n";
  }
  return out;
}

std::string markdown_of(const Part& part) {
  std::string out;
  if (part.page) return out;
  switch (part.kind) {
    case Part::Kind::heading:
      return "\n#### " + escape_markdown(head_words(part)) + "\n";
    case Part::Kind::prose:
      return "\n" + escape_markdown(part.text) + "\n";
    case Part::Kind::list:
      for (const std::string& line : part.lines) out += "- " + escape_markdown(line) + "\n";
      return out.empty() ? out : "\n" + out;
    case Part::Kind::answers:
      for (const Answer& each : part.answers)
        out += "- **" + escape_markdown(each.question) + "** " + escape_markdown(each.text) + "\n";
      return out.empty() ? out : "\n" + out;
    case Part::Kind::code:
      return "\n" + fenced(part.text);
    case Part::Kind::table:
      return "\n" + pipe_table(part.table);
    case Part::Kind::chart: {
      const std::vector<std::string> lines = chart_lines(part.chart);
      return lines.empty() ? out : "\n" + fenced(fmt::format("{}", fmt::join(lines, "\n")));
    }
    case Part::Kind::fold:
    case Part::Kind::columns:
      for (const Part& each : part.parts) out += markdown_of(each);
      if (part.kind == Part::Kind::columns || out.empty()) return out;
      return "\n<details><summary>" + escape_markup(clean_line(head_words(part))) + "</summary>\n" + out +
             "\n</details>\n";
    case Part::Kind::drawing:
      return out;
  }
  return out;
}

std::string markdown_of(const Section& section) {
  std::string parts;
  if (section.page) return parts;
  for (const Part& part : section.parts) parts += markdown_of(part);
  if (parts.empty()) return "";
  return (section.title.empty() ? "" : "\n### " + escape_markdown(section.title) + "\n") +
         (section.intro.empty() ? "" : "\n" + escape_markdown(section.intro) + "\n") + parts;
}

// Terminals.

namespace {

/// A terminal shows no table of more rows whole, and no chart of more series.
constexpr std::size_t kMostTerminalRows = 30, kMostTerminalSeries = 12, kMostTerminalLines = 20;
constexpr int kStripColumns = 40, kLongestCell = 80, kTitleWidth = 118, kBelow = 8, kWhole = 1 << 20;

int title_width(int width) { return width > 0 ? std::min(width, kTitleWidth) : kTitleWidth; }

std::string indented(const std::string& text, int columns) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);)
    out += std::string(static_cast<std::size_t>(columns), ' ') + line + "\n";
  return out;
}

std::string table_text(const Table& given, bool colour, int width) {
  Table table = in_order(given, false);
  const std::size_t all = table.rows.size();
  const bool whole = !table.folded && all <= kMostTerminalRows;
  if (!whole) std::erase_if(table.rows, [](const DataRow& row) { return !row.fault; });
  if (table.rows.empty() && table.folded) return "";
  const int room = width > 0 ? width : table_width(0), sentence = width > 0 ? width - kBelow : kWhole;
  std::vector<std::vector<std::string>> cells;
  std::vector<std::string> below(table.rows.size());
  std::vector<std::vector<std::string>> whole_cells(table.rows.size());
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    cells.emplace_back();
    const DataRow& row = table.rows[r];
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const std::string line = ascii_minus(line_of(row.cells[i]));
      if (i >= table.columns.size() || !table.columns[i].below) {
        cells.back().push_back(short_line(line, kLongestCell));
        whole_cells[r].push_back(line);
      } else if ((row.fault || row.open) && !line.empty()) {
        below[r] += indented(wrapped(table.columns[i].head + ": " + line, sentence), kBelow);
      }
    }
  }
  std::erase_if(table.columns, [](const Column& column) { return column.below; });
  const std::vector<TableLine> lines =
      cells.empty() ? std::vector<TableLine>{} : table_lines(table.columns, cells, "    ", room);
  std::vector<std::size_t> last(table.rows.size());
  std::vector<std::string> shown(table.rows.size()), cut(table.rows.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].row) continue;
    last[*lines[i].row] = i;
    shown[*lines[i].row] += lines[i].text;
  }
  // What a row of a fault has no room for is said below it.
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    for (std::size_t i = 1; i < table.columns.size() && (table.rows[r].fault || table.rows[r].open); ++i) {
      const std::string whole = i < whole_cells[r].size() ? whole_cells[r][i] : "";
      if (shown[r].find(whole) == std::string::npos)
        cut[r] += indented(wrapped(table.columns[i].head + ": " + whole, sentence), kBelow);
    }
  }
  std::string out;
  std::size_t begun = 0;  // rows of the first block
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const TableLine& line = lines[i];
    if (line.row && *line.row == begun && !table.rows[begun++].group.empty())
      out += shorten("  " + clean_line(table.rows[*line.row].group), room) + "\n";
    out += painted(line.text, "bad", colour && line.row && table.rows[*line.row].fault) + "\n";
    if (line.row && last[*line.row] == i) out += cut[*line.row] + below[*line.row];
  }
  if (!whole) out += fmt::format("  ({} rows: report.html)\n", all);
  return out;
}

std::size_t series_of(const SuiteChart& chart) {
  std::size_t count = 0;
  for (const ChartPanel& panel : chart.panels) count += panel.series.size();
  return count;
}

/// Where a value stands between the ends of its axis, 0 to 1.
double share_of(const AxisRange& range, double at) {
  return std::clamp((at - range.low) / (range.high - range.low), 0.0, 1.0);
}

/// The points of a line by their heights; of many the means of neighbours.
std::string bars_of(const SuiteChart& chart, const ChartFrame& frame, const ChartSeries& series) {
  constexpr std::array<const char*, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string bars;
  const std::size_t points = series.points.size(), columns = std::min<std::size_t>(points, kStripColumns);
  for (std::size_t column = 0; column < columns; ++column) {
    const std::size_t begin = column * points / columns, end = (column + 1) * points / columns;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += series.points[i].y;
    const double at = on_axis(chart.y, sum / static_cast<double>(end - begin));
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
  Reach reach;
  for (const ChartPoint& point : series.points) reach.take(chart.by_row ? point.x : point.y);
  const std::string end = value_words(axis, reach.high);
  return reach.low == reach.high ? end : value_words({axis.name, "", axis.log}, reach.low) + " to " + end;
}

std::string chart_text(const SuiteChart& chart, int width) {
  const std::vector<std::string> lines = chart_lines(chart);
  if (lines.empty()) return "";
  const std::string title = clean_line(chart.title) + ", " + axis_words(chart.by_row ? chart.x : chart.y);
  const bool many = series_of(chart) > kMostTerminalSeries;
  std::string out = shorten(title + (many ? ": report.html draws it" : ""), title_width(width)) + "\n";
  for (const std::string& line : lines)
    out += many ? "" : shorten("    " + line, width > 0 ? width : table_width(0)) + "\n";
  return out;
}

}  // namespace

std::vector<std::string> chart_lines(const SuiteChart& chart) {
  const ChartFrame frame = frame_of(chart);
  std::vector<std::string> lines;
  if (frame.empty) return lines;
  std::vector<std::vector<std::string>> cells;
  for (const ChartPanel& panel : chart.panels) {
    for (const ChartSeries& series : panel.series) {
      const bool panel_named = !chart.by_row && !panel.name.empty();
      const std::string name = (panel_named ? clean_line(panel.name) + ", " : "") + clean_line(series.name);
      cells.push_back({(series.verdict == CaseVerdict::fault ? "✗ " : "") + name,
                       chart.by_row ? strip_of(chart, frame, series) : bars_of(chart, frame, series),
                       range_words(chart, series)});
    }
  }
  for (const TableLine& line : table_lines({"", "", ""}, cells, "", 1 << 20)) lines.push_back(line.text);
  for (const ChartMark& mark : chart.marks)
    lines.push_back("│ " + clean_line(mark.name) + ": " + value_words(chart.x, mark.at));
  return lines;
}

std::string text_of(const Part& part, bool colour, int width) {
  std::string out;
  std::size_t lines = 0;
  if (part.page) return out;
  switch (part.kind) {
    case Part::Kind::heading:
      return shorten(clean_line(head_words(part)), title_width(width)) + "\n";
    case Part::Kind::prose:
      return wrapped(clean_line(part.text), title_width(width));
    case Part::Kind::list:
      for (const std::string& line : part.lines) {
        if (++lines <= kMostTerminalLines) out += hanging(clean_line(line), title_width(width));
      }
      return lines > kMostTerminalLines ? out + fmt::format("  ({} lines: report.html)\n", lines) : out;
    case Part::Kind::answers:
      for (const Answer& each : part.answers) {
        const std::string text =
            hanging(clean_line(ascii_minus(each.question + " " + each.text)), width > 0 ? title_width(width) : kWhole);
        const bool whole = text.starts_with(each.question);
        out += whole ? painted(each.question, each.css == "ctl" ? "bold" : each.css, colour) +
                           text.substr(each.question.size())
                     : text;
      }
      return out;
    case Part::Kind::code:
      return "    " + clean_line(part.text) + "\n";
    case Part::Kind::table:
      return table_text(part.table, colour, width);
    case Part::Kind::chart:
      return chart_text(part.chart, width);
    case Part::Kind::columns:
      for (const Part& each : part.parts) out += text_of(each, colour, width);
      return out;
    case Part::Kind::fold:
    case Part::Kind::drawing:
      return out;
  }
  return out;
}

std::string text_of(const Section& section, bool colour, int width) {
  std::string out;
  if (section.page) return out;
  for (const Part& part : section.parts) out += text_of(part, colour, width);
  // A chart's title names its axis, too.
  const bool titled = out.empty() || section.title.empty() || section.parts.front().kind == Part::Kind::chart;
  return titled ? out : shorten(clean_line(section.title), title_width(width)) + "\n" + out;
}

void write_figure(Markup& out, const Figure& figure, std::string_view drawing) {
  out.open("figure", {{"class", figure.css}});
  if (!figure.name.empty() || !figure.notes.empty()) {
    out.open("figcaption");
    if (!figure.link.empty())
      out.element("a", {{"href", "#" + figure.link}}, figure.name);
    else if (!figure.name.empty())
      out.element("b", {}, figure.name);
    for (const Note& note : figure.notes) {
      if (!note.text.empty()) out.element("span", {{"class", note.css.empty() ? "sub" : "sub " + note.css}}, note.text);
    }
    out.close();
  }
  out.raw(drawing).close();
}

std::vector<Column> drawn_columns(const char* drawing, const std::vector<std::string>& figures) {
  std::vector<Column> columns{"cell", drawing};
  columns[0].css = "name";
  columns[1].css = "plot";
  columns[1].page = true;
  for (const std::string& figure : figures) columns.push_back(numbers(figure));
  return columns;
}

// Charts of suites: lines in small panels, or rows of dots.

namespace {

constexpr std::size_t kSeriesColours = 6;

/// Names of series in the order in which they come: each has its colour and dashes in every panel.
std::vector<std::string> names_of(const SuiteChart& chart) {
  std::vector<std::string> names;
  for (const ChartPanel& panel : chart.panels) {
    for (const ChartSeries& series : panel.series) {
      add_value(names, series.name);
    }
  }
  return names;
}

std::string css_of(const ChartSeries& series, const std::vector<std::string>& names) {
  if (series.verdict == CaseVerdict::fault) return "bad";
  const auto place = static_cast<std::size_t>(std::ranges::find(names, series.name) - names.begin());
  return fmt::format("c{}", place % kSeriesColours);
}

void write_keys(Markup& out, const SuiteChart& chart, const std::vector<std::string>& names) {
  if (names.empty() && chart.marks.empty()) return;
  out.open("p", {{"class", "keys"}});
  for (const std::string& name : names)
    key(out, "line " + css_of({name, CaseVerdict::good, {}}, names), clean_line(name), true);
  for (const ChartMark& mark : chart.marks)
    key(out, "edge", clean_line(mark.name) + ": " + value_words(chart.x, mark.at));
  out.close();
}

/// "8 ranks: 35.2 us at 32 B, 4100 us at 8 MiB": the ends of each line.
std::string ends_words(const SuiteChart& chart, const ChartPanel& panel) {
  std::string text;
  for (const ChartSeries& series : panel.series) {
    if (series.points.empty()) continue;
    const auto at = [&](const ChartPoint& point) {
      return value_words(chart.y, point.y) + " at " + value_words(chart.x, point.x);
    };
    text += (text.empty() ? "" : "; ") + clean_line(series.name) + ": " + at(series.points.front());
    if (series.points.size() > 1) text += ", " + at(series.points.back());
  }
  return text + ".";
}

Plot plot_of(const SuiteChart& chart, const ChartPanel& panel, const ChartFrame& frame,
             const std::vector<std::string>& names) {
  const bool alone = chart.panels.size() == 1;
  Plot plot{.title = clean_line(panel.name.empty() ? chart.title : panel.name),
            .description = ends_words(chart, panel),
            .small = !alone,
            .x = frame.x,
            .y = frame.y,
            .x_ticks = ticks_of(chart.x, frame.x, alone ? 6 : 4),
            .y_ticks = ticks_of(chart.y, frame.y, alone ? 6 : 4),
            .x_name = axis_words(chart.x),
            .y_name = axis_words(chart.y),
            .x_log = chart.x.log,
            .y_log = chart.y.log};
  for (const ChartMark& mark : chart.marks) plot.rules.push_back({true, on_axis(chart.x, mark.at), "edge"});
  for (const ChartSeries& series : panel.series) {
    PlotLine line{clean_line(series.name), css_of(series, names), {}};
    for (const ChartPoint& point : series.points) {
      const double x = on_axis(chart.x, point.x), y = on_axis(chart.y, point.y);
      if (std::isfinite(x) && std::isfinite(y)) line.points.push_back({x, y});
    }
    line.dotted = line.points.size() <= kLong;
    if (!line.dotted) line.window = window_over(line.points.size());
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

/// The panel's name, and which of its lines hold a fault: colour alone would not tell.
Figure caption_of(const ChartPanel& panel) {
  std::string wrong;
  for (const ChartSeries& series : panel.series) {
    if (series.verdict == CaseVerdict::fault) wrong += (wrong.empty() ? "" : ", ") + clean_line(series.name);
  }
  return {clean_line(panel.name), "", {Note(wrong.empty() ? "" : "✗ " + wrong, "t-bad")}};
}

std::string panels(const SuiteChart& chart, const ChartFrame& frame) {
  const std::vector<std::string> names = names_of(chart);
  Markup out;
  write_keys(out, chart, names);
  out.open("div", {{"class", chart.panels.size() == 1 ? "one" : "small"}});
  for (const ChartPanel& panel : chart.panels)
    write_figure(out, caption_of(panel), plot_drawing(plot_of(chart, panel, frame, names)));
  return out.take();
}

DataRow row_of_dots(const SuiteChart& chart, const ChartSeries& series, const Scale& scale) {
  const bool fault = series.verdict == CaseVerdict::fault;
  const std::string css = fault ? "bad" : series.verdict == CaseVerdict::undecided ? "und" : "c0";
  std::vector<double> values;
  for (const ChartPoint& point : series.points) values.push_back(point.x);
  std::ranges::sort(values);
  const double middle = median_of_sorted(values);
  const std::string most = values.empty() ? "—" : value_words(chart.x, values.back()),
                    half = values.empty() ? "—" : value_words(chart.x, middle);
  Strip strip(scale, fmt::format("{}: median {}, at most {}", clean_line(series.name), half, most),
              counted(std::ssize(values), "value"));
  strip.span(scale.low, scale.high, "grid");
  for (const ChartMark& mark : chart.marks) strip.rule(on_axis(chart.x, mark.at), "edge");
  for (const double value : values) {
    const double at = on_axis(chart.x, value);
    std::isfinite(at) ? strip.value(at, "seed " + css, 50) : strip.mark(at, "dot", css);
  }
  return {{Datum((fault ? "✗ " : "") + clean_line(series.name)).in(fault ? "t-bad" : ""), Datum().drawn(strip.take()),
           half, most}};
}

void write_rows_of_dots(Markup& out, const SuiteChart& chart, const ChartFrame& frame) {
  const Scale scale{frame.x.low, frame.x.high, 1, 99};
  write_keys(out, chart, {});
  Table table{.css = "rows dots",
              .columns = drawn_columns("", {"median", "at most"}),
              .rows = {},
              .foot = axis_drawing(scale, ticks_of(chart.x, frame.x, 6), axis_words(chart.x), "", "")};
  table.columns[0].head = "";
  table.columns[1].head = axis_words(chart.x);
  for (const ChartPanel& panel : chart.panels) {
    const std::size_t first = table.rows.size();
    for (const ChartSeries& series : panel.series) table.rows.push_back(row_of_dots(chart, series, scale));
    if (first < table.rows.size()) table.rows[first].group = clean_line(panel.name);
  }
  write_part(out, tabled(std::move(table)));
}

}  // namespace

std::string chart_drawing(const SuiteChart& chart) {
  const ChartFrame frame = frame_of(chart);
  if (frame.empty) return "";
  if (!chart.by_row) return panels(chart, frame);
  Markup out;
  write_rows_of_dots(out, chart, frame);
  return out.take();
}

// What suites give.

Table table_of(const SuiteTable& given) {
  Table table{.css = "given", .columns = {}, .rows = {}, .folded = given.folded};
  for (const TableColumn& column : given.columns) {
    table.columns.emplace_back(name_with_unit(column.head, column.unit));
    table.columns.back().numbers = column.numbers;
  }
  for (const TableRow& row : given.rows) {
    table.rows.emplace_back();
    table.rows.back().fault = row.verdict == CaseVerdict::fault;
    const char* const box = row.verdict == CaseVerdict::good        ? ""
                            : row.verdict == CaseVerdict::undecided ? "t-und"
                                                                    : "t-bad";
    for (const std::string& cell : row.cells) table.rows.back().cells.push_back(Datum(clean_line(cell)).in(box));
  }
  return table;
}

std::vector<Section> sections_of(const std::vector<SuiteTable>& tables, const std::vector<SuiteChart>& charts) {
  std::vector<Section> first, drawn, last;
  Section* folds = nullptr;  // folded ones that follow each other share a section
  for (const SuiteTable& given : tables) {
    const Table table = table_of(given);
    const std::string title = clean_line(given.title), why = clean_line(given.why);
    std::vector<Section>& all = has_fault(table) ? first : last;
    if (!table.folded || has_fault(table)) {
      all.push_back({"table-" + slug(title), title, why, {tabled(table)}});
      if (&all == &last) folds = nullptr;
      continue;
    }
    if (folds == nullptr) folds = &last.emplace_back(Section{"every-figure", "All figures", "", {}});
    folds->parts.push_back(
        fold(title, why.empty() ? std::vector{tabled(table)} : std::vector{prose(why), tabled(table)}));
  }
  for (const SuiteChart& chart : charts) {
    if (!chart_lines(chart).empty())
      drawn.push_back({"chart-" + slug(chart.title), clean_line(chart.title), clean_line(chart.why), {charted(chart)}});
  }
  first.insert(first.end(), drawn.begin(), drawn.end());
  first.insert(first.end(), last.begin(), last.end());
  return first;
}

}  // namespace lockstep
