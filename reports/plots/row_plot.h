#pragma once
// What the two row plots share: a table whose middle column is a drawing in percent of its width.

#include <string>
#include <vector>

#include "reports/markup.h"
#include "reports/plots/scale.h"
#include "reports/words.h"

namespace lockstep {

/// Cells in the order of the row plots: as configured, but by the columns of the grid if there is one; then
/// those whose batch grew, power controls and A/A pairs; those that are their own reference stand in no row.
std::vector<std::size_t> row_order(const Results& results);

/// First column: the cell's name, linked to its row in the table of mechanisms, and a mark if it is a power
/// control.
void row_label(Markup& out, const CellResult& cell, const std::string& anchor);

/// Last column: symbol and words of `kind`, and below them what was expected.
void row_verdict(Markup& out, const CellResult& cell, VerdictKind kind);

/// Opens the drawing of one row, `title` for readers of screens and for the pointer.
void open_row_drawing(Markup& out, std::string_view title, std::string_view description);

/// A mark of a fixed shape and size at x percent: "dot", "diamond", "left" or "right" (off scale).
void row_mark(Markup& out, double x_percent, std::string_view shape, std::string_view css,
              std::string_view y = "42%");

/// Text on the axis at x percent.
void axis_label(Markup& out, double x_percent, std::string_view text);

/// The css class of a row's marks: the verdict's, "ctl" for a power control that was caught, "aa" for an A/A
/// pair.
std::string row_css(const CellResult& cell, VerdictKind kind);

}  // namespace lockstep
