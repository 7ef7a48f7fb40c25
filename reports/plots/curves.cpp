#include "reports/plots/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "harness/answer/results/words.h"
#include "reports/markup.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"

// Curves by step: one shared panel with labels at the lines' ends, or a small panel for each cell.

namespace lockstep {

/// The groups that have cells; by steps first.
static std::vector<CurveGroup> curve_groups(const Results& results);
namespace {

std::string axis_word(const CurveFrame& frame) { return frame.by_samples ? "samples" : "step"; }

/// The curves of one figure in numbers, folded: a row for each, eight steps or as many as there are.
std::string curve_table(const std::vector<Curve>& curves, const CurveFrame& frame) {
  Markup out;
  out.open("details").element("summary", {}, "The curves in numbers: median [lowest, highest seed]");
  open_scroll(out, "The curves in numbers");
  out.open("table", {{"class", "plain"}}).open("thead").open("tr");
  out.element("th", {{"scope", "col"}}, axis_word(frame));
  constexpr int kColumns = 8;
  const auto step_of = [&](const Curve& curve, int column) {
    // The points nearest to even distances, so that whatever was evaluated is found.
    const double wanted = frame.last_step * column / (kColumns - 1);
    const auto near = [wanted](const CurvePoint& a, const CurvePoint& b) {
      return std::abs(a.step - wanted) < std::abs(b.step - wanted);
    };
    return *std::min_element(curve.points.begin(), curve.points.end(), near);
  };
  std::vector<double> steps;
  for (int column = 0; column < kColumns; ++column) {
    const double step = step_of(curves.front(), column).step;
    if (steps.empty() || steps.back() != step) steps.push_back(step);
  }
  for (const double step : steps)
    out.element("th", {{"scope", "col"}, {"class", "n"}}, fmt::format("{:.0f}", step));
  out.close().close().open("tbody");
  for (const Curve& curve : curves) {
    out.open("tr").element("th", {{"scope", "row"}}, name_words(curve.name));
    for (const double step : steps) {
      const auto at = std::find_if(curve.points.begin(), curve.points.end(),
                                   [step](const CurvePoint& p) { return p.step == step; });
      std::string text = "—";
      if (at != curve.points.end()) {
        text = compact_number(at->median);
        if (at->high > at->low)
          text += fmt::format(" [{}, {}]", compact_number(at->low), compact_number(at->high));
      }
      out.element("td", {{"class", "n"}}, text);
    }
    out.close();
  }
  return out.take();
}

constexpr std::size_t kMostShared = 6;  ///< cells in one panel
constexpr double kLabelPx = 12, kTickPx = 11.5, kLinePx = 14;

struct Panel {
  double width, height, left, right, top, bottom;
  int columns;  ///< that the curves are thinned to
  double plot_width() const { return width - left - right; }
  double plot_height() const { return height - top - bottom; }
};

struct Axes {
  Scale x, y;  ///< to pixels inside the plot
};

Axes axes_of(const Panel& panel, const CurveFrame& frame) {
  return {{0, frame.last_step, 0, panel.plot_width()}, {frame.low, frame.high, panel.plot_height(), 0}};
}

/// The band as a closed outline and the median as a line, both inside the plot's own coordinates.
void draw_curve(Markup& out, const Curve& curve, const Axes& axes, const Panel& panel) {
  const std::vector<CurvePoint> points = thin(curve.points, panel.columns);
  // Far off the frame nothing is seen, and browsers draw huge coordinates badly.
  const auto y = [&](double value) { return px(std::clamp(axes.y(value), -2000.0, 4000.0)); };
  std::string band, back, line;
  bool has_band = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const CurvePoint& p = points[i];
    const std::string x = px(axes.x(p.step));
    line += (line.empty() ? "M" : " ") + x + " " + y(p.median);
    has_band = has_band || p.high > p.low;
    // Thinned points of one column share their band: once is enough, but for the last, which reaches the
    // edge.
    const bool repeated =
        i > 0 && i + 1 < points.size() && p.low == points[i - 1].low && p.high == points[i - 1].high;
    if (repeated) continue;
    band += (band.empty() ? "M" : " ") + x + " " + y(p.high);
    back = " " + x + " " + y(p.low) + back;
  }
  if (has_band) out.empty("path", {{"class", "band " + curve.css}, {"d", band + back + "z"}});
  if (points.size() == 1) {
    out.empty("circle", {{"class", "m " + curve.css},
                         {"r", "3"},
                         {"cx", px(axes.x(points[0].step))},
                         {"cy", y(points[0].median)}});
    return;
  }
  out.open("path", {{"class", "line " + curve.css}, {"d", line}})
      .element("title", {}, name_words(curve.name))
      .close();
}

Ticks value_ticks(const CurveFrame& frame, bool small) {
  return nice_ticks(frame.low, frame.high, small ? 4 : 6);
}

/// Room at the left for the widest of the values at the axis.
void make_room(Panel& panel, const CurveFrame& frame, bool small) {
  const Ticks ticks = value_ticks(frame, small);
  for (const double value : ticks.values) {
    panel.left = std::max(panel.left, text_width_px(tick_text(value, ticks), kTickPx) + 10);
  }
}

void draw_axes(Markup& out, const Panel& panel, const CurveFrame& frame, const Axes& axes, bool small) {
  const Ticks ys = value_ticks(frame, small);
  const double right = panel.width - panel.right, floor = panel.height - panel.bottom;
  for (const double value : ys.values) {
    const std::string y = px(panel.top + axes.y(value));
    out.empty("line", {{"class", "grid"}, {"x1", px(panel.left)}, {"x2", px(right)}, {"y1", y}, {"y2", y}});
    out.element("text",
                {{"class", "tick end"}, {"x", px(panel.left - 6)}, {"y", px(panel.top + axes.y(value) + 4)}},
                tick_text(value, ys));
  }
  out.empty(
      "line",
      {{"class", "tk"}, {"x1", px(panel.left)}, {"x2", px(right)}, {"y1", px(floor)}, {"y2", px(floor)}});
  for (const double step : step_ticks(frame.last_step, small ? 4 : 7).values) {
    out.element("text", {{"class", "tick mid"}, {"x", px(panel.left + axes.x(step))}, {"y", px(floor + 26)}},
                fmt::format("{:.0f}", step));
  }
  if (!small) {
    out.element(
        "text",
        {{"class", "tick mid"}, {"x", px(panel.left + panel.plot_width() / 2)}, {"y", px(panel.height - 3)}},
        axis_word(frame));
  }
  if (frame.chance >= 0 && frame.chance <= frame.high && frame.chance >= frame.low) {
    const std::string y = px(panel.top + axes.y(frame.chance));
    out.empty("line", {{"class", "chance"}, {"x1", px(panel.left)}, {"x2", px(right)}, {"y1", y}, {"y2", y}});
  }
}

/// Flags in the lane below the axis: a pole at each step at which cells part from their reference, a bead for
/// each of them.
void draw_flags(Markup& out, const Panel& panel, const Axes& axes, const std::vector<const Curve*>& curves) {
  std::map<int64_t, std::vector<const Curve*>> by_step;
  for (const Curve* curve : curves) {
    if (curve->divergence) by_step[curve->divergence->step].push_back(curve);
  }
  const double floor = panel.height - panel.bottom;
  double taken = -1e9;
  for (const auto& [step, parted] : by_step) {
    const double place = static_cast<double>(step) * parted.front()->rows_a_step;
    const double at = panel.left + axes.x(std::min(place, axes.x.high));
    std::string title = fmt::format("first differ at step {}:", step);
    for (const Curve* curve : parted) title += " " + name_words(curve->name) + ";";
    title.pop_back();
    out.open("g", {{"class", "flag"}}).element("title", {}, title);
    out.empty("path", {{"class", "pole"}, {"d", fmt::format("M{0} {1}v9", px(at), px(floor))}});
    double bead = std::max(at + 5, taken);
    for (const Curve* curve : parted) {
      out.empty("circle",
                {{"class", "m " + curve->css}, {"cx", px(bead)}, {"cy", px(floor + 7)}, {"r", "3.4"}});
      bead += 9;
    }
    taken = bead;
    out.close();
  }
}

bool ends_early(const Curve& curve, double common_end) {
  return static_cast<double>(curve.last_step) < 0.97 * common_end;
}

struct Label {
  std::vector<std::string> lines;  ///< of the name
  std::string note;                ///< below them; empty: none
  std::vector<std::string> all() const {
    std::vector<std::string> texts = lines;
    if (!note.empty()) texts.push_back(note);
    return texts;
  }
};

Label label_of(const Curve& curve, double width, const CurveFrame& frame) {
  std::vector<std::string> lines{""};
  const std::string name = name_words(curve.label);
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t space = std::min(name.find(' ', begin), name.size());
    const std::string word = name.substr(begin, space - begin);
    const std::string longer = lines.back().empty() ? word : lines.back() + " " + word;
    if (text_width_px(longer, kLabelPx) <= width || lines.back().empty())
      lines.back() = longer;
    else
      lines.push_back(word);
    begin = space + 1;
  }
  if (lines.size() > 2) lines[1] += " …", lines.resize(2);
  for (std::string& line : lines) {
    int columns = display_width(line);
    while (columns > 1 && text_width_px(line, kLabelPx) > width) line = shorten(line, --columns);
  }
  const std::string end = fmt::format(fmt::runtime(frame.by_samples ? "ends after {} samples" : "ends at step {}"), curve.last_step);
  return {lines, ends_early(curve, frame.common_end) ? end : ""};
}

