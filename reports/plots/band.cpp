#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/answer/stats/outcome.h"
#include "reports/html/parts.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"

// Rows with a drawing each: how much of the floating-point band each cell's gradients used.

namespace lockstep {
namespace {

/// Percent of a row's height: what the row comes to, its single values below and those in float64 above.
constexpr double kMiddle = 42, kBelow = 80, kAbove = 22;

/// Decimal logarithms; "no difference at all", which a logarithm does not reach, stands at the left end.
struct BandAxis {
  int low = -3, high = 1;  ///< powers of ten
  double zero() const { return low - 0.07 * (high - low); }
  Scale scale() const { return {zero(), static_cast<double>(high), 3, 98}; }
  double operator()(double share) const {
    return share <= 0                     ? zero()
           : share > std::pow(10.0, high) ? HUGE_VAL
                                          : std::max(std::log10(share), static_cast<double>(low));
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

/// Is there a share of the band to show?
bool is_compared(const CellResult& cell) {
  if (!cell.mechanism) return false;
  const Mechanism& m = *cell.mechanism;
  return m.verdict == VerdictKind::identical || !m.forced.empty() || m.band_used != 0;
}

std::string band_of(const BandAxis& axis, const CellResult& cell) {
  const bool compared = is_compared(cell);
  Strip strip(axis.scale(),
              name_words(cell.scenario) + ": " +
                  (compared ? band_words(cell.mechanism->band_used) : "no forced comparison"),
              cell.mechanism ? style_of(cell.mechanism->verdict).words : "not compared", kMiddle);
  if (!compared) return strip.take(cell.failure ? "did not finish" : "no forced comparison");
  // Inside the band it would be read as the same.
  if (cell.mechanism->verdict == VerdictKind::divergent && cell.mechanism->band_used <= 1)
    return strip.take("differs before its gradients");
  strip.area(-HUGE_VAL, axis(1));
  strip.rule(axis(1), "edge");
  const Mechanism& mechanism = *cell.mechanism;
  const std::string css = row_css(cell, mechanism.verdict);
  for (const ForcedStep& step : mechanism.forced) {
    strip.value(axis(mechanism.twins ? step.arithmetic_used : step.band_used), "seed " + css, kBelow);
    if (mechanism.twins) strip.value(axis(step.meaning_used), "ring " + css, kAbove);
  }
  return strip.mark(axis(mechanism.band_used), "dot", css).take();
}

DataRow band_row(const BandAxis& axis, const CellResult& cell, const std::string& anchor) {
  Datum used = is_compared(cell) ? Datum(band_share(cell.mechanism->band_used), "strong") : Datum("—");
  if (is_compared(cell) && !cell.mechanism->band_measured && !cell.mechanism->twins &&
      cell.mechanism->verdict != VerdictKind::identical)
    used.note("estimated, not measured");
  DataRow row({label_of(cell, anchor), Datum().drawn(band_of(axis, cell)), used});
  add_answer(row, cell, cell.verdict);
  return row;
}

std::string band_foot(const BandAxis& axis) {
  std::vector<Tick> ticks{{axis.zero(), "0"}};
  const int stride = (axis.high - axis.low) / 6 + 1;
  for (int power = axis.low; power <= axis.high; ++power) {
    // Beside the end, which is 0, no label has room.
    if (power % stride == 0 && axis.scale()(power) > 9)
      ticks.push_back({static_cast<double>(power), power >= -3 && power <= 4
                                                       ? fmt::format("{:g}", std::pow(10.0, power))
                                                       : fmt::format("1e{}", power)});
  }
  return axis_drawing(axis.scale(), ticks, "Share of the rounding tolerance that was used; 1 is its limit",
                      "← all bits equal", "more than rounding explains →");
}

}  // namespace

Section band_section(const Page& page) {
  const BandAxis axis = band_axis_of(page.results);
  Table table{.css = "rows bands",
              .columns = drawn_columns("largest difference / tolerance", {"tolerance used"}),
              .rows = {},
              .foot = band_foot(axis)};
  for (Column& column : answer_columns()) table.columns.push_back(std::move(column));
  for (const std::size_t i : row_order(page.results))
    table.rows.push_back(band_row(axis, page.results.cells[i], page.anchors[i]));
  const bool twins = std::ranges::any_of(
      page.results.cells, [](const CellResult& cell) { return cell.mechanism && cell.mechanism->twins; });
  const QuestionPlan& asked = question_named(page.results.question);
  if (asked.references == References::own) {
    std::string title(asked.help);
    title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
    return {"band", title + "?", "", {tabled(std::move(table))}};
  }
  return {
      "band",
      "Are the gradients the same, up to rounding?",
      twins ? "Shares of the tolerance; 1 is its limit. Rings: the difference in float64. Dots: rounding, the distance "
              "from the own float64 result. Pale: single forced steps."
            : "What summing in another order changes is the tolerance; 1 is its limit. Pale dots: single forced steps.",
      {tabled(std::move(table))}};
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

Forest forest_layout(const Results& results) {
  Forest forest{
      results, results.primary.margin, decimals_for(results.primary.margin), {0, 0, 0, 100}, nullptr};
  std::size_t rows = 0;
  Reach reach{0, 0};
  for (const CellResult& cell : results.cells) {
    if (!cell.outcome || cell.anchor) continue;
    ++rows;
    if (!forest.first) forest.first = &*cell.outcome;
    reach.take(cell.outcome->primary.mean);
    for (const Interval& interval : {cell.outcome->primary.interval, cell.outcome->equivalence}) {
      reach.take(interval.low);
      reach.take(interval.high);
    }
    for (const double difference : cell.outcome->differences) reach.take(difference);
  }
  Scale& axis = forest.axis;
  axis.low = reach.low, axis.high = reach.high;
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

std::string row_title(const Forest& forest, const CellResult& cell) {
  if (!cell.outcome) return name_words(cell.scenario) + ": no outcome";
  const MetricDifference& d = cell.outcome->primary;
  return fmt::format("{}: {}, {} interval {}", name_words(cell.scenario),
                     signed_number(d.mean, forest.decimals), level_words(d.interval.level),
                     interval_words(d.interval, forest.decimals));
}

std::string difference_of(const Forest& forest, const CellResult& cell) {
  Strip strip(forest.axis, row_title(forest, cell),
              cell.outcome ? clean_line(cell.outcome->sentence) : "", kMiddle);
  if (forest.margin > 0 && std::isfinite(forest.margin)) strip.area(-forest.margin, forest.margin);
  if (!cell.outcome) return strip.take(cell.failure ? "did not finish" : "no outcome");
  const Outcome& outcome = *cell.outcome;
  const std::string css = row_css(cell, outcome.verdict);
  strip.rule(0, "zero");
  for (const double difference : outcome.differences) strip.value(difference, "seed " + css, kBelow);
  strip.span(outcome.primary.interval.low, outcome.primary.interval.high, "ci " + css, true);
  strip.span(outcome.equivalence.low, outcome.equivalence.high, "eq " + css);
  return strip.mark(outcome.primary.mean, cell.power_control ? "diamond" : "dot", css).take();
}

DataRow forest_row(const Forest& forest, const CellResult& cell, const std::string& anchor) {
  Datum mean = "—";
  if (cell.outcome) {
    const MetricDifference& d = cell.outcome->primary;
    const bool off = std::isfinite(d.mean) && (d.mean < forest.axis.low || d.mean > forest.axis.high);
    mean = Datum(difference_and_half(d, forest.decimals), "strong").note(own_terms(forest.results, cell));
    mean.note(cell.outcome->n < 2 ? "one seed: no interval" : "").note(off ? "off scale" : "");
  }
  DataRow row({label_of(cell, anchor), Datum().drawn(difference_of(forest, cell)), mean});
  add_answer(row, cell, cell.failure || !cell.outcome ? cell.verdict : cell.outcome->verdict);
  return row;
}

std::string forest_foot(const Forest& forest) {
  const Ticks found = nice_ticks(forest.axis.low, forest.axis.high, 7);
  std::vector<Tick> ticks;
  for (const double tick : found.values) {
    // A label nearer to the edge than half its width would stand out of the drawing.
    if (forest.axis(tick) >= 2 && forest.axis(tick) <= 98)
      ticks.push_back({tick, tick == 0 ? "0" : signed_number(tick, found.decimals)});
  }
  const MetricDifference* d = forest.first ? &forest.first->primary : nullptr;
  const bool directed = d && d->has_direction, up = !d || d->higher_is_better;
  return axis_drawing(forest.axis, ticks, "Difference, cell minus reference",
                      directed ? (up ? "← worse" : "← better") : "← lower",
                      directed ? (up ? "better →" : "worse →") : "higher →");
}

std::string keys_of(const Forest& forest) {
  const double inner = forest.first ? forest.first->equivalence.level : 1 - 2 * forest.results.primary.alpha;
  const std::pair<const char*, std::string> keys[] = {
      {R"(<path d="M1 7H33M1 2.5v9M33 2.5v9" class="ci cap ok"/>)", interval_name(forest.results)},
      {R"(<path d="M4 7H30" class="eq ok"/><circle cx="17" cy="7" r="4.3" class="m ok"/>)",
       (common_level(forest.results) ? level_words(inner) : "narrower") + " interval: inside the margin is equivalent"},
      {R"(<g class="seed ok"><circle cx="9" cy="7" r="2.6"/><circle cx="17" cy="7" r="2.6"/></g>)",
       "single seeds"},
      {R"(<rect x="1" y="1" width="32" height="12" class="margin"/>)", fmt::format("margin ± {:g}", forest.margin)},
      {R"(<path d="M17 .5 23.5 7 17 13.5 10.5 7z" class="m ctl"/>)", "power control"}};
  Markup out;
  out.open("p", {{"class", "keys"}});
  for (const auto& [drawing, words] : keys) {
    out.open("span").open("svg", {{"class", "key"}, {"viewBox", "0 0 34 14"}, {"aria-hidden", "true"}});
    out.raw(drawing).close().text(words).close();
  }
  return out.take();
}

Table seeds_of(const Forest& forest) {
  Table table{.columns = {"cell", numbers("n"), "difference by seed"}, .rows = {}};
  table.columns.back().css = "seeds";
  for (const std::size_t index : row_order(forest.results)) {
    const CellResult& cell = forest.results.cells[index];
    if (!cell.outcome) continue;
    const Outcome& o = *cell.outcome;
    std::string list;
    for (std::size_t i = 0; i < o.differences.size(); ++i) {
      const std::string seed = i < o.seeds.size() ? std::to_string(o.seeds[i]) : "?";
      list += (i > 0 ? " · " : "") + seed + ": " + signed_number(o.differences[i], forest.decimals + 1);
    }
    table.rows.push_back({{name_words(cell.scenario), std::to_string(o.n), list}});
  }
  return table;
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
  return std::ranges::any_of(results.cells, [&results](const CellResult& cell) {
    return cell.noise || (!cell.power_control && is_of_grown_batch(results, cell));
  });
}

}  // namespace

Section outcome_section(const Page& page) {
  const Results& results = page.results;
  const Forest forest = forest_layout(results);
  Table table{.css = "rows",
              .columns = drawn_columns("cell − reference", {"difference"}),
              .rows = {},
              .foot = forest_foot(forest)};
  for (Column& column : answer_columns()) table.columns.push_back(std::move(column));
  const bool groups = has_groups(results);
  std::string group;
  for (const std::size_t i : row_order(results)) {
    table.rows.push_back(forest_row(forest, results.cells[i], page.anchors[i]));
    const std::string next = group_of(results, results.cells[i]);
    if (groups && next != group) table.rows.back().group = next;
    group = next;
  }
  return {"outcome",
          "Do the cells reach the same metric?",
          fmt::format("{} after {}: cell minus reference, paired by seed.", metric_words(results.primary.metric),
                      counted(results.steps, "step")),
          {tabled(std::move(table)), drawing(keys_of(forest)),
           on_pages(fold("Differences of single seeds", {tabled(seeds_of(forest))}))}};
}

}  // namespace lockstep
