#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/check.h"
#include "reports/html/parts.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"

// How the paired difference runs over the steps, with a band that holds at all of them at once.

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

// How far rounding alone carries a run from the same run in another arithmetic, step by step.
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

// The first steps of cells and references in exact arithmetic, beside the runs that were asked for.
namespace {

void write_result(Markup& out, const CellResult& cell) {
  const Certification& exact = *cell.exact;
  out.open("td");
  if (exact.divergence) {
    out.element("b", {{"class", "t-bad"}}, "≠ differs").text(": " + divergence_words(*exact.divergence));
  } else if (exact.steps > 0 && exact.steps >= exact.asked && !cell.failure) {
    out.element("b", {{"class", "t-ok"}}, "= equal bit for bit").text(": native differences are rounding");
  } else {
    out.element("b", {{"class", "t-und"}}, "? not compared");
  }
  out.close();
}

}  // namespace

void write_exact(Markup& out, const Page& page) {
  const auto asked = [](const CellResult& cell) { return cell.exact.has_value(); };
  if (std::ranges::none_of(page.results.cells, asked)) return;
  open_section(out, "exact", "Do they agree in exact arithmetic?",
               "The first steps of one seed of each cell and its reference were repeated in an arithmetic that no layout can change: "
               "each row is computed by itself, and sums do not round. Equal bits show that cell and reference compute the same; a "
               "difference is not rounding, and has a step and a row. The verdicts are about the native runs.");
  open_table(out, "plain", {"cell", "reference", numbers("steps equal"), numbers("asked"), numbers("seed"), "result"});
  for (const CellResult& cell : page.results.cells) {
    if (!cell.exact) continue;
    out.open("tr").element("th", {{"scope", "row"}}, name_words(cell.scenario));
    out.element("td", {}, name_words(cell.reference));
    for (const int64_t number : {cell.exact->steps, cell.exact->asked, cell.exact->seed})
      out.element("td", {{"class", "n"}}, std::to_string(number));
    write_result(out, cell);
    out.close();
  }
  close_table(out);
  out.close();
}

