#include "reports/grid_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/grid.h"
#include "reports/headline.h"
#include "reports/numbers.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {
namespace {

constexpr int kLongest = 2000;

/// "≠ −0.094 ± 0.020 ✗": the mark at the end says that it is not what was expected.
std::string place_words(const Results& results, const CellResult* cell, int decimals, bool with_terms) {
  if (!cell) return "—";
  if (cell->anchor) return "reference";
  const VerdictStyle& style = style_of(cell->verdict);
  std::string text = std::string(style.symbol) + " ";
  if (cell->failure || !cell->outcome)
    text += style.words;
  else
    text += difference_and_half(cell->outcome->primary, decimals);
  if (const std::string terms = own_terms(results, *cell); with_terms && !terms.empty() && !cell->failure)
    text += " (" + terms + ")";
  return text + (is_as_expected(*cell) ? "" : " ✗");
}

std::string caption(const Results& results, const AnswerGrid& grid) {
  const bool alike = common_level(results).has_value();
  return fmt::format(
      "{}, difference to {} ± half of the {}, {}; margin ± {:g}; = equivalent, ≠ divergent, ? undecided",
      metric_words(results.primary.metric), held_against(results, grid),
      alike ? interval_name(results) : "interval at each cell's own level", pairs_words(results),
      results.primary.margin);
}

/// Empty if it is wider than that.
std::string table_of(const Results& results, const AnswerGrid& grid, int width, bool with_terms) {
  const int decimals = decimals_for(results.primary.margin);
  std::vector<std::vector<std::string>> lines;
  lines.push_back({clean_line(grid.row_axis)});
  for (const std::string& column : grid.columns)
    lines.front().push_back(setting_words(grid.column_axis, column));
  for (std::size_t row = 0; row < grid.rows.size(); ++row) {
    lines.push_back({name_words(grid.rows[row])});
    for (const CellResult* cell : grid.cells[row])
      lines.back().push_back(place_words(results, cell, decimals, with_terms));
  }
  std::vector<int> widths(lines.front().size(), 0);
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], display_width(line[i]));
  }
  std::string out;
  for (const auto& line : lines) {
    std::string text = "  ";
    for (std::size_t i = 0; i < line.size(); ++i) text += pad_right(line[i], widths[i]) + "   ";
    text.erase(text.find_last_not_of(' ') + 1);
    if (display_width(text) > width) return "";
    out += text + "\n";
  }
  return out;
}

}  // namespace

std::string grid_text(const Results& results, int width) {
  const std::optional<AnswerGrid> grid = grid_of(results);
  const std::optional<Headline> headline = headline_of(results);
  if (!grid || !headline) return "";
  std::string out;
  for (const std::string& sentence : headline->sentences) out += wrapped(sentence, width);
  std::string table = table_of(results, *grid, width, true);
  // The heading then says that cells differ in n and level, and the other reports in what.
  if (table.empty()) table = table_of(results, *grid, width, false);
  if (!table.empty()) out += table + wrapped(caption(results, *grid), width);
  return ascii_minus(out);
}

std::string grid_markdown(const Results& results) {
  const std::optional<AnswerGrid> grid = grid_of(results);
  const std::optional<Headline> headline = headline_of(results);
  if (!grid || !headline) return "";
  const auto md = [](std::string_view text) { return escape_markdown(short_line(text, kLongest)); };
  std::string out;
  for (const std::string& sentence : headline->sentences) out += "- **" + md(sentence) + "**\n";
  for (const Answer& answer : headline->answers)
    out += "- " + md(answer.question) + " " + md(answer.text) + "\n";
  out += "\n| " + md(grid->row_axis) + " |";
  std::string rule = "|---|";
  for (const std::string& column : grid->columns) {
    out += " " + md(setting_words(grid->column_axis, column)) + " |";
    rule += "---|";
  }
  out += "\n" + rule + "\n";
  for (std::size_t row = 0; row < grid->rows.size(); ++row) {
    out += "| " + md(grid->rows[row]) + " |";
    for (const CellResult* cell : grid->cells[row])
      out += " " + md(place_words(results, cell, decimals_for(results.primary.margin), true)) + " |";
    out += "\n";
  }
  return out + "\n" + md(caption(results, *grid)) + ".\n\n";
}

}  // namespace lockstep