void draw_labels(Markup& out, const Panel& panel, const CurveFrame& frame, const Axes& axes,
                 std::vector<const Curve*> curves) {
  const auto end_y = [&](const Curve* curve) {
    return panel.top + std::clamp(axes.y(curve->points.back().median), 0.0, panel.plot_height());
  };
  std::stable_sort(curves.begin(), curves.end(),
                   [&](const Curve* a, const Curve* b) { return end_y(a) < end_y(b); });
  std::vector<double> wanted, heights;
  std::vector<Label> labels;
  const double column = panel.width - panel.right;
  for (const Curve* curve : curves) {
    labels.push_back(label_of(*curve, panel.right - 50, frame));
    wanted.push_back(end_y(curve));
    heights.push_back(kLinePx * static_cast<double>(labels.back().all().size()) + 3);
  }
  const std::vector<double> centres = push_apart(wanted, heights, 0, panel.height - 18);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const double from = panel.left + axes.x(curves[i]->points.back().step);
    if (ends_early(*curves[i], frame.common_end)) {
      // A leader across the drawing would read as a curve: its end is crossed out instead.
      const std::string cross = fmt::format("M{} {}l8 8m0-8l-8 8", px(from - 4), px(wanted[i] - 4));
      out.empty("path", {{"class", "ended " + curves[i]->css}, {"d", cross}, {"fill", "none"}});
    } else {
      out.empty(
          "path",
          {{"class", "leader"},
           {"d", fmt::format("M{} {}L{} {}", px(from + 2), px(wanted[i]), px(column + 14), px(centres[i]))}});
    }
    out.empty("path", {{"class", "line " + curves[i]->css},
                       {"d", fmt::format("M{} {}h24", px(column + 16), px(centres[i]))}});
    const std::vector<std::string> texts = labels[i].all();
    double y = centres[i] - kLinePx * (static_cast<double>(texts.size()) - 1) / 2 + 4;
    for (std::size_t k = 0; k < texts.size(); ++k, y += kLinePx) {
      const bool note = k >= labels[i].lines.size();
      out.element("text", {{"class", note ? "tick" : "lab"}, {"x", px(column + 45)}, {"y", px(y)}}, texts[k]);
    }
  }
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

