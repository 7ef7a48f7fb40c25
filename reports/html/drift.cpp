// How far rounding alone carries a run from the same run in another arithmetic, step by step.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/plots/chart.h"
#include "reports/text.h"

namespace lockstep {
namespace {

constexpr double kDriftLabelPx = 12;

std::string label_of(const CurveBand& band) {
  return band.metric.starts_with("parameters") ? band.metric : metric_words(band.metric);
}

bool is_drawn(const CurveBand& band, std::size_t i) {
  return band.steps[i] > 0 && std::isfinite(band.high[i]) && band.high[i] > 0;
}

/// Powers of ten around all that is drawn.
std::pair<double, double> range_of(const std::vector<CurveBand>& drift) {
  double low = INFINITY, high = -INFINITY;
  for (const CurveBand& band : drift) {
    for (std::size_t i = 0; i < band.steps.size(); ++i) {
      if (!is_drawn(band, i)) continue;
      high = std::max(high, std::log10(band.high[i]));
      low = std::min(low, std::log10(band.median[i] > 0 ? band.median[i] : band.high[i]));
    }
  }
  if (!(low <= high)) return {-8, -1};
  return {std::floor(low), std::max(std::ceil(high), std::floor(low) + 1)};
}

void draw_band(Markup& out, const Chart& chart, const CurveBand& band, const std::string& css) {
  std::vector<std::pair<double, double>> outline, middle, below;
  for (std::size_t i = 0; i < band.steps.size(); ++i) {
    if (!is_drawn(band, i)) continue;
    const double x = chart.x(std::log10(static_cast<double>(band.steps[i])));
    const auto y = [&](double value) { return value > 0 ? chart.y(std::max(std::log10(value), chart.y.low)) : chart.floor(); };
    outline.emplace_back(x, y(band.high[i]));
    below.emplace_back(x, y(band.low[i]));
    if (band.median[i] > 0) middle.emplace_back(x, y(band.median[i]));
  }
  outline.insert(outline.end(), below.rbegin(), below.rend());
  if (outline.empty()) return;
  out.empty("path", {{"class", "band " + css}, {"d", path_through(outline) + "z"}});
  if (!middle.empty()) out.empty("path", {{"class", "line " + css}, {"d", path_through(middle)}});
}

/// A line of the legend under the drawing's top, a series each.
void draw_legend(Markup& out, const Chart& chart, const std::vector<CurveBand>& drift) {
  double x = chart.left;
  for (std::size_t i = 0; i < drift.size(); ++i) {
    line(out, "line c" + std::to_string(i), x, 8, x + 22, 8);
    text(out, "lab", x + 27, 12, label_of(drift[i]));
    x += 45 + text_width_px(label_of(drift[i]), kDriftLabelPx);
  }
}

std::string drift_plot(const std::vector<CurveBand>& drift) {
  Chart chart{580, 270, 52, 16, 26, 42, {}, {}};
  double last = 10;
  for (const CurveBand& band : drift) {
    if (!band.steps.empty()) last = std::max(last, static_cast<double>(band.steps.back()));
  }
  const auto [low, high] = range_of(drift);
  place(chart, 0, std::log10(last), low, high);
  Markup out;
  open_chart(out, chart, "Distance by step", "Both axes are logarithmic. Distances of 0 are not drawn.");
  draw_y_axis(out, chart, powers_of_ten(low, high));
  draw_x_axis(out, chart, powers_of_ten(0, std::log10(last)), "step");
  for (std::size_t i = 0; i < drift.size(); ++i) draw_band(out, chart, drift[i], "c" + std::to_string(i));
  draw_legend(out, chart, drift);
  out.close();
  return out.take();
}

void write_row(Markup& out, const CellResult& cell, const CurveBand& band) {
  const std::size_t last = band.steps.size() - 1;
  const auto worst = std::ranges::max_element(band.high);
  const auto apart = std::ranges::find_if(band.high, [](double value) { return value > 0; });
  const auto step_at = [&band](auto found) {
    return std::to_string(band.steps[static_cast<std::size_t>(found - band.high.begin())]);
  };
  out.open("tr").element("th", {{"scope", "row"}}, name_words(cell.scenario)).element("td", {}, label_of(band));
  out.element("td", {{"class", "n"}}, apart == band.high.end() ? "never" : step_at(apart));
  out.element("td", {{"class", "n"}}, compact_number(*worst)).element("td", {{"class", "n"}}, step_at(worst));
  out.element("td", {{"class", "n"}}, std::to_string(band.steps[last]));
  out.element("td", {{"class", "n"}}, compact_number(band.median[last]));
  out.element("td", {{"class", "n"}},
              fmt::format("{} to {}", compact_number(band.low[last]), compact_number(band.high[last])));
  out.close();
}

void write_table(Markup& out, const std::vector<const CellResult*>& cells) {
  open_table(out, "plain",
             {"cell", "distance of", numbers("first above 0 at step"), numbers("largest"), numbers("at step"),
              numbers("last step"), numbers("median there"), numbers("over the seeds")});
  for (const CellResult* cell : cells) {
    for (const CurveBand& band : cell->drift) {
      if (!band.steps.empty()) write_row(out, *cell, band);
    }
  }
  close_table(out);
}

}  // namespace

void write_drift(Markup& out, const Page& page) {
  std::vector<const CellResult*> cells;
  for (const CellResult& cell : page.results.cells) {
    if (!cell.drift.empty()) cells.push_back(&cell);
  }
  if (cells.empty()) return;
  open_section(out, "drift", "How far apart does rounding alone drive two runs?",
               "The same process, batch, samples and draws in two arithmetics, seed by seed. Parameters: their distance relative to "
               "their norm, before the step; parameters whose gradient is zero by symmetry are separate, because only rounding moves "
               "them (under Adam as far as any other). The rest: absolute differences. Lines are medians over the seeds, "
               "bands reach from the smallest to the largest. A larger difference between layouts is not due to rounding.");
  out.open("div", {{"class", "two"}});
  for (const CellResult* cell : cells) {
    out.open("figure", {{"class", "panel"}}).open("figcaption");
    out.element("b", {}, name_words(cell->scenario)).element("span", {}, "against " + name_words(cell->reference));
    out.close().raw(drift_plot(cell->drift)).close();
  }
  out.close();
  write_table(out, cells);
  out.close();
}

}  // namespace lockstep
