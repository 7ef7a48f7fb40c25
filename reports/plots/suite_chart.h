#pragma once

#include <string>
#include <vector>

#include "harness/verdict/results/suite_results.h"
#include "reports/plots/chart.h"

// A suite's chart as it stands on the page: lines in small panels, or rows of dots.

namespace lockstep {

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
