// How the paired difference runs over the steps, with a band that holds at all of them at once.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/grid.h"
#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/plots/chart.h"
#include "reports/plots/row_plot.h"
#include "reports/text.h"

namespace lockstep {
namespace {

/// The frame ends at this many margins, so that the margin itself is seen.
constexpr double kReachOfCurves = 4;

struct Drawn {
  const CellResult* cell;
  const CurveDifference* curve;
  std::string anchor;
};

std::vector<Drawn> drawn_of(const Page& page, std::string_view metric) {
  std::vector<Drawn> all;
  for (const std::size_t i : row_order(page.results)) {
    const CellResult& cell = page.results.cells[i];
    if (!cell.outcome) continue;
    for (const CurveDifference& curve : cell.outcome->curves) {
      if (curve.metric == metric && curve.steps.size() >= 2 && curve.mean.size() == curve.steps.size() &&
          curve.low.size() == curve.steps.size() && curve.high.size() == curve.steps.size())
        all.push_back({&cell, &curve, page.anchors[i]});
    }
  }
  return all;
}

std::vector<std::string> metrics_of(const Results& results) {
  std::vector<std::string> metrics;
  for (const CellResult& cell : results.cells) {
    if (!cell.outcome) continue;
    for (const CurveDifference& curve : cell.outcome->curves) {
      if (std::find(metrics.begin(), metrics.end(), curve.metric) == metrics.end())
        metrics.push_back(curve.metric);
    }
  }
  const auto order = [&results](const std::string& metric) { return metric != results.primary.metric; };
  std::stable_sort(metrics.begin(), metrics.end(),
                   [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return metrics;
}

double reach_of(const std::vector<Drawn>& all) {
  double margin = 0, widest = 0;
  for (const Drawn& d : all) {
    margin = std::max(margin, d.curve->margin);
    for (std::size_t i = 0; i < d.curve->mean.size(); ++i) {
      if (std::isfinite(d.curve->low[i])) widest = std::max(widest, std::abs(d.curve->low[i]));
      if (std::isfinite(d.curve->high[i])) widest = std::max(widest, std::abs(d.curve->high[i]));
    }
  }
  if (margin <= 0) return widest > 0 ? widest : 1;
  return std::clamp(1.05 * widest, 1.6 * margin, kReachOfCurves * margin);
}

/// "from step 50" if that holds of every step from there on, else "at step 50" and how many steps in all.
template <class Holds>
std::string since_words(const CurveDifference& curve, int64_t first, Holds holds) {
  std::size_t steps = 0, of = 0;
  for (std::size_t i = 0; i < curve.steps.size(); ++i) {
    if (curve.steps[i] < first) continue;
    ++of;
    steps += holds(i) ? 1 : 0;
  }
  if (steps == of) return fmt::format("from step {}", first);
  if (steps == 1) return fmt::format("at step {} alone", first);
  return fmt::format("at {} of {} evaluations from step {}", steps, of, first);
}

std::string marks_words(const CurveDifference& curve) {
  if (curve.margin <= 0) return "";
  if (curve.first_leaves < 0) return "stays inside the margin";
  const auto beyond = [&](std::size_t i) { return curve.low[i] > curve.margin || curve.high[i] < -curve.margin; };
  const auto leaves = [&](std::size_t i) {
    return !(curve.low[i] > -curve.margin && curve.high[i] < curve.margin);
  };
  const std::string since =
      curve.first_beyond >= 0 ? "wholly beyond " + since_words(curve, curve.first_beyond, beyond) : "";
  if (curve.first_beyond == curve.first_leaves) return since;
  const std::string text = "not wholly inside " + since_words(curve, curve.first_leaves, leaves);
  return since.empty() ? text : text + ", " + since;
}

void draw_band(Markup& out, const Chart& chart, const CurveDifference& curve, const std::string& css) {
  std::vector<std::pair<double, double>> outline, middle;
  for (std::size_t i = 0; i < curve.steps.size(); ++i) {
    const double x = chart.x(static_cast<double>(curve.steps[i]));
    outline.emplace_back(x, chart.y(curve.high[i]));
    middle.emplace_back(x, chart.y(curve.mean[i]));
  }
  for (std::size_t i = curve.steps.size(); i-- > 0;)
    outline.emplace_back(chart.x(static_cast<double>(curve.steps[i])), chart.y(curve.low[i]));
  // A drawing of its own cuts what leaves the frame.
  const std::string size = fmt::format("{} {} {} {}", px(chart.left), px(chart.top),
                                       px(chart.edge() - chart.left), px(chart.floor() - chart.top));
  out.open("svg", {{"x", px(chart.left)},
                   {"y", px(chart.top)},
                   {"width", px(chart.edge() - chart.left)},
                   {"height", px(chart.floor() - chart.top)},
                   {"viewBox", size}});
  out.empty("path", {{"class", "band strong " + css}, {"d", path_through(outline) + "z"}});
  out.empty("path", {{"class", "line " + css}, {"d", path_through(middle)}});
  out.close();
}

void draw_marks(Markup& out, const Chart& chart, const CurveDifference& curve, const std::string& css) {
  const double y = chart.floor() + 7;
  if (curve.first_leaves >= 0) mark(out, 0, css, chart.x(static_cast<double>(curve.first_leaves)), y, true);
  if (curve.first_beyond >= 0) mark(out, 0, css, chart.x(static_cast<double>(curve.first_beyond)), y);
}

/// Zero and the margin: what a difference is measured by.
std::vector<Tick> margin_ticks(const CurveDifference& curve, double reach) {
  if (curve.margin <= 0) return numbered(nice_ticks(-reach, reach, 4));
  std::vector<Tick> ticks{{0, "0"}};
  for (const double at : {-curve.margin, curve.margin})
    ticks.push_back({at, signed_number(at, decimals_for(curve.margin) - 1)});
  return ticks;
}

/// `terms`: n and level of its own, if it has them.
void write_panel(Markup& out, const Drawn& d, double reach, const std::string& terms) {
  const CurveDifference& curve = *d.curve;
  const std::string css = row_css(*d.cell, d.cell->verdict);
  Chart chart{260, 150, 44, 10, 6, 34, {}, {}};
  place(chart, static_cast<double>(curve.steps.front()), static_cast<double>(curve.steps.back()), -reach,
        reach);
  out.open("figure")
      .open("figcaption")
      .element("a", {{"href", "#" + d.anchor}}, name_words(d.cell->scenario));
  if (const std::string words = marks_words(curve); !words.empty())
    out.element("span", {{"class", "sub"}}, words);
  if (!terms.empty()) out.element("span", {{"class", "sub"}}, terms);
  if (const std::string note = clean_line(curve.note); !note.empty()) out.element("span", {{"class", "sub"}}, note);
  out.close();
  open_chart(out, chart, name_words(d.cell->scenario) + ": paired difference by step", marks_words(curve));
  if (curve.margin > 0) {
    out.empty("rect", {{"class", "margin"},
                       {"x", px(chart.left)},
                       {"width", px(chart.edge() - chart.left)},
                       {"y", px(chart.y(curve.margin))},
                       {"height", px(chart.y(-curve.margin) - chart.y(curve.margin))}});
  }
  draw_y_axis(out, chart, margin_ticks(curve, reach));
  line(out, "zero", chart.left, chart.y(0), chart.edge(), chart.y(0));
  draw_band(out, chart, curve, css);
  std::vector<Tick> ticks;
  for (const double step : step_ticks(chart.x.high, 4).values)
    ticks.push_back({step, fmt::format("{:.0f}", step)});
  line(out, "tk", chart.left, chart.floor(), chart.edge(), chart.floor());
  for (const Tick& tick : ticks) text(out, "tick mid", chart.x(tick.at), chart.floor() + 26, tick.text);
  draw_marks(out, chart, curve, css);
  out.close().close();
}

}  // namespace

void write_differences(Markup& out, const Page& page) {
  const std::vector<std::string> metrics = metrics_of(page.results);
  bool opened = false;
  for (const std::string& metric : metrics) {
    const std::vector<Drawn> all = drawn_of(page, metric);
    if (all.empty()) continue;
    if (!opened) {
      open_section(
          out, "differences", "When do they differ?",
          fmt::format(
              "Mean of the paired differences by step, cell minus reference, with a band that covers all "
              "steps simultaneously, {}; green is the margin. A ring below the axis marks the first step at which "
              "the band leaves the margin, a dot the first at which it lies wholly outside. A "
              "grown batch is compared at equally many samples.",
              common_level(page.results) ? "at " + level_words(*common_level(page.results))
                                         : "at the level of the cell's intervals"));
    }
    const bool folded = opened;
    opened = true;
    if (folded)
      out.open("details").element("summary", {}, metric_words(metric));
    else
      out.element("h3", {}, metric_words(metric));
    out.open("div", {{"class", "small"}});
    const double reach = reach_of(all);
    for (const Drawn& d : all) write_panel(out, d, reach, own_terms(page.results, *d.cell));
    out.close();
    if (folded) out.close();
  }
  if (opened) out.close();
}

}  // namespace lockstep
