// The gradient noise scale by step, a drawing for each kind of negatives.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/verdict/results/rate_scaling.h"
#include "reports/grid.h"
#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/plots/chart.h"
#include "reports/plots/curve_data.h"
#include "reports/text.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostCurves = 6;
constexpr double kNoiseLinePx = 14, kNoiseLabelPx = 12;

struct Family {
  std::string heading;
  std::vector<const CellResult*> cells;
};

std::string heading_of(const Results& results, const CellResult& cell) {
  std::string heading = "all cells";
  for (const auto& [key, value] : cell.config) {
    if (key == "negatives") heading = setting_words(key, value);
  }
  return heading + (is_of_grown_batch(results, cell) ? ", the batch grows" : "");
}

std::vector<Family> families_of(const Results& results) {
  std::vector<Family> families;
  for (const CellResult& cell : results.cells) {
    if (!cell.noise_scale || !is_judged(cell) || cell.power_control) continue;
    const std::string heading = heading_of(results, cell);
    auto found =
        std::find_if(families.begin(), families.end(), [&](const Family& f) { return f.heading == heading; });
    if (found == families.end()) found = families.insert(families.end(), {heading, {}});
    found->cells.push_back(&cell);
  }
  return families;
}

/// The caveat of the first cell, and whose it is if others have another.
std::string caveat_of(const Family& family) {
  const CellResult& first = *family.cells.front();
  const std::string caveat = clean_line(first.noise_scale->caveat);
  const auto same = [&first](const CellResult* cell) {
    return cell->noise_scale->caveat == first.noise_scale->caveat;
  };
  if (std::all_of(family.cells.begin(), family.cells.end(), same))
    return caveat.empty() ? "Rows are independent examples of one objective: the theory applies." : caveat;
  return name_words(first.scenario) + ": " + caveat;
}

/// Smallest and largest of what is drawn, as powers of ten.
std::pair<double, double> range_of(const std::vector<Family>& families) {
  double low = INFINITY, high = -INFINITY;
  for (const Family& family : families) {
    for (const CellResult* cell : family.cells) {
      for (const double value : cell->noise_scale->batch_at) {
        if (!std::isfinite(value) || value <= 0) continue;
        low = std::min(low, std::log10(value)), high = std::max(high, std::log10(value));
      }
      if (cell->noise_scale->big_batch > 0) {
        low = std::min(low, std::log10(cell->noise_scale->big_batch));
        high = std::max(high, std::log10(cell->noise_scale->big_batch));
      }
    }
  }
  if (!(low <= high)) return {0, 2};
  return {std::floor(low), std::max(std::ceil(high), std::floor(low) + 1)};
}

std::vector<std::pair<double, double>> points_of(const Chart& chart, const NoiseScale& n) {
  std::vector<std::pair<double, double>> points;
  for (std::size_t i = 0; i < std::min(n.at.size(), n.batch_at.size()); ++i) {
    if (std::isfinite(n.batch_at[i]) && n.batch_at[i] > 0)
      points.emplace_back(chart.x(static_cast<double>(n.at[i])), chart.y(std::log10(n.batch_at[i])));
  }
  return points;
}

void draw_names(Markup& out, const Chart& chart,
                std::vector<std::pair<double, std::pair<std::string, std::string>>> ends) {
  std::stable_sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<double> wanted;
  for (const auto& end : ends) wanted.push_back(end.first);
  const std::vector<double> centres =
      push_apart(wanted, std::vector<double>(ends.size(), kNoiseLinePx), chart.top, chart.floor());
  for (std::size_t i = 0; i < ends.size(); ++i) {
    out.empty("path", {{"class", "leader"},
                       {"d", fmt::format("M{} {}L{} {}", px(chart.edge() + 2), px(wanted[i]),
                                         px(chart.edge() + 10), px(centres[i]))}});
    line(out, "line " + ends[i].second.first, chart.edge() + 12, centres[i], chart.edge() + 34, centres[i]);
    text(out, "lab", chart.edge() + 38, centres[i] + 4, ends[i].second.second);
  }
}