void write_caption(Markup& out, std::string_view metric, const CurveFrame& frame, const Results& results,
                   bool shared, const CurveGroup& group) {
  const std::size_t seeds = results.seeds.size();
  out.open("figcaption")
      .element("b", {},
               metric_words(metric) +
                   (group.by_samples() ? ", by samples, against " + name_words(group.reference) : ""));
  std::string text = seeds > 1 ? fmt::format("median and range of {} seeds", seeds) : "one seed";
  if (!shared) text += "; black or white: the reference";
  if (const std::string chance = chance_text(frame); !chance.empty()) text += "; " + chance;
  if (frame.off_high) text += "; above the frame up to " + compact_number(*frame.off_high);
  if (frame.off_low) text += "; below the frame down to " + compact_number(*frame.off_low);
  out.element("span", {}, text).close();
}

void open_plot(Markup& out, const Panel& panel) {
  const std::string size = fmt::format("0 0 {} {}", px(panel.plot_width()), px(panel.plot_height()));
  out.open("svg", {{"x", px(panel.left)},
                   {"y", px(panel.top)},
                   {"width", px(panel.plot_width())},
                   {"height", px(panel.plot_height())},
                   {"viewBox", size}});
}

void open_panel(Markup& out, const Panel& panel, std::string_view title, std::string_view description) {
  out.open("svg",
           {{"viewBox", fmt::format("0 0 {} {}", px(panel.width), px(panel.height))}, {"role", "img"}});
  out.element("title", {}, title).element("desc", {}, description);
}

