#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/answer/stats/controls.h"
#include "harness/answer/stats/outcome.h"
#include "reports/html/parts.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"

// Every other metric, and where one reads better while the primary reads worse.

namespace lockstep {
namespace {

std::string reading(const MetricDifference& d) {
  if (!leaves_out_zero(d) || is_negligible(d)) return "";
  if (!d.has_direction) return d.mean > 0 ? "higher" : "lower";
  return (d.mean > 0) == d.higher_is_better ? "better" : "worse";
}

/// Enough decimals for the smaller of the difference and its interval's half width, and no more than six.
int decimals_of(const MetricDifference& d) {
  const double half = (d.interval.high - d.interval.low) / 2;
  const double size = std::isfinite(half) && half > 0 ? half : std::abs(d.mean);
  return std::clamp(decimals_for(size > 0 ? size : 0.03), 0, 6);
}

DataRow metric_row(const MetricDifference& d, const Outcome& outcome, bool is_primary) {
  const MetricDifference& primary = outcome.primary;
  const bool clash = !is_primary && disagrees_in_sign(primary, d);
  const int decimals = decimals_of(d);
  const std::string primary_reads = primary.higher_is_better == (primary.mean > 0) ? "better" : "worse";
  std::string text = reading(d);
  if (clash) text += fmt::format(", although {} is {}", metric_words(primary.metric), primary_reads);
  DataRow row({metric_words(d.metric), compact_number(d.reference_mean), compact_number(d.cell_mean),
               signed_number(d.mean, decimals), outcome.n < 2 ? "one seed: none" : interval_words(d.interval, decimals),
               text.empty() ? "no difference shown" : text});
  if (is_primary) row.cells.front().tag = "primary";
  if (clash) row.css = "clash";
  return row;
}

}  // namespace

Section metrics_section(const Page& page) {
  const Results& results = page.results;
  constexpr std::size_t kShownOpen = 8;
  Section section{"metrics",
                  "All metrics",
                  "Paired differences, cell minus reference. A marked row disagrees with the primary metric: better where "
                  "it is worse, both intervals excluding 0.",
                  {}};
  for (std::size_t i = 0; i < results.cells.size(); ++i) {
    const CellResult& cell = results.cells[i];
    if (!cell.outcome) continue;
    const Outcome& outcome = *cell.outcome;
    std::vector<Part> parts;
    if (!outcome.sentence.empty()) parts.push_back(prose(outcome.sentence));
    for (const std::string& note : outcome.notes)
      parts.push_back(prose(clean_line(note)));  // What could not be compared.
    Table table{
        .css = "metrics",
        .columns = {"metric", numbers(shorten(name_words(cell.reference), 24)), numbers("cell"), numbers("difference"),
                    numbers(fmt::format("{} interval, n {}", level_words(outcome.primary.interval.level), outcome.n)),
                    "reading"},
        .rows = {metric_row(outcome.primary, outcome, true)}};
    for (const MetricDifference& other : outcome.others) table.rows.push_back(metric_row(other, outcome, false));
    const bool clashes = std::ranges::any_of(table.rows, [](const DataRow& row) { return row.css == "clash"; });
    parts.push_back(tabled(std::move(table)));
    const std::string id = "metrics-" + page.anchors[i];
    const Note verdict = verdict_note(cell, outcome.verdict);
    if (results.cells.size() > kShownOpen && !clashes) {
      section.parts.push_back(fold(name_words(cell.scenario), std::move(parts), id, verdict));
      continue;
    }
    section.parts.push_back(heading(name_words(cell.scenario), id, verdict));
    section.parts.insert(section.parts.end(), parts.begin(), parts.end());
  }
  return section;
}

// How sure the answers are: spread, power, the seeds that would decide; other estimates.
namespace {

/// Cells with an outcome of two seeds or more, in the order of the row plots.
std::vector<std::size_t> cells_of(const Results& results) {
  std::vector<std::size_t> all;
  for (const std::size_t i : row_order(results)) {
    if (results.cells[i].outcome && results.cells[i].outcome->n >= 2) all.push_back(i);
  }
  return all;
}

std::string seeds_needed_words(int seeds) {
  if (seeds <= 0) return "decided";
  return seeds >= 10000 ? "10000 or more" : std::to_string(seeds);
}

/// Decimals for spreads: one more than the margin has use for.
std::string spread(double value, double margin) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals_for(margin) + 1)
                              : compact_number(value);
}

std::string power_drawing(const CellResult& cell) {
  const Outcome& o = *cell.outcome;
  Strip strip({0, 1, 3, 97}, name_words(cell.scenario) + ": power",
              fmt::format("{} if there is no difference, {} if it is half the margin", probability_words(o.power),
                          probability_words(o.power_half)));
  const std::string css = o.power >= 0.8 ? "c0" : "c1";
  return strip.area(0.8, 1).mark(o.power_half, "ring", css).mark(o.power, "dot", css).take();
}

