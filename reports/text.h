#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/base/text.h"

// Foreign text made safe and measurable: names, errors and log lines can hold anything.

namespace lockstep {

/// clean_text, escaped for element content and for attributes in double quotes, in HTML and XML alike.
std::string escape_markup(std::string_view text);

/// clean_line, escaped for GitHub-flavoured Markdown, table cells included.
std::string escape_markdown(std::string_view text);

/// Columns that `text` takes on a terminal: 2 for wide characters, 0 for combining ones.
int display_width(std::string_view text);

/// `text` cut to at most `width` columns, the last of them an ellipsis if anything was cut.
std::string shorten(std::string_view text, int width);

/// clean_line cut to `width` columns; looks no further into a text of any length than that needs.
std::string short_line(std::string_view text, int width);

/// Words of a paragraph in lines of at most `width` columns, each with its line feed.
std::string wrapped(std::string_view text, int width);

/// The same, with all lines but the first two columns in: nothing that a text holds begins a line.
std::string hanging(std::string_view text, int width);

/// Every U+2212 made a hyphen, as terminals want it.
std::string ascii_minus(std::string text);

/// In a terminal's colour, by the class that pages give it: ok, bad, und, fail, bold; as it is without `colour`.
std::string painted(std::string_view text, std::string_view css, bool colour);

/// `text` followed by spaces up to `width` columns.
std::string pad_right(std::string_view text, int width);

/// "time (us)", clean_line each; without a unit the name alone.
std::string name_with_unit(std::string_view name, std::string_view unit);

/// Lower-case letters, digits and single hyphens: a stable anchor for a name. "cell" if nothing is left.
std::string slug(std::string_view text);

/// Estimated width of `text` in pixels at `font_px`, on the wide side of common sans-serif fonts.
double text_width_px(std::string_view text, double font_px);

// The columns of a table, whatever format it is written in.

struct Column {
  Column(std::string text) : head(std::move(text)) {}
  Column(const char* text) : head(text) {}
  std::string head;
  bool numbers = false;  ///< they are aligned to the right
  bool page = false;     ///< only pages have room for it
  bool below = false;    ///< a terminal shows it in lines below a row that is wrong
  std::string css = {};  ///< of its cells on a page
};

inline Column numbers(std::string head) {
  Column column(std::move(head));
  column.numbers = true;
  return column;
}

// Tables of terminals: columns side by side, never wider than the terminal.

/// Of terminals: nothing is laid out for a narrower one.
constexpr int kNarrowestWidth = 40;

/// Columns that a table may take on a terminal of `width`; 80 where it is unknown (0).
int table_width(int width);

struct TableLine {
  std::string text;
  std::optional<std::size_t> row;  ///< whose it is; none: a head
};

/// Rows of cells in lines of at most `width` columns, each behind `margin`. Where they would be wider, heads are broken, then
/// texts cut with an ellipsis and the first column, the rows' names, broken; columns that still find no room stand in a block of
/// lines below, behind the names again.
/// Heads that are all empty have no line.
std::vector<TableLine> table_lines(const std::vector<Column>& heads, const std::vector<std::vector<std::string>>& rows,
                                   std::string_view margin, int width);

}  // namespace lockstep