std::string family_plot(const Family& family, std::pair<double, double> range, double last_step) {
  Chart chart{580, 250, 52, 60, 10, 42, {}, {}};
  for (const CellResult* cell : family.cells)
    chart.right = std::clamp(text_width_px(name_words(cell->scenario), kNoiseLabelPx) + 44, chart.right, 200.0);
  place(chart, 0, last_step, range.first, range.second);
  Markup out;
  std::string description = "Noise scale over all steps:";
  for (const CellResult* cell : family.cells)
    description +=
        fmt::format(" {} {};", name_words(cell->scenario), compact_number(cell->noise_scale->batch));
  open_chart(out, chart, "Gradient noise scale by step", description);
  draw_y_axis(out, chart, powers_of_ten(range.first, range.second));
  std::vector<Tick> ticks;
  for (const double step : step_ticks(last_step, 7).values)
    ticks.push_back({step, fmt::format("{:.0f}", step)});
  draw_x_axis(out, chart, ticks, "step");
  if (const int batch = family.cells.front()->noise_scale->big_batch; batch > 0) {
    const double y = chart.y(std::log10(batch));
    line(out, "edge", chart.left, y, chart.edge(), y);
    text(out, "tick end", chart.edge() - 4, y + 14, fmt::format("global batch {}", batch));
  }
  std::vector<std::pair<double, std::pair<std::string, std::string>>> ends;
  for (std::size_t i = 0; i < std::min(family.cells.size(), kMostCurves); ++i) {
    const auto points = points_of(chart, *family.cells[i]->noise_scale);
    if (points.empty()) continue;
    const std::string css = "c" + std::to_string(i);
    out.empty("path", {{"class", "line " + css}, {"d", path_through(points)}});
    std::string name = name_words(family.cells[i]->scenario);
    for (int columns = display_width(name); columns > 1 && text_width_px(name, kNoiseLabelPx) > chart.right - 42;)
      name = shorten(name, --columns);
    ends.push_back({points.back().second, {css, name}});
  }
  draw_names(out, chart, ends);
  return out.take();
}

void write_table(Markup& out, const std::vector<Family>& families) {
  out.open("details").element("summary", {}, "Noise scales in numbers");
  open_table(out, "plain",
             {"cell", numbers("rows of a rank, of all"), numbers("noise scale, rows"),
              numbers(level_words(families.front().cells.front()->noise_scale->interval.level) + " interval"),
              numbers("|G|²"), numbers("S"), numbers("steps"),
              "caveat"});
  for (const Family& family : families) {
    for (const CellResult* cell : family.cells) {
      const NoiseScale& n = *cell->noise_scale;
      out.open("tr").element("th", {{"scope", "row"}}, name_words(cell->scenario));
      out.element("td", {{"class", "n"}}, fmt::format("{}, {}", n.small_batch, n.big_batch));
      out.element("td", {{"class", "n"}}, compact_number(n.batch));
      out.element("td", {{"class", "n"}},
                  fmt::format("[{}, {}]", compact_number(n.interval.low), compact_number(n.interval.high)));
      out.element("td", {{"class", "n"}}, compact_number(n.gradient_squared));
      out.element("td", {{"class", "n"}}, compact_number(n.noise));
      out.element("td", {{"class", "n"}}, std::to_string(n.steps));
      out.element("td", {}, clean_line(n.caveat)).close();
    }
  }
  close_table(out);
  out.close();
}

}  // namespace

void write_noise_scale(Markup& out, const Page& page) {
  const std::vector<Family> families = families_of(page.results);
  if (families.empty() || !varies_batch_or_rate_rule(page.results)) return;
  open_section(
      out, "noise-scale", "How noisy are the gradients?",
      "Gradient noise scale in rows (McCandlish et al. 2018), from the ranks' own gradients against the "
      "reduced "
      "one, by block of steps. A batch well below it gains from more rows, a batch well above it hardly. A block "
      "with |G|² not above 0 has no value.");
  double last = 1;
  for (const Family& family : families) {
    for (const CellResult* cell : family.cells) {
      for (const int64_t at : cell->noise_scale->at) last = std::max(last, static_cast<double>(at));
    }
  }
  const auto range = range_of(families);
  out.open("div", {{"class", "two"}});
  for (const Family& family : families) {
    const std::size_t more = family.cells.size() - std::min(family.cells.size(), kMostCurves);
    out.open("figure", {{"class", "panel"}}).open("figcaption");
    out.element("b", {}, family.heading);
    out.element("span", {},
                caveat_of(family) + (more > 0 ? fmt::format(" {} more in the table.", more) : ""));
    out.close().raw(family_plot(family, range, last)).close();
  }
  out.close();
  write_table(out, families);
  out.close();
}

}  // namespace lockstep
