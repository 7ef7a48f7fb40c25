#pragma once
// Tables of terminals: columns side by side, never wider than the terminal.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/columns.h"

namespace lockstep {

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

/// The same as one text. The first row holds the heads; the first column stands to the left, the others to the right.
std::string aligned_columns(const std::vector<std::vector<std::string>>& rows, std::string_view margin, int width);

}  // namespace lockstep