Table powers_of(const Page& page, const std::vector<std::size_t>& cells) {
  Table table{.css = "rows power",
              .columns = drawn_columns("● no difference, ○ half the margin",
                                       {"n", "sd", "upper bound", "power at 0", "power at ½ margin", "seeds at 0",
                                        "seeds at ½ margin", "smallest visible"}),
              .rows = {}};
  for (const std::size_t i : cells) {
    const CellResult& cell = page.results.cells[i];
    const Outcome& o = *cell.outcome;
    const auto seeds = [&o](double size, int needed) {
      return needed > 0 && leaves_out(o.primary.interval, size) ? "excluded" : seeds_needed_words(needed);
    };
    table.rows.push_back(
        {{label_of(cell, page.anchors[i]), Datum().drawn(power_drawing(cell)), std::to_string(o.n),
          spread(o.primary.sd, o.margin), spread(o.sd_upper, o.margin), probability_words(o.power),
          probability_words(o.power_half), seeds(0, o.seeds_needed), seeds(o.margin / 2, o.seeds_needed_half),
          o.detectable > 0 ? spread(o.detectable, o.margin) : "not known"}});
  }
  return table;
}

Part p_values(const Page& page, const std::vector<std::size_t>& cells) {
  Table table{.columns = {"cell", numbers("not equivalent"), numbers("no difference"), numbers("no difference, Holm")},
              .rows = {}};
  for (const std::size_t i : cells) {
    const CellResult& cell = page.results.cells[i];
    const bool in_family = !cell.power_control && !cell.noise;
    table.rows.push_back(
        {{name_words(cell.scenario), probability_words(cell.outcome->p_equivalent),
          probability_words(cell.outcome->p_different), in_family ? probability_words(cell.outcome->p_holm) : "—"}});
  }
  return fold("p values, plain and Holm-adjusted over the cells",
              {tabled(std::move(table)), prose("Not equivalent: the larger p of both one-sided tests. No difference: "
                                               "p of the two-sided test. Holm: for one cell picked from all.")});
}

Table estimates_of(const Page& page, const std::vector<std::size_t>& cells) {
  const int decimals = decimals_for(page.results.primary.margin);
  Table table{
      .css = "plain stack", .columns = {"cell", "estimate", numbers("value"), numbers("interval"), "by"}, .rows = {}};
  for (const std::size_t i : cells) {
    const CellResult& cell = page.results.cells[i];
    for (const Estimate& e : cell.outcome->estimates) {
      table.rows.push_back(
          {{name_words(cell.scenario), clean_line(e.what), signed_number(e.value, decimals),
            interval_words(e.interval, decimals),
            fmt::format("{}, {:.3g} %, n {}", clean_line(e.method), 100 * e.interval.level, cell.outcome->n)}});
    }
  }
  return table;
}

}  // namespace

Section power_section(const Page& page) {
  const std::vector<std::size_t> cells = cells_of(page.results);
  if (cells.empty()) return {};
  Section section{"power",
                  "How sure is that?",
                  "Power: the probability that these seeds show equivalence if the true difference is 0, or half the "
                  "margin, from the upper bound of the standard deviation (level 0.8). Seeds: "
                  "those that a new run needs for 0.8; excluded: the interval excludes such a difference. Smallest "
                  "visible: the true difference that so many seeds find with probability 0.8.",
                  {tabled(powers_of(page, cells)), p_values(page, cells)}};
  for (const ControlledQuestion& question : controlled_questions(page.results))
    if (const std::string sight = sight_in_words(question); !sight.empty())
      section.parts.push_back(prose(clean_line(sight) + "."));
  if (Table estimates = estimates_of(page, cells); !estimates.rows.empty())
    section.parts.push_back(
        fold("Mean, median and interquartile mean of the differences", {tabled(std::move(estimates))}));
  return section;
}

// Seeds added look by look: what each look said, and how much of alpha it spent.
namespace {

std::string analysis_words(const Look& look) {
  return fmt::format("{} seeds: {}, at {:.2g}, {:.2g} spent", look.n, style_of(look.verdict).words,
                     look.alpha_here, look.alpha_spent);
}

std::string ended_words(const Sequential& s) {
  return s.ended == InterimEnd::decided      ? "decided"
         : s.ended == InterimEnd::most_seeds ? "the most seeds allowed were used"
                                             : "the time budget is spent";
}

std::string analyses_drawing(const CellResult& cell, const Scale& axis) {
  const Sequential& s = *cell.outcome->sequential;
  std::string description;
  for (const Look& look : s.looks) description += analysis_words(look) + ". ";
  Strip strip(axis, name_words(cell.scenario) + ": interim analyses", description);
  const std::string css = row_css(cell, cell.outcome->verdict);
  strip.span(0, s.looks.back().n, "ci " + css);
  for (const Look& look : s.looks) strip.mark(look.n, look.verdict == VerdictKind::inconclusive ? "ring" : "dot", css);
  return strip.take();
}

}  // namespace