// Does it compute the same: the ladder, where each cell first differs, how it was certified.
namespace {

struct LadderCount {
  int compared = 0, inside = 0, divergent = 0;
  const Mechanism* most_used = nullptr;  ///< of those inside; null: every bit of theirs is equal
  int wanted = 0, agreed = 0, by_band = 0, parted = 0, real = 0;
  int64_t steps = 0, asked = 0;
};

LadderCount count_ladder(const Results& results) {
  LadderCount count;
  for (const CellResult& cell : results.cells) {
    if (cell.mechanism) {
      const VerdictKind kind = cell.mechanism->verdict;
      const bool inside = kind == VerdictKind::identical || kind == VerdictKind::within_envelope;
      ++count.compared;
      count.inside += inside;
      const double most = count.most_used == nullptr ? 0 : count.most_used->band_used;
      if (inside && cell.mechanism->band_used > most) count.most_used = &*cell.mechanism;
      if (kind == VerdictKind::divergent) ++count.divergent;
    }
    count.real += cell.real_ranks;
    const Certification& c = cell.certification;
    if (!c.wanted) continue;
    ++count.wanted;
    count.steps += c.steps, count.asked += c.asked;
    count.parted += c.divergence.has_value();
    if (c.divergence || c.steps < c.asked || c.steps == 0) continue;
    ++count.agreed;
    count.by_band += c.certify == kByBand;
  }
  return count;
}

void write_rung(Markup& out, std::string_view name, std::string_view what) {
  out.open("div", {{"class", "rung"}}).element("b", {}, name).element("span", {}, what).close();
}

void write_join(Markup& out, std::string_view css, std::string_view symbol, std::string_view what) {
  out.open("div", {{"class", "join t-" + std::string(css)}}).element("b", {}, symbol).text(what).close();
}

void write_ladder(Markup& out, const Results& results) {
  const LadderCount count = count_ladder(results);
  std::string references;
  for (const ReferenceResult& reference : results.references)
    references += (references.empty() ? "" : ", ") + clean_line(reference.name);
  out.open("div", {{"class", "ladder"}});
  write_rung(out, "R0 · " + (references.empty() ? "the reference" : shorten(references, 60)),
             "one process, one whole batch: what the run should compute");
  if (count.compared == 0) {
    write_join(out, "und", "?", "nothing compared");
  } else if (count.inside == count.compared) {
    write_join(out, "ok", count.most_used ? "≈" : "=",
               fmt::format("{}, {}", counted(count.inside, "cell"),
                           count.most_used ? "at most " + used_words(*count.most_used) + " used" : "all bits equal"));
  } else {
    std::string text = fmt::format("{} of {} differ", count.divergent, counted(count.compared, "cell"));
    if (count.inside > 0) {
      text += count.most_used ? fmt::format("; the others used at most {}", used_words(*count.most_used))
                              : "; all bits of the others are equal";
    }
    write_join(out, count.divergent > 0 ? "bad" : "und", count.divergent > 0 ? "≠" : "?", text);
  }
  write_rung(out, "R1 · emulated ranks", "threads of one process; same shards, same summation order");
  if (count.wanted == 0) {
    write_join(out, "ctl", "·",
               count.real == static_cast<int>(results.cells.size()) ? "skipped: the cells ran on real ranks"
                                                                    : "nothing to certify");
  } else if (count.agreed == count.wanted && count.by_band > 0) {
    write_join(out, "ok", "≈",
               fmt::format("{} of {} steps agree in {}, in {} of them within tolerance", count.steps, count.asked,
                           counted(count.wanted, "cell"), count.by_band));
  } else if (count.agreed == count.wanted) {
    write_join(out, "ok", "=",
               fmt::format("all bits equal: {} of {} steps in {}", count.steps, count.asked,
                           counted(count.wanted, "cell")));
  } else {
    write_join(out, count.parted > 0 ? "bad" : "und", count.parted > 0 ? "≠" : "?",
               fmt::format("{} of {} certified", count.agreed, counted(count.wanted, "cell")));
  }
  write_rung(out, "R2 · real ranks", "one process a rank, c10d::Reducer over a real backend");
  out.close();
}

std::string rank_words(int rank) {
  if (rank == kRankUnknown) return "rank unknown";
  return rank < 0 ? "all ranks" : fmt::format("rank {}", rank);
}

/// A labelled cell, so that the row reads as a list where the page is narrow.
void open_labelled(Markup& out, std::string_view label) {
  out.open("td", {{"data-label", std::string(label)}});
}

void write_first_difference(Markup& out, const Mechanism& m) {
  const bool parted = m.first_divergence.has_value();
  open_labelled(out, "first differs");
  if (parted) {
    const Divergence& d = *m.first_divergence;
    std::string phase = clean_line(d.phase);
    std::replace(phase.begin(), phase.end(), '_', ' ');
    out.text(fmt::format("step {}", d.step));
    out.element("span", {{"class", "sub"}}, phase + (phase.empty() ? "" : ", ") + rank_words(d.rank));
  } else {
    out.text(m.compared_steps > 0 && m.verdict == VerdictKind::identical
                 ? fmt::format("not in {}", counted(m.compared_steps, "step"))
             : m.verdict == VerdictKind::within_envelope ? "within tolerance"
                                                         : "—");
  }
  out.close();
  open_labelled(out, "where");
  if (parted)
    out.text(m.first_divergence->where.empty() ? "—" : m.first_divergence->where);
  else
    out.text("—");
  if (parted && !m.first_divergence->sentence.empty())
    out.element("span", {{"class", "sub"}}, m.first_divergence->sentence);
  out.close();
  open_labelled(out, "expected → actual");
  if (parted && !(m.first_divergence->expected.empty() && m.first_divergence->actual.empty())) {
    out.element("code", {}, m.first_divergence->expected)
        .text(" → ")
        .element("code", {}, m.first_divergence->actual);
  } else {
    out.text("—");
  }
  out.close();
}

void write_cause(Markup& out, const Mechanism& m) {
  const bool needs_one = m.verdict == VerdictKind::divergent;
  open_labelled(out, "cause");
  if (m.cause) {
    out.element("b", {}, m.cause->code);
    if (m.cause->confidence > 0)
      out.element("span", {{"class", "sub"}}, fmt::format("confidence {:.0f} %", 100 * m.cause->confidence));
    if (!m.cause->evidence.empty()) out.element("span", {{"class", "sub"}}, m.cause->evidence);
  } else {
    out.text(needs_one ? "no cause named" : "—");
  }
  out.close();
  open_labelled(out, "how to fix it");
  out.text(m.cause && !m.cause->remedy.empty() ? m.cause->remedy : "—").close();
}

void write_row(Markup& out, const CellResult& cell, const std::string& anchor) {
  out.open("tr", {{"id", anchor}}).open("th", {{"scope", "row"}}).text(name_words(cell.scenario));
  out.open("span", {{"class", "sub"}});
  if (cell.mechanism) {
    write_verdict(out, cell, cell.mechanism->verdict);
    if (!cell.mechanism->forced.empty()) {
      out.text(", " + used_words(*cell.mechanism));
      if (!cell.mechanism->band_measured && !cell.mechanism->twins) out.text(" (estimated, not measured)");
    }
  } else {
    out.text("not compared");
  }
  out.close().close();
  if (cell.mechanism) {
    write_first_difference(out, *cell.mechanism);
    write_cause(out, *cell.mechanism);
  } else {
    out.element("td", {{"colspan", "5"}},
                cell.failure ? failure_words(*cell.failure) : "no trace was compared");
  }
  out.close();
}

}  // namespace