std::string description_of(const std::vector<const Curve*>& curves) {
  std::string text = "Values at the end:";
  for (const Curve* curve : curves) {
    text += " " + name_words(curve->name) + " " + compact_number(curve->points.back().median) + ";";
  }
  text.back() = '.';
  return text;
}

std::string shared_panel(const std::vector<Curve>& curves, const CurveFrame& frame, std::string_view metric) {
  Panel panel{580, 320, 44, 60, 10, 46, 180};
  make_room(panel, frame, false);
  std::vector<const Curve*> all;
  for (const Curve& curve : curves) all.push_back(&curve);
  for (const Curve* curve : all) {
    for (const std::string& line : label_of(*curve, 135, frame).all()) {
      panel.right = std::max(panel.right, text_width_px(line, kLabelPx) + 52);
    }
  }
  const Axes axes = axes_of(panel, frame);
  Markup out;
  open_panel(out, panel, metric_words(metric) + " by " + axis_word(frame), description_of(all));
  draw_axes(out, panel, frame, axes, false);
  open_plot(out, panel);
  for (auto curve = all.rbegin(); curve != all.rend(); ++curve) draw_curve(out, **curve, axes, panel);
  out.close();
  draw_labels(out, panel, frame, axes, all);
  draw_flags(out, panel, axes, all);
  return out.take();
}

std::string small_panels(const std::vector<Curve>& curves, const CurveFrame& frame, std::string_view metric) {
  // Of many panels each is looked at for its shape; the table behind them holds the numbers.
  const std::size_t kFew = 12;
  Panel panel{260, 168, 38, 14, 6, 34, curves.size() > kFew ? 28 : 60};
  make_room(panel, frame, true);
  const Axes axes = axes_of(panel, frame);
  std::map<std::string, std::pair<std::string, const Curve*>> references;
  Markup out;
  // Each reference is drawn once and shown in every panel.
  out.open("svg", {{"class", "defs"}, {"aria-hidden", "true"}}).open("defs");
  for (const Curve& curve : curves) {
    if (!curve.is_reference() || references.contains(curve.name)) continue;
    const std::string id =
        fmt::format("ref-{}{}-{}", slug(metric), frame.by_samples ? "-" + slug(curve.name) : "", references.size());
    references[curve.name] = {id, &curve};
    out.open("g", {{"id", id}});
    draw_curve(out, curve, axes, panel);
    out.close();
  }
  out.close().close().open("div", {{"class", "small"}});
  for (Curve curve : curves) {
    if (curve.is_reference()) continue;
    curve.css = "c0";
    const auto reference = references.find(curve.reference);
    std::vector<const Curve*> shown{&curve};
    if (reference != references.end()) shown.push_back(reference->second.second);
    out.open("figure")
        .open("figcaption")
        .element("a", {{"href", "#" + curve.anchor}}, name_words(curve.name))
        .close();
    open_panel(out, panel, name_words(curve.name) + ": " + metric_words(metric) + " by " + axis_word(frame),
               description_of(shown));
    draw_axes(out, panel, frame, axes, true);
    open_plot(out, panel);
    if (reference != references.end()) out.empty("use", {{"href", "#" + reference->second.first}});
    draw_curve(out, curve, axes, panel);
    out.close();
    draw_flags(out, panel, axes, {&curve});
    out.close().close();
  }
  return out.take();
}

}  // namespace

