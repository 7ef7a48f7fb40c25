#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/answer/stats/outcome.h"
#include "reports/html/parts.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"

// Every other metric, and where one reads better while the primary reads worse.

namespace lockstep {
namespace {

std::string reading(const MetricDifference& d) {
  if (!(d.interval.low > 0 || d.interval.high < 0)) return "";
  if (!has_direction(d)) return d.mean > 0 ? "higher" : "lower";
  return (d.mean > 0) == d.higher_is_better ? "better" : "worse";
}

/// Enough decimals for the smaller of the difference and its interval's half width, and no more than six.
int decimals_of(const MetricDifference& d) {
  const double half = (d.interval.high - d.interval.low) / 2;
  const double size = std::isfinite(half) && half > 0 ? half : std::abs(d.mean);
  return std::clamp(decimals_for(size > 0 ? size : 0.03), 0, 6);
}

void write_metric_row(Markup& out, const MetricDifference& d, const MetricDifference& primary,
                      bool is_primary, int n) {
  const bool clash = !is_primary && disagrees_in_sign(primary, d);
  const int decimals = decimals_of(d);
  out.open("tr", {{"class", clash ? "clash" : ""}});
  if (is_primary)
    out.open("th", {{"scope", "row"}});
  else
    out.open("td");
  out.text(metric_words(d.metric));
  if (is_primary) out.text(" ").element("span", {{"class", "tag"}}, "primary");
  out.close();
  out.element("td", {{"class", "n"}}, compact_number(d.reference_mean))
      .element("td", {{"class", "n"}}, compact_number(d.cell_mean));
  out.element("td", {{"class", "n"}}, signed_number(d.mean, decimals));
  out.element("td", {{"class", "n"}}, n < 2 ? "one seed: none" : interval_words(d.interval, decimals));
  const std::string primary_reads = primary.higher_is_better == (primary.mean > 0) ? "better" : "worse";
  std::string text = reading(d);
  if (clash) text += fmt::format(", although {} is {}", metric_words(primary.metric), primary_reads);
  out.element("td", {}, text.empty() ? "no difference shown" : text).close();
}

/// What could not be compared.
void write_notes(Markup& out, const Outcome& outcome) {
  for (const std::string& note : outcome.notes) out.element("p", {{"class", "why"}}, clean_line(note));
}

}  // namespace

void write_metrics(Markup& out, const Page& page) {
  const auto has_outcome = [](const CellResult& cell) { return cell.outcome.has_value(); };
  const Results& results = page.results;
  if (std::none_of(results.cells.begin(), results.cells.end(), has_outcome)) return;
  constexpr std::size_t kShownOpen = 8;
  open_section(out, "metrics", "All metrics",
               "Paired differences, cell minus reference. A marked row disagrees with the primary "
               "metric: both intervals "
               "exclude 0, one is better and the other worse.");
  for (std::size_t i = 0; i < results.cells.size(); ++i) {
    const CellResult& cell = results.cells[i];
    if (!cell.outcome) continue;
    const Outcome& outcome = *cell.outcome;
    const bool clashes = std::any_of(outcome.others.begin(), outcome.others.end(), [&](const auto& other) {
      return disagrees_in_sign(outcome.primary, other);
    });
    const bool folded = results.cells.size() > kShownOpen && !clashes;
    if (folded)
      out.open("details", {{"id", "metrics-" + page.anchors[i]}}).open("summary");
    else
      out.open("h3", {{"id", "metrics-" + page.anchors[i]}});
    out.element("b", {}, name_words(cell.scenario)).text(" ");
    write_verdict(out, cell, outcome.verdict);
    out.close();
    if (!outcome.sentence.empty()) out.element("p", {{"class", "why"}}, outcome.sentence);
    write_notes(out, outcome);
    open_table(out, "metrics",
               {"metric", numbers(shorten(name_words(cell.reference), 24)), numbers("cell"),
                numbers("difference"),
                numbers(fmt::format("{} interval, n {}", level_words(outcome.primary.interval.level), outcome.n)),
                "reading"});
    write_metric_row(out, outcome.primary, outcome.primary, true, outcome.n);
    for (const MetricDifference& other : outcome.others)
      write_metric_row(out, other, outcome.primary, false, outcome.n);
    close_table(out);
    if (folded) out.close();
  }
  out.close();
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

void draw_power(Markup& out, const CellResult& cell) {
  const Outcome& o = *cell.outcome;
  const Scale axis{0, 1, 3, 97};
  open_row_drawing(out, name_words(cell.scenario) + ": power",
                   fmt::format("{} if there is no difference, {} if it is half the margin", probability_words(o.power),
                               probability_words(o.power_half)));
  out.empty("rect", {{"x", percent(axis(0.8))},
                     {"width", percent(axis(1) - axis(0.8))},
                     {"height", "100%"},
                     {"class", "margin"}});
  const std::string css = o.power >= 0.8 ? "c0" : "c1";
  for (const bool half : {true, false}) {
    const double value = half ? o.power_half : o.power;
    if (!std::isfinite(value)) continue;
    const std::string x = percent(axis(std::clamp(value, 0.0, 1.0)));
    const std::string name = (half ? "hollow " : "m ") + css;
    out.empty("circle", {{"class", name}, {"cx", x}, {"cy", "50%"}, {"r", half ? "4" : "4.6"}});
  }
  out.close();
}

void write_power_rows(Markup& out, const Page& page, const std::vector<std::size_t>& cells) {
  open_table(out, "rows power",
             {"cell", "● no difference, ○ half the margin", numbers("n"), numbers("sd"),
              numbers("upper bound"), numbers("power at 0"),
              numbers("power at ½ margin"), numbers("seeds at 0"), numbers("seeds at ½ margin"), numbers("smallest visible")});
  for (const std::size_t i : cells) {
    const CellResult& cell = page.results.cells[i];
    const Outcome& o = *cell.outcome;
    out.open("tr");
    row_label(out, cell, page.anchors[i]);
    out.open("td", {{"class", "plot"}});
    draw_power(out, cell);
    out.close();
    const auto figure = [&out](std::string_view label, const std::string& text) {
      out.element("td", {{"class", "n"}, {"data-label", std::string(label)}}, text);
    };
    figure("n", std::to_string(o.n));
    figure("sd", spread(o.primary.sd, o.margin));
    figure("upper bound", spread(o.sd_upper, o.margin));
    figure("power at 0", probability_words(o.power));
    figure("power at ½ margin", probability_words(o.power_half));
    const auto seeds = [&o](double size, int needed) {
      return needed > 0 && leaves_out(o.primary.interval, size) ? "excluded" : seeds_needed_words(needed);
    };
    figure("seeds at 0", seeds(0, o.seeds_needed));
    figure("seeds at ½ margin", seeds(o.margin / 2, o.seeds_needed_half));
    figure("smallest visible", o.detectable > 0 ? spread(o.detectable, o.margin) : "not known");
    out.close();
  }
  close_table(out);
}

void write_p_values(Markup& out, const Page& page, const std::vector<std::size_t>& cells) {
  out.open("details").element("summary", {}, "p values, plain and Holm-adjusted over the cells");
  open_table(out, "plain", {"cell", numbers("not equivalent"), numbers("no difference"),
                            numbers("no difference, Holm")});
  for (const std::size_t i : cells) {
    const CellResult& cell = page.results.cells[i];
    out.open("tr").element("th", {{"scope", "row"}}, name_words(cell.scenario));
    out.element("td", {{"class", "n"}}, probability_words(cell.outcome->p_equivalent));
    out.element("td", {{"class", "n"}}, probability_words(cell.outcome->p_different));
    const bool in_family = !cell.power_control && !cell.noise;
    out.element("td", {{"class", "n"}}, in_family ? probability_words(cell.outcome->p_holm) : "—").close();
  }
  close_table(out);
  out.element("p", {{"class", "why"}},
              "Not equivalent: the larger p of the two one-sided tests. No difference: p of the two-sided test; and the same "
              "Holm-adjusted over all cells except power controls and A/A pairs, for a conclusion about one cell that was picked "
              "from them.");
  out.close();
}

void write_estimates(Markup& out, const Page& page, const std::vector<std::size_t>& cells) {
  const auto has = [&](std::size_t i) { return !page.results.cells[i].outcome->estimates.empty(); };
  if (std::none_of(cells.begin(), cells.end(), has)) return;
  const int decimals = decimals_for(page.results.primary.margin);
  out.open("details").element("summary", {}, "Mean, median and interquartile mean of the differences");
  open_table(out, "plain stack", {"cell", "estimate", numbers("value"), numbers("interval"), "by"});
  for (const std::size_t i : cells) {
    const CellResult& cell = page.results.cells[i];
    const auto& estimates = cell.outcome->estimates;
    for (std::size_t k = 0; k < estimates.size(); ++k) {
      const Estimate& e = estimates[k];
      out.open("tr");
      if (k == 0) {
        out.element("th", {{"scope", "rowgroup"}, {"rowspan", std::to_string(estimates.size())}},
                    name_words(cell.scenario));
      }
      out.element("td", {{"data-label", "estimate"}}, clean_line(e.what));
      out.element("td", {{"class", "n"}, {"data-label", "value"}}, signed_number(e.value, decimals));
      out.element("td", {{"class", "n"}, {"data-label", "interval"}}, interval_words(e.interval, decimals));
      out.element("td", {{"data-label", "by"}},
                  fmt::format("{}, {:.3g} %, n {}", clean_line(e.method), 100 * e.interval.level,
                              cell.outcome->n))
          .close();
    }
  }
  close_table(out);
  out.close();
}

}  // namespace

void write_power(Markup& out, const Page& page) {
  const std::vector<std::size_t> cells = cells_of(page.results);
  if (cells.empty()) return;
  open_section(
      out, "power", "How sure is that?",
      "Power: the probability that these seeds show equivalence if the true difference is 0, or half the margin. It uses the "
      "upper bound of the standard deviation (level 0.8) and not the measured difference. Green is 0.8 and above. Seeds: how many "
      "seeds a new run needs for a power of 0.8 (to extend this run use seeds: auto); excluded: the interval excludes such a "
      "difference. Smallest visible: the smallest true difference that so many seeds find with probability 0.8, with the largest "
      "upper bound among the cells and power controls of the question.");
  write_power_rows(out, page, cells);
  write_p_values(out, page, cells);
  write_estimates(out, page, cells);
  out.close();
}

// Seeds added look by look: what each look said, and how much of alpha it spent.
namespace {

std::string analysis_words(const Look& look) {
  return fmt::format("{} seeds: {}, at {:.2g}, {:.2g} spent", look.n, style_of(look.verdict).words,
                     look.alpha_here, look.alpha_spent);
}

std::string ended_words(const Sequential& s) {
  switch (s.ended) {
    case InterimEnd::decided:
      return "decided";
    case InterimEnd::most_seeds:
      return "the most seeds allowed were used";
    case InterimEnd::budget:
      return "the time budget is spent";
  }
  return "";
}

void draw_interim_analyses(Markup& out, const CellResult& cell, const Scale& axis) {
  const Sequential& s = *cell.outcome->sequential;
  std::string description;
  for (const Look& look : s.looks) description += analysis_words(look) + ". ";
  open_row_drawing(out, name_words(cell.scenario) + ": interim analyses", description);
  const std::string css = row_css(cell, cell.outcome->verdict);
  out.empty("line", {{"x1", percent(axis(0))},
                     {"x2", percent(axis(s.looks.back().n))},
                     {"y1", "50%"},
                     {"y2", "50%"},
                     {"class", "ci " + css}});
  for (const Look& look : s.looks) {
    const bool decided = look.verdict != VerdictKind::inconclusive;
    out.open("svg", {{"x", percent(axis(look.n))}, {"y", "50%"}, {"class", "mark"}});
    out.empty("circle", {{"class", (decided ? "m " : "hollow ") + css}, {"r", "4.6"}}).close();
  }
  out.close();
}

void write_axis(Markup& out, const Scale& axis) {
  out.open("tfoot").open("tr").element("td", {{"class", "gap"}}, "").open("td", {{"class", "plot axis"}});
  open_row_drawing(out, "Axis", "Paired seeds");
  out.empty("line", {{"x1", "0"}, {"x2", "100%"}, {"y1", "0.5"}, {"y2", "0.5"}, {"class", "tk"}});
  for (const double n : step_ticks(axis.high, 7).values) axis_label(out, axis(n), fmt::format("{:.0f}", n));
  out.close();
  out.open("div", {{"class", "ends"}}).element("span", {}, "").element("span", {}, "paired seeds").close();
  out.close().element("td", {{"class", "gap"}, {"colspan", "3"}}, "").close().close();
}

}  // namespace

void write_interim_analyses(Markup& out, const Page& page) {
  std::vector<std::size_t> cells;
  double most = 1;
  for (const std::size_t i : row_order(page.results)) {
    const CellResult& cell = page.results.cells[i];
    if (!cell.outcome || !cell.outcome->sequential || cell.outcome->sequential->looks.empty()) continue;
    cells.push_back(i);
    most = std::max({most, static_cast<double>(cell.outcome->sequential->most),
                     static_cast<double>(cell.outcome->sequential->looks.back().n)});
  }
  if (cells.empty()) return;
  open_section(
      out, "looks", "How many seeds did it take?",
      "Seeds were added until the verdict was decided. Testing repeatedly at one fixed level would raise the error rate, so "
      "each interim analysis has its own level, and together they spend no more than α. A ring is an analysis that left the "
      "verdict open, a dot is one that decided it.");
  const Scale axis{0, most, 2, 97};
  out.open("table", {{"class", "rows looks"}}).open("thead").open("tr");
  out.element("th", {{"scope", "col"}}, "cell").element("th", {{"scope", "col"}}, "interim analyses");
  out.element("th", {{"scope", "col"}, {"class", "n"}}, "seeds")
      .element("th", {{"scope", "col"}, {"class", "n"}}, "level of the last analysis, α spent");
  out.element("th", {{"scope", "col"}}, "reason for ending").close().close().open("tbody");
  for (const std::size_t i : cells) {
    const CellResult& cell = page.results.cells[i];
    const Sequential& s = *cell.outcome->sequential;
    out.open("tr");
    row_label(out, cell, page.anchors[i]);
    out.open("td", {{"class", "plot"}});
    draw_interim_analyses(out, cell, axis);
    out.close();
    out.element("td", {{"class", "n"}}, fmt::format("{} of {}", s.looks.back().n, s.most));
    out.element("td", {{"class", "n ci-text"}},
                fmt::format("{:.2g}, {:.2g}", s.looks.back().alpha_here, s.looks.back().alpha_spent));
    const VerdictStyle& style = style_of(cell.outcome->verdict);
    out.open("td", {{"class", "v"}});
    out.element("b", {{"class", "t-" + row_css(cell, cell.outcome->verdict)}},
                fmt::format("{} {}", style.symbol, style.words));
    out.element("span", {{"class", "sub"}}, ended_words(s)).close().close();
  }
  out.close();
  write_axis(out, axis);
  out.close();
  out.open("details").element("summary", {}, "All interim analyses");
  open_table(out, "plain", {"cell", numbers("seeds"), numbers("information"), numbers("level"),
                            numbers("α spent"), "verdict"});
  for (const std::size_t i : cells) {
    for (const Look& look : page.results.cells[i].outcome->sequential->looks) {
      out.open("tr").element("th", {{"scope", "row"}}, name_words(page.results.cells[i].scenario));
      out.element("td", {{"class", "n"}}, std::to_string(look.n));
      out.element("td", {{"class", "n"}}, fmt::format("{:.3g}", look.information));
      out.element("td", {{"class", "n"}}, fmt::format("{:.3g}", look.alpha_here));
      out.element("td", {{"class", "n"}}, fmt::format("{:.3g}", look.alpha_spent));
      out.element("td", {}, style_of(look.verdict).words).close();
    }
  }
  close_table(out);
  out.close().close();
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