void write_mechanism(Markup& out, const Page& page) {
  open_section(out, "mechanism", "Do cell and reference compute the same?",
               "Each cell is compared with its reference, value by value. Emulated and real ranks must agree bit for bit; "
               "one process and the ranks must agree to rounding.");
  write_ladder(out, page.results);
  open_table(out, "stack first-seen",
             {"cell", "first differs", "where", "expected → actual", "cause", "how to fix it"});
  for (std::size_t i = 0; i < page.results.cells.size(); ++i)
    write_row(out, page.results.cells[i], page.anchors[i]);
  close_table(out);
  const bool in_words =
      std::any_of(page.results.cells.begin(), page.results.cells.end(),
                  [](const CellResult& cell) { return cell.mechanism && !cell.mechanism->sentence.empty(); });
  if (in_words) {
    out.open("details").element("summary", {}, "Each cell in a sentence").open("ul");
    for (const CellResult& cell : page.results.cells) {
      if (!cell.mechanism || cell.mechanism->sentence.empty()) continue;
      const CheckDocument found = document_of(*cell.mechanism);
      out.open("li").element("b", {}, name_words(cell.scenario)).text(": " + found.headline);
      for (const std::string& line : finding_lines(found)) out.empty("br").text(line);
      out.close();
    }
    out.close().close();
  }
  out.close();
}

void write_certification(Markup& out, const Page& page) {
  const bool any = std::any_of(page.results.cells.begin(), page.results.cells.end(),
                               [](const CellResult& cell) { return cell.certification.wanted; });
  if (!any) return;
  open_section(out, "certified", "What was certified, and how",
               "Long runs use emulated ranks. Their first steps were repeated on real ranks and must give the same bits; "
               "with a backend that does not specify its summation order (NCCL) they must agree within a tolerance.");
  open_table(out, "plain", {"cell", "real ranks", numbers("steps that agree"), numbers("asked"), numbers("seed"),
                            "result"});
  for (const CellResult& cell : page.results.cells) {
    const Certification& c = cell.certification;
    out.open("tr").element("th", {{"scope", "row"}}, name_words(cell.scenario));
    if (!c.wanted) {
      out.element("td", {{"colspan", "5"}}, "nothing to certify").close();
      continue;
    }
    const int ranks = world_size_of(cell);
    out.element("td", {},
                (ranks > 0 ? std::to_string(ranks) + " on " : "") +
                    (c.backend.empty() ? "—" : backend_words(c.backend)));
    out.element("td", {{"class", "n"}}, std::to_string(c.steps))
        .element("td", {{"class", "n"}}, std::to_string(c.asked));
    out.element("td", {{"class", "n"}}, std::to_string(c.seed)).open("td");
    if (c.divergence) {
      out.element("b", {{"class", "t-bad"}}, "≠ differs").text(": " + divergence_words(*c.divergence));
    } else if (c.steps >= c.asked && c.steps > 0 && c.certify == kByBand) {
      out.element("b", {{"class", "t-ok"}}, "≈ within tolerance")
          .text(fmt::format(", {:.2g} % of it used: {}", 100 * c.band_used, band_reason_words(c.backend)));
    } else if (c.steps >= c.asked && c.steps > 0) {
      out.element("b", {{"class", "t-ok"}}, "= bit for bit");
    } else {
      out.element("b", {{"class", "t-und"}}, "? not certified")
          .text(c.steps == 0 ? "" : ": the real prefix ended early");
    }
    out.close().close();
  }
  close_table(out);
  out.close();
}

}  // namespace lockstep
