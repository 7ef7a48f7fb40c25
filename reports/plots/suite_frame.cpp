#include "reports/plots/suite_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/base/special_values.h"
#include "reports/text.h"

namespace lockstep {
namespace {

constexpr double kRoom = 0.04;       ///< beyond the outermost points, of the axis
constexpr double kLeastDecades = 1;   ///< of a logarithmic axis

/// The range of points, grown value by value.
struct Reach {
  double low = kInfinity, high = -kInfinity;
  void take(double at) {
    if (!std::isfinite(at)) return;
    low = std::min(low, at);
    high = std::max(high, at);
  }
  bool empty() const { return low > high; }
};

AxisRange with_room(const ChartAxis& axis, Reach reach) {
  if (reach.empty()) return {0, 1};
  if (!axis.log) reach.take(0);
  if (const double lacking = kLeastDecades - (reach.high - reach.low); axis.log && lacking > 0) {
    reach.low -= lacking / 2;
    reach.high += lacking / 2;
  }
  const double room = kRoom * (reach.high - reach.low);
  return drawable(!axis.log && reach.low == 0 ? 0 : reach.low - room, reach.high + room);
}

std::string axis_bytes_words(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) bytes /= 1024, ++unit;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

std::vector<Tick> powers_of_two(AxisRange range, int most) {
  const double per_power = std::log10(2.0);
  const int first = static_cast<int>(std::ceil(range.low / per_power)), last = static_cast<int>(std::floor(range.high / per_power));
  int stride = 1;
  for (const int wider : {2, 5, 10, 20, 50}) {
    if ((last - first) / stride > most) stride = wider;
  }
  std::vector<Tick> ticks;
  for (int power = first; power <= last; ++power) {
    if (power % stride == 0) ticks.push_back({power * per_power, axis_bytes_words(std::exp2(power))});
  }
  return ticks;
}

/// 1, 2 and 5 times the powers of ten, where the powers alone are too few.
std::vector<Tick> ones_twos_and_fives(AxisRange range) {
  std::vector<Tick> ticks;
  for (int power = static_cast<int>(std::floor(range.low)); power <= static_cast<int>(std::floor(range.high)); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = power + std::log10(factor);
      if (at >= range.low && at <= range.high) ticks.push_back({at, fmt::format("{:g}", factor * std::pow(10.0, power))});
    }
  }
  return ticks;
}

}  // namespace

double on_axis(const ChartAxis& axis, double value) {
  if (!axis.log) return value;
  return value > 0 ? std::log10(value) : -kInfinity;
}

ChartFrame frame_of(const SuiteChart& chart) {
  Reach x, y;
  for (const ChartPanel& panel : chart.panels) {
    for (const ChartSeries& series : panel.series) {
      for (const ChartPoint& point : series.points) {
        x.take(on_axis(chart.x, point.x));
        y.take(on_axis(chart.y, point.y));
      }
    }
  }
  const bool empty = x.empty() || (!chart.by_row && y.empty());
  for (const ChartMark& mark : chart.marks) x.take(on_axis(chart.x, mark.at));
  return {with_room(chart.x, x), with_room(chart.y, y), empty};
}

std::vector<Tick> ticks_of(const ChartAxis& axis, AxisRange range, int most) {
  if (!axis.log) return numbered(nice_ticks(range.low, range.high, most));
  if (axis.unit == "B") return powers_of_two(range, most);
  std::vector<Tick> ticks = powers_of_ten(range.low, range.high);
  return ticks.size() >= 2 ? ticks : ones_twos_and_fives(range);
}

std::string axis_words(const ChartAxis& axis) { return name_with_unit(axis.name, axis.unit); }

std::string value_words(const ChartAxis& axis, double value) {
  if (axis.unit == "B") return axis_bytes_words(value);
  // Three digits say it; of large numbers all before the point.
  const std::string number = std::abs(value) >= 1000 && std::abs(value) < 1e7 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
  return number + (axis.unit.empty() ? "" : " " + clean_line(axis.unit));
}

}  // namespace lockstep