Section looks_section(const Page& page) {
  std::vector<std::size_t> cells;
  Scale axis{0, 1, 2, 97};
  for (const std::size_t i : row_order(page.results)) {
    const CellResult& cell = page.results.cells[i];
    if (!cell.outcome || !cell.outcome->sequential || cell.outcome->sequential->looks.empty()) continue;
    cells.push_back(i);
    axis.high = std::max({axis.high, static_cast<double>(cell.outcome->sequential->most),
                          static_cast<double>(cell.outcome->sequential->looks.back().n)});
  }
  if (cells.empty()) return {};
  std::vector<Tick> ticks = numbered(step_ticks(axis.high, 7));
  Table table{.css = "rows looks",
              .columns = drawn_columns("interim analyses", {"seeds", "level of the last analysis, α spent"}),
              .rows = {},
              .foot = axis_drawing(axis, ticks, "Paired seeds", "", "paired seeds")};
  table.columns.back().css = "ci-text";
  table.columns.emplace_back("reason for ending").css = "v";
  Table all{
      .columns = {"cell", numbers("seeds"), numbers("information"), numbers("level"), numbers("α spent"), "verdict"},
      .rows = {}};
  for (const std::size_t i : cells) {
    const CellResult& cell = page.results.cells[i];
    const Sequential& s = *cell.outcome->sequential;
    const std::string words = verdict_note(cell, cell.outcome->verdict).text;
    table.rows.push_back(
        {{label_of(cell, page.anchors[i]), Datum().drawn(analyses_drawing(cell, axis)),
          fmt::format("{} of {}", s.looks.back().n, s.most),
          fmt::format("{:.2g}, {:.2g}", s.looks.back().alpha_here, s.looks.back().alpha_spent),
          Datum(words, "t-" + row_css(cell, cell.outcome->verdict)).note(ended_words(s))}});
    for (const Look& look : s.looks) {
      all.rows.push_back({{name_words(cell.scenario), std::to_string(look.n), fmt::format("{:.3g}", look.information),
                           fmt::format("{:.3g}", look.alpha_here), fmt::format("{:.3g}", look.alpha_spent),
                           style_of(look.verdict).words}});
    }
  }
  return {"looks",
          "How many seeds did it take?",
          "Seeds were added until the verdict was decided. Each interim analysis has its own level, and together they "
          "spend no more than α. Ring: the verdict stayed open. Dot: it was decided.",
          {tabled(std::move(table)), fold("All interim analyses", {tabled(std::move(all))})}};
}

// Steps to a target: who got there, and after how many samples.
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

std::string times_drawing(const CellResult& cell, double times, const Scale& axis) {
  const TargetReach& t = *cell.outcome->target;
  Strip strip(axis, name_words(cell.scenario) + ": samples to the target, over the reference's",
              fmt::format("{} against {} steps", steps_words(t.cell_median), steps_words(t.reference_median)));
  strip.rule(0, "zero");
  if (std::isnan(times) || times <= 0) return strip.take();
  const std::string css = row_css(cell, cell.outcome->verdict);
  const double at = std::max(std::log2(times), axis.low);
  if (at <= axis.high) strip.span(std::min(at, 0.0), std::max(at, 0.0), "ci " + css);
  return strip.mark(at, cell.power_control ? "diamond" : "dot", css).take();
}

}  // namespace

Section target_section(const Page& page) {
  const Results& results = page.results;
  std::vector<std::size_t> cells;
  for (const std::size_t i : row_order(results)) {
    if (results.cells[i].outcome && results.cells[i].outcome->target) cells.push_back(i);
  }
  if (cells.empty()) return {};
  const Scale axis = axis_of(results, cells);
  Table table{.css = "rows power",
              .columns = drawn_columns("samples, over the reference's",
                                       {"times", "steps", "reference", "reached, of n", "sooner, later, neither", "p"}),
              .rows = {}};
  for (const std::size_t i : cells) {
    const CellResult& cell = results.cells[i];
    const TargetReach& t = *cell.outcome->target;
    const double times = times_of(results, cell);
    table.rows.push_back({{label_of(cell, page.anchors[i]), Datum().drawn(times_drawing(cell, times, axis)),
                           Datum(reached_words(times)).note(bounds_words(t.ratio_interval, reached_words)),
                           Datum(steps_words(t.cell_median)).note(bounds_words(t.cell_interval, steps_words)),
                           Datum(steps_words(t.reference_median)).note(bounds_words(t.reference_interval, steps_words)),
                           fmt::format("{}, {} of {}", t.cell_reached, t.reference_reached, t.n),
                           fmt::format("{}, {}, {}", t.sooner, t.later, t.tied), probability_words(t.p)}});
  }
  return {
      "target",
      "How soon do they reach the target?",
      fmt::format("Samples until {} reached {:g}, over the reference's, median over pairs of one seed: right of the "
                  "line is later. Arrowhead: half of the runs never did. Below each median: its interval and level. "
                  "Sooner and later count pairs; p is that of the sign test.",
                  metric_words(results.primary.metric), results.cells[cells.front()].outcome->target->target),
      {tabled(std::move(table))}};
}

}  // namespace lockstep
