// Steps to a target: who got there, and after how many samples.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/grid.h"
#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/plots/row_plot.h"
#include "reports/text.h"

namespace lockstep {
namespace {

constexpr double kMostTimes = 4;  ///< what took longer than so many times the reference is shown at the edge

std::string steps_words(double steps) {
  return std::isfinite(steps) ? fmt::format("{:.0f}", steps) : "not reached";
}

/// Samples of the cell over those of its reference, median over pairs; of results that have it not, of the
/// median runs. Infinite where only the reference got there, not a number where neither did.
double times_of(const Results& results, const CellResult& cell) {
  const TargetReach& t = *cell.outcome->target;
  if (t.ratio_n > 0) return t.ratio;
  const ReferenceResult* reference = reference_of(results, cell);
  const double rows = std::max(1, global_batch_of(cell.layout)),
               other = reference ? std::max(1, global_batch_of(reference->layout)) : rows;
  if (!std::isfinite(t.reference_median) || t.reference_median <= 0) return NAN;
  return t.cell_median * rows / (t.reference_median * other);
}

/// "97.9 %: 200 to 250"; empty where there is none.
std::string bounds_words(const Interval& interval, std::string (*words)(double)) {
  if (interval.level <= 0) return "";
  return fmt::format("{:.3g} %: {} to {}", 100 * interval.level, words(interval.low), words(interval.high));
}

std::string reached_words(double times) {
  if (std::isnan(times)) return "—";
  return std::isfinite(times) ? fmt::format("{:.2f}", times) : "not reached";
}

Scale axis_of(const Results& results, const std::vector<std::size_t>& cells) {
  double low = 0.8, high = 1.25;
  for (const std::size_t i : cells) {
    const double times = times_of(results, results.cells[i]);
    if (std::isfinite(times) && times > 0)
      low = std::min(low, std::max(times, 1 / kMostTimes)),
      high = std::max(high, std::min(times, kMostTimes));
  }
  return {std::log2(low) - 0.1, std::log2(high) + 0.1, 0, 100};
}

void draw_times(Markup& out, const CellResult& cell, double times, const Scale& axis) {
  const TargetReach& t = *cell.outcome->target;
  open_row_drawing(
      out, name_words(cell.scenario) + ": samples to the target, over the reference's",
      fmt::format("{} against {} steps", steps_words(t.cell_median), steps_words(t.reference_median)));
  const std::string one = percent(axis(0)), css = row_css(cell, cell.outcome->verdict);
  out.empty("line", {{"x1", one}, {"x2", one}, {"y1", "0"}, {"y2", "100%"}, {"class", "zero"}});
  if (std::isinf(times) || (std::isfinite(times) && std::log2(times) > axis.high)) {
    row_mark(out, 100, "right", css, "50%");
  } else if (std::isfinite(times) && times > 0) {
    const double at = std::max(std::log2(times), axis.low);
    out.empty("line",
              {{"x1", one}, {"x2", percent(axis(at))}, {"y1", "50%"}, {"y2", "50%"}, {"class", "ci " + css}});
    row_mark(out, axis(at), cell.power_control ? "diamond" : "dot", css, "50%");
  }
  out.close();
}

}  // namespace

void write_targets(Markup& out, const Page& page) {
  const Results& results = page.results;
  std::vector<std::size_t> cells;
  for (const std::size_t i : row_order(results)) {
    if (results.cells[i].outcome && results.cells[i].outcome->target) cells.push_back(i);
  }
  if (cells.empty()) return;
  open_section(
      out, "target", "How soon do they reach the target?",
      fmt::format(
          "Samples until {} reached {:g}, relative to the reference, median over pairs of one seed: right of "
          "the line is later. A run that never reached it has no value: an arrowhead "
          "marks that half of the runs did not; a pair in which neither did has no ratio. Below each median "
          "is its interval between two order statistics, with its level. Sooner and later count "
          "pairs; p is that of the sign test.",
          metric_words(results.primary.metric), results.cells[cells.front()].outcome->target->target));
  const Scale axis = axis_of(results, cells);
  open_table(out, "rows power",
             {"cell", "samples, over the reference's", numbers("times"), numbers("steps"),
              numbers("reference"), numbers("reached, of n"),
              numbers("sooner, later, neither"), numbers("p")});
  for (const std::size_t i : cells) {
    const CellResult& cell = results.cells[i];
    const TargetReach& t = *cell.outcome->target;
    const double times = times_of(results, cell);
    out.open("tr");
    row_label(out, cell, page.anchors[i]);
    out.open("td", {{"class", "plot"}});
    draw_times(out, cell, times, axis);
    out.close();
    const auto figure = [&out](std::string_view label, const std::string& text, const std::string& below = "") {
      out.open("td", {{"class", "n"}, {"data-label", std::string(label)}}).text(text);
      if (!below.empty()) out.element("span", {{"class", "sub"}}, below);
      out.close();
    };
    figure("times", reached_words(times), bounds_words(t.ratio_interval, reached_words));
    figure("steps", steps_words(t.cell_median), bounds_words(t.cell_interval, steps_words));
    figure("reference", steps_words(t.reference_median), bounds_words(t.reference_interval, steps_words));
    figure("reached, of n", fmt::format("{}, {} of {}", t.cell_reached, t.reference_reached, t.n));
    figure("sooner, later, neither", fmt::format("{}, {}, {}", t.sooner, t.later, t.tied));
    figure("p", probability_words(t.p));
    out.close();
  }
  close_table(out);
  out.close();
}

}  // namespace lockstep
