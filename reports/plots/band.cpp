#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/answer/stats/outcome.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"

// The band plot: how much of the floating-point band each cell's gradients used.

namespace lockstep {
namespace {

/// Where "no difference at all" stands, which a logarithm does not reach; and where the logarithmic part
/// begins.
constexpr double kZeroAt = 3, kBegin = 9;

struct BandAxis {
  int low = -3, high = 1;  ///< powers of ten
  double operator()(double share) const {
    if (share <= 0) return kZeroAt;
    const double power = std::clamp(std::log10(share), static_cast<double>(low), static_cast<double>(high));
    return kBegin + (power - low) / (high - low) * (98 - kBegin);
  }
};

BandAxis band_axis_of(const Results& results) {
  BandAxis axis;
  const auto widen = [&axis](double share) {
    if (!std::isfinite(share) || share <= 0) return;
    axis.low = std::clamp(static_cast<int>(std::floor(std::log10(share))), -9, axis.low);
    axis.high = std::clamp(static_cast<int>(std::ceil(std::log10(share))), axis.high, 12);
  };
  for (const CellResult& cell : results.cells) {
    if (!cell.mechanism) continue;
    widen(cell.mechanism->band_used);
    for (const ForcedStep& step : cell.mechanism->forced) {
      widen(step.band_used);
      if (cell.mechanism->twins) widen(step.meaning_used);
    }
  }
  return axis;
}

const ForcedStep* worst_step(const Mechanism& mechanism) {
  const auto found =
      std::max_element(mechanism.forced.begin(), mechanism.forced.end(),
                       [](const ForcedStep& a, const ForcedStep& b) { return a.band_used < b.band_used; });
  return found == mechanism.forced.end() ? nullptr : &*found;
}

/// Is there a share of the band to show?
bool is_compared(const CellResult& cell) {
  if (!cell.mechanism) return false;
  const Mechanism& m = *cell.mechanism;
  return m.verdict == VerdictKind::identical || !m.forced.empty() || m.band_used != 0;
}

void draw_row(Markup& out, const BandAxis& axis, const CellResult& cell) {
  const double edge = axis(1);
  out.empty("rect",
            {{"x", "0"}, {"width", percent(edge)}, {"y", "0"}, {"height", "100%"}, {"class", "margin"}});
  if (!is_compared(cell)) return;
  out.empty("line",
            {{"x1", percent(edge)}, {"x2", percent(edge)}, {"y1", "0"}, {"y2", "100%"}, {"class", "edge"}});
  const Mechanism& mechanism = *cell.mechanism;
  const std::string css = row_css(cell, mechanism.verdict);
  for (const ForcedStep& step : mechanism.forced) {
    const double used = mechanism.twins ? step.arithmetic_used : step.band_used;
    if (!std::isnan(used)) {
      out.empty("circle", {{"cx", percent(axis(used))}, {"cy", "80%"}, {"r", "2.6"}, {"class", "seed " + css}});
    }
    if (!mechanism.twins || std::isnan(step.meaning_used)) continue;
    out.empty("circle",
              {{"cx", percent(axis(step.meaning_used))}, {"cy", "22%"}, {"r", "2.6"}, {"class", "ring " + css}});
  }
  if (std::isnan(mechanism.band_used)) return;
  const bool off = mechanism.band_used > std::pow(10.0, axis.high);
  row_mark(out, off ? 100 : axis(mechanism.band_used), off ? "right" : "dot", css);
}

void write_row(Markup& out, const BandAxis& axis, const CellResult& cell, const std::string& anchor) {
  const bool compared = is_compared(cell);
  out.open("tr");
  row_label(out, cell, anchor);
  out.open("td", {{"class", "plot"}});
  const std::string used = compared ? used_words(*cell.mechanism) : "no forced comparison";
  open_row_drawing(out, name_words(cell.scenario) + ": " + used, mechanism_words(cell));
  draw_row(out, axis, cell);
  out.close();
  if (!compared)
    out.element("span", {{"class", "nothing"}}, cell.failure ? "did not finish" : "no forced comparison");
  out.close();
  out.open("td", {{"class", "n"}}).element("b", {}, compared ? band_share(cell.mechanism->band_used) : "—");
  if (compared && !cell.mechanism->band_measured && !cell.mechanism->twins && cell.mechanism->verdict != VerdictKind::identical) {
    out.element("span", {{"class", "sub"}}, "estimated, not measured");
  }
  out.close();
  const ForcedStep* worst = cell.mechanism ? worst_step(*cell.mechanism) : nullptr;
  out.open("td", {{"class", "worst"}});
  if (worst && worst->band_used > 0) {
    out.text(worst->worst_tensor).element("span", {{"class", "sub"}}, fmt::format("step {}", worst->step));
  } else {
    out.text("—");
  }
  out.close();
  row_verdict(out, cell, cell.verdict);
  out.close();
}

void write_axis(Markup& out, const BandAxis& axis) {
  out.open("tfoot").open("tr").element("td", {{"class", "gap"}}, "").open("td", {{"class", "plot axis"}});
  open_row_drawing(out, "Axis", "Share of the rounding tolerance that was used; 1 is its limit");
  out.empty("line", {{"x1", "0"}, {"x2", "100%"}, {"y1", "0.5"}, {"y2", "0.5"}, {"class", "tk"}});
  axis_label(out, kZeroAt, "0");
  const int stride = (axis.high - axis.low) / 6 + 1;
  for (int power = axis.low; power <= axis.high; ++power) {
    if (power % stride != 0) continue;
    axis_label(
        out, axis(std::pow(10.0, power)),
        power >= -3 && power <= 4 ? fmt::format("{:g}", std::pow(10.0, power)) : fmt::format("1e{}", power));
  }
  out.close();
  out.open("div", {{"class", "ends"}}).element("span", {}, "← all bits equal");
  out.element("span", {}, "more than rounding explains →");
  out.close().close().element("td", {{"class", "gap"}, {"colspan", "3"}}, "").close().close();
}

}  // namespace

std::string band_plot(const Results& results) {
  const BandAxis axis = band_axis_of(results);
  const std::vector<std::string> anchors = cell_anchors(results);
  Markup out;
  out.open("table", {{"class", "rows bands"}}).open("thead").open("tr");
  out.element("th", {{"scope", "col"}}, "cell")
      .element("th", {{"scope", "col"}}, "largest difference / tolerance");
  out.element("th", {{"scope", "col"}, {"class", "n"}}, "tolerance used")
      .element("th", {{"scope", "col"}}, "largest in");
  out.element("th", {{"scope", "col"}}, "verdict").close().close().open("tbody");
  for (const std::size_t i : row_order(results)) write_row(out, axis, results.cells[i], anchors[i]);
  out.close();
  write_axis(out, axis);
  return out.take();
}

// The forest plot: paired differences with their intervals against the margin.
namespace {

/// A difference further out than this many margins would press the margin itself into a hair: it is shown off
/// scale.
constexpr double kMostMargins = 16;
/// The same where many rows are compared at a glance: intervals are to be told apart, outliers only named.
constexpr double kMostMarginsOfMany = 6;
constexpr std::size_t kMany = 8;

struct Forest {
  const Results& results;
  double margin = 0;
  int decimals = 3;
  Scale axis;  ///< to percent of the drawing's width
  const Outcome* first = nullptr;
};

void widen(Scale& axis, double value) {
  if (!std::isfinite(value)) return;
  axis.low = std::min(axis.low, value);
  axis.high = std::max(axis.high, value);
}

Forest forest_layout(const Results& results) {
  Forest forest{
      results, results.primary.margin, decimals_for(results.primary.margin), {0, 0, 0, 100}, nullptr};
  std::size_t rows = 0;
  for (const CellResult& cell : results.cells) {
    if (!cell.outcome || cell.anchor) continue;
    ++rows;
    if (!forest.first) forest.first = &*cell.outcome;
    widen(forest.axis, cell.outcome->primary.mean);
    for (const Interval& interval : {cell.outcome->primary.interval, cell.outcome->equivalence}) {
      widen(forest.axis, interval.low);
      widen(forest.axis, interval.high);
    }
    for (const double difference : cell.outcome->differences) widen(forest.axis, difference);
  }
  Scale& axis = forest.axis;
  if (forest.margin > 0 && std::isfinite(forest.margin)) {
    const double most = (rows > kMany ? kMostMarginsOfMany : kMostMargins) * forest.margin;
    axis.low = std::clamp(axis.low, -most, -1.6 * forest.margin);
    axis.high = std::clamp(axis.high, 1.6 * forest.margin, most);
  }
  if (!(axis.high > axis.low)) axis.low = -1, axis.high = 1;
  const AxisRange range = drawable(axis.low, axis.high);
  const double room = 0.045 * (range.high - range.low);
  axis.low = range.low - room;
  axis.high = range.high + room;
  return forest;
}

bool on_scale(const Scale& axis, double value) { return value >= axis.low && value <= axis.high; }

/// A horizontal line over an interval, cut at the edges of the drawing, with caps at the ends that are
/// inside.
void draw_interval(Markup& out, const Scale& axis, const Interval& interval, const std::string& css,
                   bool capped) {
  if (std::isnan(interval.low) || std::isnan(interval.high)) return;
  if (interval.high < axis.low || interval.low > axis.high) return;
  const double low = axis(std::max(interval.low, axis.low)), high = axis(std::min(interval.high, axis.high));
  out.empty("line",
            {{"x1", percent(low)}, {"x2", percent(high)}, {"y1", "42%"}, {"y2", "42%"}, {"class", css}});
  for (const double end : {interval.low, interval.high}) {
    if (!capped || end < axis.low || end > axis.high) continue;
    out.open("svg", {{"x", percent(axis(end))}, {"y", "42%"}, {"class", "mark"}});
    out.empty("path", {{"d", "M0-4.5v9"}, {"class", "cap " + css.substr(3)}}).close();
  }
}

std::string row_title(const Forest& forest, const CellResult& cell) {
  if (!cell.outcome) return name_words(cell.scenario) + ": no outcome";
  const MetricDifference& d = cell.outcome->primary;
  return fmt::format("{}: {}, {} interval {}", name_words(cell.scenario),
                     signed_number(d.mean, forest.decimals), level_words(d.interval.level),
                     interval_words(d.interval, forest.decimals));
}

void draw_background(Markup& out, const Forest& forest, bool with_zero) {
  const Scale& axis = forest.axis;
  if (forest.margin > 0 && std::isfinite(forest.margin)) {
    out.empty("rect", {{"x", percent(axis(-forest.margin))},
                       {"width", percent(axis(forest.margin) - axis(-forest.margin))},
                       {"y", "0"},
                       {"height", "100%"},
                       {"class", "margin"}});
  }
  if (!with_zero) return;
  const std::string zero = percent(axis(0));
  out.empty("line", {{"x1", zero}, {"x2", zero}, {"y1", "0"}, {"y2", "100%"}, {"class", "zero"}});
}

void draw_cell(Markup& out, const Forest& forest, const CellResult& cell) {
  const Outcome& outcome = *cell.outcome;
  const Scale& axis = forest.axis;
  const std::string css = row_css(cell, outcome.verdict);
  for (const double difference : outcome.differences) {
    if (!std::isfinite(difference) || !on_scale(axis, difference)) continue;
    out.empty("circle",
              {{"cx", percent(axis(difference))}, {"cy", "80%"}, {"r", "2.6"}, {"class", "seed " + css}});
  }
  draw_interval(out, axis, outcome.primary.interval, "ci " + css, true);
  draw_interval(out, axis, outcome.equivalence, "eq " + css, false);
  const double mean = outcome.primary.mean;
  if (std::isnan(mean)) return;
  if (mean < axis.low) {
    row_mark(out, 0, "left", css);
  } else if (mean > axis.high) {
    row_mark(out, 100, "right", css);
  } else {
    row_mark(out, axis(mean), cell.power_control ? "diamond" : "dot", css);
  }
}

void write_row(Markup& out, const Forest& forest, const CellResult& cell, const std::string& anchor) {
  out.open("tr");
  row_label(out, cell, anchor);
  out.open("td", {{"class", "plot"}});
  open_row_drawing(out, row_title(forest, cell),
                   cell.outcome ? clean_line(cell.outcome->sentence) : note_words(cell));
  draw_background(out, forest, cell.outcome.has_value());
  if (cell.outcome) draw_cell(out, forest, cell);
  out.close();
  if (!cell.outcome) {
    out.element("span", {{"class", "nothing"}}, cell.failure ? "did not finish" : "no outcome");
  }
  out.close();
  if (cell.outcome) {
    const MetricDifference& d = cell.outcome->primary;
    const bool off = std::isfinite(d.mean) && !on_scale(forest.axis, d.mean);
    out.open("td", {{"class", "n"}}).element("b", {}, signed_number(d.mean, forest.decimals));
    if (off) out.element("span", {{"class", "sub"}}, "off scale");
    out.close();
    out.open("td", {{"class", "n ci-text"}});
    out.text(cell.outcome->n < 2 ? "one seed: none" : interval_words(d.interval, forest.decimals));
    if (const std::string terms = own_terms(forest.results, cell); !terms.empty())
      out.element("span", {{"class", "sub"}}, terms);
    out.close();
  } else {
    out.element("td", {{"class", "n"}}, "—").element("td", {{"class", "n ci-text"}}, "—");
  }
  row_verdict(out, cell, cell.failure || !cell.outcome ? cell.verdict : cell.outcome->verdict);
  out.close();
}

void write_axis(Markup& out, const Forest& forest) {
  const Scale& axis = forest.axis;
  out.open("tfoot").open("tr").element("td", {{"class", "gap"}}, "").open("td", {{"class", "plot axis"}});
  open_row_drawing(out, "Axis", "Difference, cell minus reference");
  out.empty("line", {{"x1", "0"}, {"x2", "100%"}, {"y1", "0.5"}, {"y2", "0.5"}, {"class", "tk"}});
  const Ticks ticks = nice_ticks(axis.low, axis.high, 7);
  for (const double tick : ticks.values) {
    // A label nearer to the edge than half its width would stand out of the drawing.
    if (axis(tick) < 2 || axis(tick) > 98) continue;
    axis_label(out, axis(tick), tick == 0 ? "0" : signed_number(tick, ticks.decimals));
  }
  out.close();
  out.open("div", {{"class", "ends"}});
  const MetricDifference* d = forest.first ? &forest.first->primary : nullptr;
  const bool directed = d && has_direction(*d);
  const bool up = !d || d->higher_is_better;
  out.element("span", {}, directed ? (up ? "← worse" : "← better") : "← lower");
  out.element("span", {}, directed ? (up ? "better →" : "worse →") : "higher →");
  out.close().close().element("td", {{"class", "gap"}, {"colspan", "3"}}, "").close().close();
}

void write_key(Markup& out, const Forest& forest) {
  const double inner = forest.first ? forest.first->equivalence.level : 1 - 2 * forest.results.primary.alpha;
  const auto glyph = [&](const char* drawing, const std::string& words) {
    out.open("span").open("svg", {{"class", "key"}, {"viewBox", "0 0 34 14"}, {"aria-hidden", "true"}});
    out.raw(drawing).close().text(words).close();
  };
  out.open("p", {{"class", "keys"}});
  glyph(
      "<line x1=\"1\" x2=\"33\" y1=\"7\" y2=\"7\" class=\"ci ok\"/><path d=\"M1 2.5v9M33 2.5v9\" class=\"cap "
      "ok\"/>",
      interval_name(forest.results));
  glyph(
      "<line x1=\"4\" x2=\"30\" y1=\"7\" y2=\"7\" class=\"eq ok\"/><circle cx=\"17\" cy=\"7\" r=\"4.3\" "
      "class=\"m ok\"/>",
      common_level(forest.results) ? level_words(inner) + " interval: inside the margin is equivalent"
                                   : "narrower interval: inside the margin is equivalent");
  glyph(
      "<circle cx=\"8\" cy=\"7\" r=\"2.6\" class=\"seed ok\"/><circle cx=\"15\" cy=\"7\" r=\"2.6\" "
      "class=\"seed ok\"/>"
      "<circle cx=\"25\" cy=\"7\" r=\"2.6\" class=\"seed ok\"/>",
      "single seeds");
  glyph("<rect x=\"1\" y=\"1\" width=\"32\" height=\"12\" class=\"margin\"/>",
        fmt::format("margin ± {:g}", forest.margin));
  glyph("<path d=\"M17 .5 23.5 7 17 13.5 10.5 7z\" class=\"m ctl\"/>", "power control");
  out.close();
}

void write_seed_table(Markup& out, const Forest& forest) {
  out.open("details").element("summary", {}, "Differences of single seeds");
  open_scroll(out, "Differences of single seeds");
  out.open("table", {{"class", "plain"}}).open("thead").open("tr");
  for (const char* head : {"cell", "n", "difference by seed"}) out.element("th", {{"scope", "col"}}, head);
  out.close().close().open("tbody");
  for (const std::size_t index : row_order(forest.results)) {
    const CellResult& cell = forest.results.cells[index];
    if (!cell.outcome) continue;
    const Outcome& o = *cell.outcome;
    out.open("tr")
        .element("th", {{"scope", "row"}}, name_words(cell.scenario))
        .element("td", {{"class", "n"}}, std::to_string(o.n));
    std::string list;
    for (std::size_t i = 0; i < o.differences.size(); ++i) {
      const std::string seed = i < o.seeds.size() ? std::to_string(o.seeds[i]) : "?";
      list += (i > 0 ? " · " : "") + seed + ": " + signed_number(o.differences[i], forest.decimals + 1);
    }
    out.element("td", {{"class", "seeds"}}, list).close();
  }
  out.close().close().close().close();
}

/// What the rows that follow have in common, where the plot has rows of several kinds.
std::string group_of(const Results& results, const CellResult& cell) {
  if (cell.noise) return "Noise only. lockstep derives no margin from it.";
  if (cell.power_control)
    return "Power controls: if they were not found to differ, no result above would mean anything.";
  if (is_of_grown_batch(results, cell)) {
    return fmt::format("The batch grows, compared with {} {}.", name_words(cell.reference),
                       samples_in_words(cell.outcome ? cell.outcome->samples_ratio : 1));
  }
  const std::optional<AnswerGrid> grid = grid_of(results);
  return grid ? "Equal global batch, each cell compared with the same one at " + held_against(results, *grid) + "."
              : "Equal global batch.";
}

bool has_groups(const Results& results) {
  return std::any_of(results.cells.begin(), results.cells.end(), [&results](const CellResult& cell) {
    return cell.noise || (!cell.power_control && is_of_grown_batch(results, cell));
  });
}

}  // namespace

std::string forest_plot(const Results& results) {
  const Forest forest = forest_layout(results);
  const std::vector<std::string> anchors = cell_anchors(results);
  Markup out;
  write_key(out, forest);
  out.open("table", {{"class", "rows"}}).open("thead").open("tr");
  out.element("th", {{"scope", "col"}}, "cell")
      .element("th", {{"scope", "col"}}, "difference, cell − reference");
  out.element("th", {{"scope", "col"}, {"class", "n"}}, "mean");
  const std::string pairs = pairs_words(results);
  out.element("th", {{"scope", "col"}, {"class", "n"}},
              interval_name(results) + (pairs.empty() ? "" : ", " + pairs));
  out.element("th", {{"scope", "col"}}, "verdict").close().close();
  out.open("tbody");
  const bool groups = has_groups(results);
  std::string group;
  for (const std::size_t i : row_order(results)) {
    if (const std::string next = group_of(results, results.cells[i]); groups && next != group) {
      out.open("tr", {{"class", "group"}}).element("td", {{"colspan", "5"}}, next).close();
      group = next;
    }
    write_row(out, forest, results.cells[i], anchors[i]);
  }
  out.close();
  write_axis(out, forest);
  out.close();
  write_seed_table(out, forest);
  return out.take();
}

}  // namespace lockstep