std::vector<std::string> curve_metrics(const Results& results) {
  std::vector<std::string> metrics;
  const auto add = [&metrics](const std::vector<CurveBand>& bands) {
    for (const CurveBand& band : bands) {
      if (std::find(metrics.begin(), metrics.end(), band.metric) == metrics.end())
        metrics.push_back(band.metric);
    }
  };
  for (const ReferenceResult& reference : results.references) add(reference.curves);
  for (const CellResult& cell : results.cells) add(cell.curves);
  const auto order = [&results](const std::string& metric) {
    if (metric == results.primary.metric) return 0;
    const MetricName name = metric_name(metric);
    if (name.spec == nullptr || !(name.spec->chance || name.spec->chance_by) || name.area) return 3;
    return name.training ? 1 : 2;
  };
  std::stable_sort(metrics.begin(), metrics.end(),
                   [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return metrics;
}

std::string curve_panels(const Results& results, std::string_view metric) {
  Markup out;
  for (const CurveGroup& group : curve_groups(results)) {
    const std::vector<Curve> curves = curves_of(results, metric, group);
    if (curves.empty()) continue;
    const auto cells =
        std::count_if(curves.begin(), curves.end(), [](const Curve& curve) { return !curve.is_reference(); });
    CurveFrame frame = frame_of(curves, metric, group.by_samples() ? 0 : results.steps);
    frame.by_samples = group.by_samples();
    const bool shared = static_cast<std::size_t>(cells) <= kMostShared;
    out.open("figure", {{"class", shared ? "panel" : "panels"}});
    write_caption(out, metric, frame, results, shared, group);
    out.raw(shared ? shared_panel(curves, frame, metric) : small_panels(curves, frame, metric));
    out.raw(curve_table(curves, frame)).close();
  }
  return out.take();
}

namespace {

constexpr std::size_t kColours = 6;

std::vector<CurvePoint> points_of(const CurveBand& band) {
  std::vector<CurvePoint> points;
  for (std::size_t i = 0; i < std::min(band.steps.size(), band.median.size()); ++i) {
    const double median = band.median[i];
    if (!std::isfinite(median)) continue;
    const bool has_band = i < band.low.size() && i < band.high.size();
    const double low = has_band && std::isfinite(band.low[i]) ? band.low[i] : median;
    const double high = has_band && std::isfinite(band.high[i]) ? band.high[i] : median;
    points.push_back({static_cast<double>(band.steps[i]), median, low, high});
  }
  std::stable_sort(points.begin(), points.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  return points;
}

bool add_curve(std::vector<Curve>& curves, const std::vector<CurveBand>& bands, std::string_view metric,
               Curve curve) {
  const auto band =
      std::find_if(bands.begin(), bands.end(), [&](const CurveBand& b) { return b.metric == metric; });
  if (band == bands.end()) return false;
  curve.points = points_of(*band);
  if (curve.points.empty()) return false;
  for (CurvePoint& point : curve.points) point.step *= curve.rows_a_step;
  curve.last_step = static_cast<int64_t>(curve.points.back().step);
  curve.chance = band->chance;
  curves.push_back(std::move(curve));
  return true;
}

struct Block {
  double centre, height;
  std::size_t count;
};

}  // namespace

std::vector<CurveGroup> curve_groups(const Results& results) {
  std::vector<CurveGroup> groups{CurveGroup{}};
  for (const CellResult& cell : results.cells) {
    if (!is_judged(cell) || !is_of_grown_batch(results, cell)) continue;
    const auto same = [&cell](const CurveGroup& group) { return group.reference == cell.reference; };
    if (std::none_of(groups.begin(), groups.end(), same)) groups.push_back({cell.reference});
  }
  return groups;
}

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

std::vector<CurvePoint> thin(const std::vector<CurvePoint>& points, int columns) {
  const std::size_t room = static_cast<std::size_t>(std::max(columns, 2));
  if (points.size() <= 2 * room) return points;
  std::vector<CurvePoint> kept;
  for (std::size_t column = 0; column < room; ++column) {
    const std::size_t begin = column * points.size() / room, end = (column + 1) * points.size() / room;
    std::size_t low = begin, high = begin;
    double band_low = points[begin].low, band_high = points[begin].high;
    for (std::size_t i = begin; i < end; ++i) {
      if (points[i].median < points[low].median) low = i;
      if (points[i].median > points[high].median) high = i;
      band_low = std::min(band_low, points[i].low);
      band_high = std::max(band_high, points[i].high);
    }
    std::vector<std::size_t> chosen{low, high};
    if (column == 0) chosen.push_back(0);
    if (column + 1 == room) chosen.push_back(points.size() - 1);
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const std::size_t i : chosen)
      kept.push_back({points[i].step, points[i].median, band_low, band_high});
  }
  return kept;
}

CurveFrame frame_of(const std::vector<Curve>& curves, std::string_view metric, int64_t steps) {
  CurveFrame frame;
  frame.last_step = std::max(1.0, static_cast<double>(steps));
  frame.chance = chance_of(metric);
  double low = std::numeric_limits<double>::infinity(), high = -low, all_low = low, all_high = high;
  for (const Curve& curve : curves) {
    if (curve.chance) frame.chance = *curve.chance;
    for (const CurvePoint& point : curve.points) {
      frame.last_step = std::max(frame.last_step, point.step);
      frame.common_end = std::max(frame.common_end, point.step);
      all_low = std::min(all_low, point.low), all_high = std::max(all_high, point.high);
      if (!curve.is_reference()) continue;
      low = std::min(low, point.low), high = std::max(high, point.high);
    }
  }
  if (frame.chance >= 0) {
    low = std::min(low, frame.chance), high = std::max(high, frame.chance);
    all_low = std::min(all_low, frame.chance), all_high = std::max(all_high, frame.chance);
  }
  if (!(high > low)) low = all_low, high = all_high;
  if (!(high > low)) low = std::isfinite(low) ? low - 0.5 : 0, high = low + 1;
  const double height = high - low;
  frame.low = std::max(all_low, low - height);
  frame.high = std::min(all_high, high + height);
  if (all_low < frame.low) frame.off_low = all_low;
  if (all_high > frame.high) frame.off_high = all_high;
  // Zero is drawn where it is near: a quantity that cannot be negative reads better from its floor.
  if (frame.low > 0 && frame.low < 0.35 * frame.high) frame.low = 0;
  const double room = 0.04 * (frame.high - frame.low);
  frame.high += room;
  if (frame.low != 0) frame.low -= room;
  const AxisRange range = drawable(frame.low, frame.high);
  frame.low = range.low, frame.high = range.high;
  return frame;
}

std::vector<double> push_apart(const std::vector<double>& wanted, const std::vector<double>& heights,
                               double top, double bottom) {
  // Neighbours that would overlap become one block around the mean of what they want; blocks merge until none
  // overlap.
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Block block{wanted[i], heights[i], 1};
    const auto settle = [&](Block& b) {
      b.centre = std::min(std::max(b.centre, top + b.height / 2),
                          std::max(bottom - b.height / 2, top + b.height / 2));
    };
    settle(block);
    while (!blocks.empty() &&
           blocks.back().centre + blocks.back().height / 2 > block.centre - block.height / 2) {
      const Block& above = blocks.back();
      const double count = static_cast<double>(above.count + block.count);
      block.centre = (above.centre * static_cast<double>(above.count) +
                      block.centre * static_cast<double>(block.count)) /
                     count;
      block.height += above.height;
      block.count += above.count;
      blocks.pop_back();
      settle(block);
    }
    blocks.push_back(block);
  }
  std::vector<double> centres;
  for (const Block& block : blocks) {
    double at = block.centre - block.height / 2;
    for (std::size_t i = 0; i < block.count; ++i) {
      const double height = heights[centres.size()];
      centres.push_back(at + height / 2);
      at += height;
    }
  }
  return centres;
}

}  // namespace lockstep
