#pragma once

#include <cmath>
#include <optional>
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

/// The range of points, grown value by value.
struct Reach {
  double low = HUGE_VAL, high = -HUGE_VAL;
  void take(double at);
  bool empty() const { return low > high; }
  /// Whole powers of ten around it, of logarithms.
  AxisRange decades(AxisRange otherwise) const;
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

struct Tick {
  double at = 0;  ///< value on the axis
  std::string text;
};

/// Ticks with their numbers, as many digits as all of them need.
std::vector<Tick> numbered(const Ticks& ticks);

/// Powers of ten within [low, high], both above 0, of a logarithmic axis whose scale takes log10: at most 6.
std::vector<Tick> powers_of_ten(double log_low, double log_high);

// A drawing with two axes. All values are those of the axes: of a logarithmic one, logarithms.

struct PlotPoint {
  double x = 0, y = 0, low = NAN, high = NAN;  ///< y: of the line, NAN: none there; low and high: of its band
  bool hollow = false;
};

struct PlotLine {
  std::string name, css;          ///< css: ref, c0 to c5, or a verdict's
  std::vector<PlotPoint> points;  ///< one alone is a mark, its band a bar
  bool dotted = false, dashed = false;
  std::string label = {}, note = {};  ///< at the line's end; empty: none
  std::size_t window = 0;  ///< of the moving median that is drawn, every point pale behind it; 0: none
};

/// From edge to edge where an end is infinite.
struct PlotArea {
  double x_low, x_high, y_low, y_high;
  const char* css;
};

struct PlotRule {
  bool upright;
  double at;
  const char* css;
  std::string words = {};
};

/// A pole below the axis with a bead for each of its lines.
struct PlotFlag {
  double at;
  std::string title;
  std::vector<std::string> beads;  ///< their classes
};

struct Plot {
  std::string title, description;
  bool small = false, many = false;  ///< one of many is looked at for its shape
  AxisRange x, y;
  std::vector<Tick> x_ticks, y_ticks;
  std::string x_name = {}, y_name = {};
  bool x_log = false, y_log = false;
  std::vector<PlotArea> areas = {};
  std::vector<PlotLine> lines = {};  ///< the first is drawn last
  std::vector<PlotRule> rules = {};
  std::vector<PlotFlag> flags = {};
  bool flagged = false;  ///< room for flags below the axis, also where there are none
};
/// Labels without the words that all share, no two alike.
std::vector<std::string> told_apart(std::vector<std::string> names);

/// Static SVG, of the same size whatever it shows.
std::string plot_drawing(const Plot& plot);

constexpr std::size_t kLong = 60;  ///< more points are noise where they jump
/// Of a moving median over so many points: 2 % of them, an odd number.
constexpr std::size_t window_over(std::size_t points) { return std::max<std::size_t>(5, points / 100 * 2 + 1); }

/// At most about 3 * `columns` points: of each column the first, smallest, largest and last median, and the
/// whole band.
std::vector<PlotPoint> thin(const std::vector<PlotPoint>& points, int columns);

/// Places labels of the given heights around the wanted centres without overlap, moved as little as may be,
/// inside [top, bottom]. `wanted` is in rising order; so is the result.
std::vector<double> push_apart(const std::vector<double>& wanted, const std::vector<double>& heights, double top,
                               double bottom);

/// Whole steps from 0.
std::vector<Tick> step_axis(double last, int most);

/// A line of the legend; of a series its name, which a click hides.
void key(Markup& out, std::string_view css, std::string_view words, bool series = false);

// Rows of a table with a drawing in each.

/// Cells in the order of the row plots: as configured, but by the columns of the grid if there is one; then
/// those whose batch grew, power controls and A/A pairs; those that are their own reference stand in no row.
std::vector<std::size_t> row_order(const Results& results);

/// The drawing of one row in percent of its width: labels and figures beside it wrap as text does, so nothing is cut or
/// overlaps, however narrow the page. `title` is for readers of screens and for the pointer.
class Strip {
 public:
  Strip(const Scale& axis, std::string_view title, std::string_view description, double middle = 50,
        const char* css = "row");
  /// The margin.
  Strip& area(double from, double to);
  /// A line from top to bottom.
  Strip& rule(double at, std::string_view css);
  /// A line over an interval, cut at the ends of the axis, with caps at the ends that are inside.
  Strip& span(double from, double to, const std::string& css, bool capped = false);
  /// A single value; nothing off scale.
  Strip& value(double at, const std::string& css, double y);
  /// "dot", "ring", "diamond"; an arrowhead at the edge where it is off scale.
  Strip& mark(double at, std::string_view shape, const std::string& css);
  /// With words in place of marks, if there are any.
  std::string take(std::string_view nothing = "");

