#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "harness/answer/results/words.h"
#include "reports/html/parts.h"
#include "reports/markup.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"

// Curves by step: one shared panel with labels at the lines' ends, or a small panel for each cell.

namespace lockstep {

namespace {

/// The groups that have cells; by steps first.
std::vector<CurveGroup> curve_groups(const Results& results) {
  std::vector<CurveGroup> groups{CurveGroup{}};
  for (const CellResult& cell : results.cells) {
    if (!is_judged(cell) || !is_of_grown_batch(results, cell)) continue;
    if (std::ranges::find(groups, cell.reference, &CurveGroup::reference) == groups.end()) groups.push_back({cell.reference});
  }
  return groups;
}

std::string axis_word(const CurveFrame& frame) { return frame.by_samples ? "samples" : "step"; }

/// The curves of one figure in numbers, folded: a row for each, eight steps or as many as there are.
Part curve_table(const std::vector<Curve>& curves, const CurveFrame& frame) {
  constexpr int kColumns = 8;
  std::vector<double> steps;
  for (int column = 0; column < kColumns; ++column) {
    // The points nearest to even distances, so that whatever was evaluated is found.
    const double wanted = frame.last_step * column / (kColumns - 1);
    const double step = std::ranges::min_element(curves.front().points, {}, [wanted](const PlotPoint& p) { return std::abs(p.x - wanted); })->x;
    if (steps.empty() || steps.back() != step) steps.push_back(step);
  }
  Table table{.columns = {axis_word(frame)}, .rows = {}};
  for (const double step : steps) table.columns.push_back(numbers(fmt::format("{:.0f}", step)));
  for (const Curve& curve : curves) {
    table.rows.push_back({{name_words(curve.name)}});
    for (const double step : steps) {
      const auto at = std::ranges::find(curve.points, step, &PlotPoint::x);
      std::string text = at == curve.points.end() ? "—" : compact_number(at->y);
      if (at != curve.points.end() && at->high > at->low) text += fmt::format(" [{}, {}]", compact_number(at->low), compact_number(at->high));
      table.rows.back().cells.emplace_back(text);
    }
  }
  return fold("The curves in numbers: median [lowest, highest seed]", {tabled(std::move(table))});
}

constexpr std::size_t kMostShared = 6;  ///< cells in one panel

/// A pole at each step at which cells part from their reference, a bead for each of them.
std::vector<PlotFlag> flags_of(const std::vector<const Curve*>& curves) {
  std::map<int64_t, PlotFlag> by_step;
  for (const Curve* curve : curves) {
    if (!curve->divergence) continue;
    const int64_t step = curve->divergence->step;
    PlotFlag& flag = by_step.try_emplace(step, PlotFlag{static_cast<double>(step) * curve->rows_a_step, "", {}}).first->second;
    flag.title += (flag.title.empty() ? fmt::format("first differ at step {}: ", step) : "; ") + name_words(curve->name);
    flag.beads.push_back("m " + curve->css);
  }
  std::vector<PlotFlag> flags;
  for (auto& [step, flag] : by_step) flags.push_back(std::move(flag));
  return flags;
}

/// "1/24" of an accuracy, "log 4" of a cross-entropy in nats, "log N" of one in units of it.
std::string chance_words(double chance) {
  if (chance == 1) return "log N";
  const auto is_whole = [](double value) { return std::abs(value - std::round(value)) < 1e-9 * value; };
  if (chance < 1 && is_whole(1 / chance)) return fmt::format("1/{:.0f}", 1 / chance);
  if (chance < 30 && is_whole(std::exp(chance))) return fmt::format("log {:.0f}", std::exp(chance));
  return compact_number(chance);
}

std::string chance_text(const CurveFrame& frame) {
  return frame.chance < 0 ? "" : "dotted: chance level, " + chance_words(frame.chance);
}

Figure caption_of(std::string_view metric, const CurveFrame& frame, const Results& results, bool shared, const CurveGroup& group) {
  const std::size_t seeds = results.seeds.size();
  std::string text = seeds > 1 ? fmt::format("median and range of {} seeds", seeds) : "one seed";
  if (!shared) text += "; black or white: the reference";
  if (const std::string chance = chance_text(frame); !chance.empty()) text += "; " + chance;
  if (frame.window > 0) text += fmt::format("; lines: moving median of {} points, all pale behind", frame.window);
  if (frame.off_high) text += "; above the frame up to " + compact_number(*frame.off_high);
  if (frame.off_low) text += "; below the frame down to " + compact_number(*frame.off_low);
  return {metric_words(metric) + (group.by_samples() ? ", by samples, against " + name_words(group.reference) : ""), "", {text},
          shared ? "panel" : "panels"};
}

std::string description_of(const std::vector<const Curve*>& curves) {
  std::string text = "Values at the end:";
  for (const Curve* curve : curves) {
    text += " " + name_words(curve->name) + " " + compact_number(curve->points.back().y) + ";";
  }
  text.back() = '.';
  return text;
}

Plot plot_of(const std::vector<const Curve*>& curves, const CurveFrame& frame, std::string_view metric, bool small) {
  const AxisRange range{frame.low, frame.high};
  Plot plot{.title = metric_words(metric) + " by " + axis_word(frame), .description = description_of(curves), .small = small,
            .x = {0, frame.last_step}, .y = range, .x_ticks = step_axis(frame.last_step, small ? 4 : 7),
            .y_ticks = ticks_of({"", "", frame.log}, range, small ? 4 : 6), .x_name = axis_word(frame),
            .y_name = metric_words(metric), .y_log = frame.log, .flags = flags_of(curves), .flagged = true};
  const double chance = frame.chance < 0 ? NAN : frame.at(frame.chance);
  if (chance <= frame.high && chance >= frame.low) plot.rules.push_back({false, chance, "chance"});
  for (const Curve* curve : curves) {
    const bool early = static_cast<double>(curve->last_step) < 0.97 * frame.common_end;
    plot.lines.push_back({curve->name, curve->css, curve->points});
    for (PlotPoint& p : plot.lines.back().points)
      for (double* each : {&p.y, &p.low, &p.high}) *each = frame.at(*each);
    if (curve->points.size() > kLong) plot.lines.back().window = frame.window;
    if (small) continue;
    plot.lines.back().label = curve->label;
    if (early) plot.lines.back().note = fmt::format(fmt::runtime(frame.by_samples ? "ends after {} samples" : "ends at step {}"), curve->last_step);
  }
  return plot;
}

/// A panel for each cell, its reference in it.
std::string small_panels(const std::vector<Curve>& curves, const CurveFrame& frame, std::string_view metric) {
  const std::size_t kFew = 12;
  Markup out;
  out.open("div", {{"class", "small"}});
  for (Curve curve : curves) {
    if (curve.is_reference()) continue;
    curve.css = "c0";
    std::vector<const Curve*> shown{&curve};
    const auto reference = std::ranges::find_if(curves, [&](const Curve& each) { return each.is_reference() && each.name == curve.reference; });
    if (reference != curves.end()) shown.push_back(&*reference);
    Plot plot = plot_of(shown, frame, metric, true);
    plot.title = name_words(curve.name) + ": " + plot.title;
    plot.many = curves.size() > kFew;
    write_figure(out, {name_words(curve.name), curve.anchor, {}, "panel"}, plot_drawing(plot));
  }
  return out.take();
}

}  // namespace

std::vector<std::string> curve_metrics(const Results& results) {
  std::vector<std::string> metrics;
  const auto add = [&metrics](const std::vector<CurveBand>& bands) {
    for (const CurveBand& band : bands) add_value(metrics, band.metric);
  };
  for (const ReferenceResult& reference : results.references) add(reference.curves);
  for (const CellResult& cell : results.cells) add(cell.curves);
  const auto order = [&results](const std::string& metric) {
    if (metric == results.primary.metric) return 0;
    const MetricName name = metric_name(metric);
    if (name.spec == nullptr || !(name.spec->chance || name.spec->chance_by) || name.area) return 3;
    return name.training ? 1 : 2;
  };
  std::ranges::stable_sort(metrics, [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return metrics;
}

std::string curve_panels(const Results& results, std::string_view metric) {
  Markup out;
  for (const CurveGroup& group : curve_groups(results)) {
    const std::vector<Curve> curves = curves_of(results, metric, group);
    if (curves.empty()) continue;
    const auto cells =
        std::ranges::count_if(curves, [](const Curve& curve) { return !curve.is_reference(); });
    CurveFrame frame = frame_of(curves, metric, group.by_samples() ? 0 : results.steps);
    frame.by_samples = group.by_samples();
    const bool shared = static_cast<std::size_t>(cells) <= kMostShared;
    std::vector<const Curve*> all;
    for (const Curve& curve : curves) all.push_back(&curve);
    Markup drawn;
    drawn.raw(shared ? plot_drawing(plot_of(all, frame, metric, false)) : small_panels(curves, frame, metric));
    write_part(drawn, curve_table(curves, frame));
    write_figure(out, caption_of(metric, frame, results, shared, group), drawn.take());
  }
  return out.take();
}

/// Where each cell has a panel of its own, all metrics but the primary one are folded.
Section curves_section(const Page& page) {
  constexpr std::size_t kMany = 8;
  const Results& results = page.results;
  const bool many = results.cells.size() > kMany, flags = std::ranges::any_of(results.cells, [](const CellResult& cell) {
    return cell.mechanism && cell.mechanism->verdict == VerdictKind::divergent && cell.mechanism->first_divergence;
  });
  Section section{"curves", "Training curves",
                  flags ? "A dot under the axis, in the cell's colour, marks the first step at which the cell differs from its reference." : "", {}};
  std::vector<Part> panels;
  for (const std::string& metric : curve_metrics(results)) {
    std::string panel = curve_panels(results, metric);
    if (panel.empty()) continue;
    panels.push_back(drawing(std::move(panel)));
    if (!many) continue;
    Part part = columns({std::move(panels.back())});
    panels.clear();
    section.parts.push_back(section.parts.empty() ? std::move(part) : fold(metric_words(metric), {std::move(part)}));
  }
  if (!panels.empty()) section.parts.push_back(columns(std::move(panels)));
  return section;
}

namespace {

constexpr std::size_t kColours = 6;
constexpr double kLogFrom = 100;  ///< largest over smallest value

std::vector<PlotPoint> points_of(const CurveBand& band) {
  std::vector<PlotPoint> points;
  for (std::size_t i = 0; i < std::min(band.steps.size(), band.median.size()); ++i) {
    const double median = band.median[i];
    if (!std::isfinite(median)) continue;
    const bool has_band = i < band.low.size() && i < band.high.size();
    const double low = has_band && std::isfinite(band.low[i]) ? band.low[i] : median;
    const double high = has_band && std::isfinite(band.high[i]) ? band.high[i] : median;
    points.push_back({static_cast<double>(band.steps[i]), median, low, high});
  }
  std::ranges::stable_sort(points, [](const auto& a, const auto& b) { return a.x < b.x; });
  return points;
}

bool add_curve(std::vector<Curve>& curves, const std::vector<CurveBand>& bands, std::string_view metric,
               Curve curve) {
  const auto band = std::ranges::find(bands, metric, &CurveBand::metric);
  if (band == bands.end()) return false;
  curve.points = points_of(*band);
  if (curve.points.empty()) return false;
  for (PlotPoint& point : curve.points) point.x *= curve.rows_a_step;
  curve.last_step = static_cast<int64_t>(curve.points.back().x);
  curve.chance = band->chance;
  curves.push_back(std::move(curve));
  return true;
}

}  // namespace

std::vector<Curve> curves_of(const Results& results, std::string_view metric, const CurveGroup& group) {
  std::vector<Curve> curves;
  const auto belongs = [&](const CellResult& cell) {
    return is_judged(cell) && (is_of_grown_batch(results, cell) ? cell.reference : "") == group.reference;
  };
  const auto rows = [&group](const std::optional<Layout>& layout) {
    return group.by_samples() ? static_cast<double>(global_batch_of(layout)) : 1.0;
  };
  for (const ReferenceResult& reference : results.references) {
    const auto only_grown = [&] {
      bool used = false;
      for (const CellResult& cell : results.cells) {
        if (cell.reference != reference.name || !is_judged(cell)) continue;
        if (!is_of_grown_batch(results, cell)) return false;
        used = true;
      }
      return used;
    };
    if (group.by_samples() ? reference.name != group.reference : only_grown()) continue;
    add_curve(curves, reference.curves, metric,
              {reference.name, reference.name, "", "ref", {}, 0, nullptr, "", rows(reference.layout)});
  }
  const std::vector<std::string> anchors = cell_anchors(results);
  std::size_t colour = 0;
  for (const std::size_t i : row_order(results)) {
    const CellResult& cell = results.cells[i];
    if (!belongs(cell)) continue;
    const bool parted = cell.mechanism && cell.mechanism->verdict == VerdictKind::divergent &&
                        cell.mechanism->first_divergence;
    add_curve(curves, cell.curves, metric,
              {cell.scenario,
               group.by_samples() && !cell.short_name.empty() ? cell.short_name : cell.scenario,
               anchors[i],
               "c" + std::to_string(colour++ % kColours),
               {},
               0,
               parted ? &*cell.mechanism->first_divergence : nullptr,
               cell.reference,
               rows(cell.layout)});
  }
  return curves;
}

namespace {

/// Does it jump from point to point, by 2 % of its height or more? The mean second difference is twice the noise.
bool is_noisy(const Curve& curve, const CurveFrame& frame) {
  const auto& points = curve.points;
  if (points.size() <= kLong) return false;
  const auto y = [&](std::size_t i) { return frame.at(points[i].y); };
  double low = y(0), high = low, jumps = 0;
  for (std::size_t i = 1; i < points.size(); ++i) {
    low = std::min(low, y(i)), high = std::max(high, y(i));
    if (i > 1) jumps += std::abs(y(i) - 2 * y(i - 1) + y(i - 2));
  }
  return jumps > 0.02 * (high - low) * static_cast<double>(points.size() - 2);
}

}  // namespace

CurveFrame frame_of(const std::vector<Curve>& curves, std::string_view metric, int64_t steps) {
  CurveFrame frame;
  frame.last_step = std::max(1.0, static_cast<double>(steps));
  frame.chance = chance_of(metric);
  Reach all, own;  // `own`: of the references
  for (const Curve& curve : curves) {
    if (curve.chance) frame.chance = *curve.chance;
    for (const PlotPoint& point : curve.points) {
      frame.common_end = std::max(frame.common_end, point.x);
      for (const double at : {point.low, point.high}) all.take(at), own.take(curve.is_reference() ? at : NAN);
    }
  }
  frame.last_step = std::max(frame.last_step, frame.common_end);
  if (frame.chance >= 0) all.take(frame.chance), own.take(frame.chance);
  auto [low, high] = own;
  auto [all_low, all_high] = all;
  frame.log = all_low > 0 && all_high > kLogFrom * all_low;
  std::size_t longest = 0;
  for (const Curve& curve : curves) {
    if (is_noisy(curve, frame)) longest = std::max(longest, curve.points.size());
  }
  if (longest > 0) frame.window = window_over(longest);
  for (double* each : {&low, &high, &all_low, &all_high}) *each = frame.at(*each);
  if (!(high > low)) low = all_low, high = all_high;
  if (!(high > low)) low = std::isfinite(low) ? low - 0.5 : 0, high = low + 1;
  const double height = high - low;
  frame.low = std::max(all_low, low - height);
  frame.high = std::min(all_high, high + height);
  const auto value = [&frame](double at) { return frame.log ? std::pow(10.0, at) : at; };
  if (all_low < frame.low) frame.off_low = value(all_low);
  if (all_high > frame.high) frame.off_high = value(all_high);
  // Zero is drawn where it is near: a quantity that cannot be negative reads better from its floor.
  if (!frame.log && frame.low > 0 && frame.low < 0.35 * frame.high) frame.low = 0;
  const double room = 0.04 * (frame.high - frame.low);
  frame.high += room;
  if (frame.log || frame.low != 0) frame.low -= room;
  const AxisRange range = drawable(frame.low, frame.high);
  frame.low = range.low, frame.high = range.high;
  return frame;
}

}  // namespace lockstep
