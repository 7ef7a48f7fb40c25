#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/answer/results/suite_results.h"
#include "reports/markup.h"
#include "reports/words.h"

// From values to places on an axis.

namespace lockstep {

/// Maps [low, high] linearly to [from, to].
struct Scale {
  double low = 0, high = 1, from = 0, to = 1;
  double operator()(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

/// The ends of an axis.
struct AxisRange {
  double low = 0, high = 1;
};

/// The nearest range that an axis can run over, which mostly is the one given. An empty one gets the height
/// 1; one whose ends are all but equal is widened about its middle, to a billionth of the larger of them, for
/// finer differences are lost in pixels and labels alike; ends so large that their distance is infinite are
/// moved closer. 0 to 1 if an end is not a number.
AxisRange drawable(double low, double high);

struct Ticks {
  std::vector<double> values;
  int decimals = 0;  ///< that all of them need
  int digits = 6;    ///< significant ones that tell them apart, at least 6
};

/// Round values within [low, high] in steps of 1, 2, 2.5 or 5 times a power of ten: at most `most` and one
/// more, at least 2. The two ends where the range is too narrow for that; none if it is empty or not finite.
Ticks nice_ticks(double low, double high, int most);

/// Round whole numbers within [0, high], for steps.
Ticks step_ticks(double high, int most);

/// One of the ticks' values in as many digits as tell it from the others.
std::string tick_text(double value, const Ticks& ticks);

// A drawing with two axes in pixels: frame, ticks and paths. The caller decides what stands in it.

struct Chart {
  double width = 580, height = 320;
  double left = 52, right = 16, top = 12, bottom = 44;  ///< around the plot
  Scale x, y;                                           ///< to pixels of the drawing; set by place()
  double floor() const { return height - bottom; }
  double edge() const { return width - right; }
};

/// Lets the axes run over these values.
void place(Chart& chart, double x_low, double x_high, double y_low, double y_high);

struct Tick {
  double at = 0;  ///< value on the axis
  std::string text;
};

/// Ticks with their numbers, as many digits as all of them need.
std::vector<Tick> numbered(const Ticks& ticks);

/// Powers of ten within [low, high], both above 0, of a logarithmic axis whose scale takes log10: at most 6.
std::vector<Tick> powers_of_ten(double log_low, double log_high);

/// <svg> with its title and description; the caller closes it.
void open_chart(Markup& out, const Chart& chart, std::string_view title, std::string_view description);

/// Grid lines with their numbers at the left.
void draw_y_axis(Markup& out, const Chart& chart, const std::vector<Tick>& ticks);

/// The floor with its numbers, and the axis's name below them.
void draw_x_axis(Markup& out, const Chart& chart, const std::vector<Tick>& ticks, std::string_view name);

/// A coordinate in tenths of a pixel.
std::string px(double value);

/// "M1 2 3 4": a line through points in pixels, kept near the drawing.
std::string path_through(const std::vector<std::pair<double, double>>& points);

void line(Markup& out, std::string_view css, double x1, double y1, double x2, double y2);
void text(Markup& out, std::string_view css, double x, double y, std::string_view words);

/// A mark in the shape of its series, so that colour alone tells nothing: circle, square, triangle, diamond
/// by `series` 0 to 3 and again; hollow where `hollow`.
void mark(Markup& out, int series, std::string_view css, double x, double y, bool hollow = false);

// What the two row plots share: a table whose middle column is a drawing in percent of its width.

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

// Figures drawn as static SVG. Rows of the two row plots are rows of an HTML table whose middle column is
// drawn in percent of its width: labels and figures wrap as text does, so nothing is cut or overlaps, however
// narrow the page.

/// One row a cell that has an outcome or failed: paired difference, its intervals, the margin, single seeds,
/// the verdict. Power controls stand last.
std::string forest_plot(const Results& results);

/// One row a cell: the share of the floating-point band that its gradients used, on a logarithmic axis; 1 is
/// the edge.
std::string band_plot(const Results& results);

/// Median and band over seeds of one metric by step, cells against their reference. Up to six cells share a
/// panel; more get a small panel each. Empty if no cell or reference has a curve of that metric.
std::string curve_panels(const Results& results, std::string_view metric);

/// Metrics that have curves, loss over log N and accuracies first.
std::vector<std::string> curve_metrics(const Results& results);

// A suite's chart as it stands on the page: lines in small panels, or rows of dots.

/// The drawing with its legend, without title and explanation. Empty if there is no point to draw.
std::string chart_drawing(const SuiteChart& chart);

// The axes of a suite's chart, which all of its panels share, whether they are drawn or typed.

/// Where a value stands on the axis: itself, or its decimal logarithm; -infinity of what has none.
double on_axis(const ChartAxis& axis, double value);

struct ChartFrame {
  AxisRange x, y;      ///< of on_axis(), with some room at both ends
  bool empty = false;  ///< there is no point to draw
};
ChartFrame frame_of(const SuiteChart& chart);

/// Round values of the axis within its range, about `most` of them.
std::vector<Tick> ticks_of(const ChartAxis& axis, AxisRange range, int most);

/// "bus bandwidth (GB/s)".
std::string axis_words(const ChartAxis& axis);

/// "3.58 GB/s", "8 MiB" of bytes, "0.5" without a unit.
std::string value_words(const ChartAxis& axis, double value);

}  // namespace lockstep