 private:
  Scale axis_;
  std::string y_;
  Markup out_;
};

/// A bar of parts, each a share of the whole in its colour.
std::string bar_drawing(const std::vector<std::pair<double, std::string>>& parts, const char* css = "bar wide");

/// The axis below the rows, with words at both of its ends.
std::string axis_drawing(const Scale& axis, const std::vector<Tick>& ticks, std::string_view name,
                         std::string_view left, std::string_view right);

/// The css class of a row's marks: the verdict's, "ctl" for a power control that was caught, "aa" for an A/A
/// pair.
std::string row_css(const CellResult& cell, VerdictKind kind);

/// Median and band over seeds of one metric by step, cells against their reference. Up to six cells share a
/// panel; more get a small panel each. Empty if no cell or reference has a curve of that metric.
std::string curve_panels(const Results& results, std::string_view metric);

// Curves made ready to draw: finite, thinned, in one common frame.

struct Curve {
  std::string name;
  std::string label;               ///< at the line's end: what stands above the panel is left out of the name
  std::string anchor;              ///< of the cell; empty: a reference
  std::string css;                 ///< ref, or c0 to c5
  std::vector<PlotPoint> points;   ///< by step; only points whose median is finite
  int64_t last_step = 0;
  const Divergence* divergence = nullptr;  ///< of a cell whose mechanism diverged
  std::string reference;                   ///< name of the cell's reference
  double rows_a_step = 1;                  ///< where the axis counts samples: steps are multiplied by this
  std::optional<double> chance = {};       ///< of the runs' data
  bool is_reference() const { return anchor.empty(); }
};

/// Cells that share an axis: those whose batch grew over one reference are drawn by samples, because a step
/// of theirs takes more rows.
struct CurveGroup {
  std::string reference;  ///< empty: all cells of their reference's batch, by steps
  bool by_samples() const { return !reference.empty(); }
};

/// Curves of one metric: references that have one first, then the cells. A/A pairs and cells that are their
/// own reference have none.
std::vector<Curve> curves_of(const Results& results, std::string_view metric, const CurveGroup& group = {});

struct CurveFrame {
  double last_step = 1;   ///< right edge
  double common_end = 0;  ///< last step of the longest curve
  double low = 0, high = 1;
  std::optional<double> off_low, off_high;  ///< furthest values outside, if there are any
  double chance = -1;
  bool by_samples = false;  ///< the axis counts samples
  bool log = false;         ///< low and high are logarithms
  std::size_t window = 0;   ///< of the moving median, where a curve is long and noisy
  double at(double value) const { return log ? std::log10(value) : value; }
};

/// What all panels of a metric show: references whole; a cell that leaves them by more than their height runs
/// off the frame. Logarithmic where all values are positive and span more than a factor of 100.
CurveFrame frame_of(const std::vector<Curve>& curves, std::string_view metric, int64_t steps);

/// Metrics that have curves, loss over log N and accuracies first.
std::vector<std::string> curve_metrics(const Results& results);

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

/// "8 MiB".
std::string bytes_words(double bytes);

/// "bus bandwidth (GB/s)".
std::string axis_words(const ChartAxis& axis);

/// "3.58 GB/s", "8 MiB" of bytes, "0.5" without a unit.
std::string value_words(const ChartAxis& axis, double value);

}  // namespace lockstep
