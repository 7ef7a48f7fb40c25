#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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
      if (std::ranges::find(metrics, curve.metric) == metrics.end())
        metrics.push_back(curve.metric);
    }
  }
  const auto order = [&results](const std::string& metric) { return metric != results.primary.metric; };
  std::ranges::stable_sort(metrics, [&](const auto& a, const auto& b) { return order(a) < order(b); });
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
  const std::string css = row_css(*d.cell, d.cell->verdict), name = name_words(d.cell->scenario);
  Plot plot{.title = name + ": paired difference by step",
            .description = marks_words(curve),
            .small = true,
            .x = {static_cast<double>(curve.steps.front()), static_cast<double>(curve.steps.back())},
            .y = {-reach, reach},
            .x_ticks = step_axis(static_cast<double>(curve.steps.back()), 4),
            .y_ticks = margin_ticks(curve, reach),
            .x_name = "step",
            .flagged = true};
  if (curve.margin > 0) plot.areas.push_back({-HUGE_VAL, HUGE_VAL, -curve.margin, curve.margin, "margin"});
  plot.rules.push_back({false, 0, "zero"});
  plot.lines.push_back({name, css, {}});
  for (std::size_t i = 0; i < curve.steps.size(); ++i)
    plot.lines[0].points.push_back({static_cast<double>(curve.steps[i]), curve.mean[i], curve.low[i], curve.high[i]});
  for (const auto& [step, bead] : {std::pair(curve.first_leaves, "hollow "), std::pair(curve.first_beyond, "m ")}) {
    if (step >= 0) plot.flags.push_back({static_cast<double>(step), marks_words(curve), {bead + css}});
  }
  write_figure(out, {name, d.anchor, {marks_words(curve), terms, clean_line(curve.note)}, "panel"}, plot_drawing(plot));
}

}  // namespace

Section differences_section(const Page& page) {
  Section section{"differences",
                  "When do they differ?",
                  fmt::format("Mean paired difference by step, cell minus reference, in a band that holds at all steps "
                              "at once, {}; green is the margin. Ring below the axis: the first step not wholly "
                              "inside it. Dot: wholly outside.",
                              common_level(page.results) ? "at " + level_words(*common_level(page.results))
                                                         : "at the level of the cell's intervals"),
                  {}};
  for (const std::string& metric : metrics_of(page.results)) {
    const std::vector<Drawn> all = drawn_of(page, metric);
    if (all.empty()) continue;
    const double reach = reach_of(all);
    Markup out;
    out.open("div", {{"class", "small"}});
    for (const Drawn& each : all) write_panel(out, each, reach, own_terms(page.results, *each.cell));
    if (!section.parts.empty()) {
      section.parts.push_back(fold(metric_words(metric), {drawing(out.take())}));
      continue;
    }
    section.parts = {heading(metric_words(metric)), drawing(out.take())};
  }
  return section;
}

// How far rounding alone carries a run from the same run in another arithmetic, step by step.
namespace {

std::string label_of(const CurveBand& band) {
  return band.metric.starts_with("parameters") ? band.metric : metric_words(band.metric);
}

bool is_drawn(const CurveBand& band, std::size_t i) {
  return band.steps[i] > 0 && std::isfinite(band.high[i]) && band.high[i] > 0;
}

/// Powers of ten around all that is drawn.
AxisRange range_of(const std::vector<CurveBand>& drift) {
  Reach reach;
  for (const CurveBand& band : drift) {
    for (std::size_t i = 0; i < band.steps.size(); ++i) {
      if (!is_drawn(band, i)) continue;
      for (const double value : {band.high[i], band.median[i]})
        if (value > 0) reach.take(std::log10(value));
    }
  }
  return reach.decades({-8, -1});
}

std::string drift_plot(const std::vector<CurveBand>& drift) {
  double last = 10;
  for (const CurveBand& band : drift) {
    if (!band.steps.empty()) last = std::max(last, static_cast<double>(band.steps.back()));
  }
  const auto [low, high] = range_of(drift);
  Plot plot{.title = "Distance by step",
            .description = "Distances of 0 are not drawn.",
            .x = {0, std::log10(last)},
            .y = {low, high},
            .x_ticks = powers_of_ten(0, std::log10(last)),
            .y_ticks = powers_of_ten(low, high),
            .x_name = "step",
            .y_name = "distance",
            .x_log = true,
            .y_log = true};
  for (const CurveBand& band : drift) {
    PlotLine line{label_of(band), "c" + std::to_string(plot.lines.size()), {}, false, false, label_of(band)};
    const auto y = [floor = low](double value) { return value > 0 ? std::max(std::log10(value), floor) : floor; };
    for (std::size_t i = 0; i < band.steps.size(); ++i) {
      if (is_drawn(band, i))
        line.points.push_back({std::log10(static_cast<double>(band.steps[i])),
                               band.median[i] > 0 ? y(band.median[i]) : NAN, y(band.low[i]), y(band.high[i])});
    }
    plot.lines.push_back(std::move(line));
  }
  return plot_drawing(plot);
}

Table drifts_of(const std::vector<const CellResult*>& cells) {
  Table table{.columns = {"cell", "distance of", numbers("first above 0 at step"), numbers("largest"),
                          numbers("at step"), numbers("last step"), numbers("median there"), numbers("over the seeds")},
              .rows = {}};
  for (const CellResult* cell : cells) {
    for (const CurveBand& band : cell->drift) {
      if (band.steps.empty()) continue;
      const std::size_t last = band.steps.size() - 1;
      const auto worst = std::ranges::max_element(band.high);
      const auto apart = std::ranges::find_if(band.high, [](double value) { return value > 0; });
      const auto step_at = [&band](auto found) {
        return std::to_string(band.steps[static_cast<std::size_t>(found - band.high.begin())]);
      };
      table.rows.push_back(
          {{name_words(cell->scenario), label_of(band), apart == band.high.end() ? "never" : step_at(apart),
            compact_number(*worst), step_at(worst), std::to_string(band.steps[last]), compact_number(band.median[last]),
            fmt::format("{} to {}", compact_number(band.low[last]), compact_number(band.high[last]))}});
    }
  }
  return table;
}

}  // namespace

Section drift_section(const Page& page) {
  std::vector<const CellResult*> cells;
  std::vector<Part> drawings;
  for (const CellResult& cell : page.results.cells) {
    if (cell.drift.empty()) continue;
    cells.push_back(&cell);
    Markup out;
    write_figure(out, {name_words(cell.scenario), "", {"against " + name_words(cell.reference)}},
                 drift_plot(cell.drift));
    drawings.push_back(drawing(out.take()));
  }
  if (cells.empty()) return {};
  return {"drift",
          "How far apart does rounding alone drive two runs?",
          "The same process, batch, samples and draws in two arithmetics, seed by seed. Parameters: their distance "
          "over their norm, before the step; those whose gradient is zero by symmetry are separate, since only "
          "rounding moves them. The rest: absolute differences. Median and range over the seeds. A larger difference "
          "between layouts is not due to rounding.",
          {columns(std::move(drawings)), tabled(drifts_of(cells))}};
}

// The first steps of cells and references in exact arithmetic, beside the runs that were asked for.
namespace {

/// What real ranks, or runs in exact arithmetic, were compared over.
Datum agreement_of(const CellResult& cell, const Certification& c, const char* equal, const char* open) {
  if (c.divergence) return Datum("≠ differs", "t-bad").note(divergence_words(*c.divergence));
  if (c.steps < c.asked || c.steps <= 0 || cell.failure)
    return Datum(open, "t-und").note(c.steps == 0 && c.wanted ? "the real prefix ended early" : "");
  if (c.certify == kByBand)
    return Datum("≈ within tolerance", "t-ok")
        .note(fmt::format("{:.2g} % of it used: {}", 100 * c.band_used, band_reason_words(c.backend)));
  return Datum(equal, "t-ok");
}

}  // namespace

Section exact_section(const Page& page) {
  Table table{.columns = {"cell", "reference", numbers("steps equal"), numbers("asked"), numbers("seed"), "result"},
              .rows = {}};
  for (const CellResult& cell : page.results.cells) {
    if (!cell.exact) continue;
    table.rows.push_back(
        {{name_words(cell.scenario), name_words(cell.reference), std::to_string(cell.exact->steps),
          std::to_string(cell.exact->asked), std::to_string(cell.exact->seed),
          agreement_of(cell, *cell.exact, "= equal bit for bit: native differences are rounding", "? not compared")}});
  }
  if (table.rows.empty()) return {};
  return {"exact",
          "Do they agree in exact arithmetic?",
          "The first steps of one seed of each cell and its reference, repeated in an arithmetic that no layout "
          "changes: each row by itself, sums without rounding. Equal bits show that both compute the same; a "
          "difference is not rounding.",
          {tabled(std::move(table))}};
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

std::string ladder_of(const Results& results) {
  Markup out;
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
                           count.most_used ? fmt::format("at most {} used", band_words(count.most_used->band_used))
                                           : "all bits equal"));
  } else {
    std::string text = fmt::format("{} of {} differ", count.divergent, counted(count.compared, "cell"));
    if (count.inside > 0) {
      text += count.most_used ? fmt::format("; the others used at most {}", band_words(count.most_used->band_used))
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
  return out.take();
}

/// The cell, where it first differs, how, and what shows the cause.
DataRow mechanism_row(const CellResult& cell, const std::string& anchor) {
  DataRow row;
  row.id = anchor;
  Datum name(name_words(cell.scenario));
  if (!cell.mechanism) {
    row.cells = {name.note("not compared"), cell.failure ? failure_words(*cell.failure) : "no trace was compared"};
    return row;
  }
  const Mechanism& m = *cell.mechanism;
  Note verdict = verdict_note(cell, m.verdict);
  if (!m.forced.empty())
    verdict.text += ", " + band_words(m.band_used) + (m.band_measured || m.twins ? "" : " (estimated, not measured)");
  Datum when = m.compared_steps > 0 && m.verdict == VerdictKind::identical
                   ? fmt::format("not in {}", counted(m.compared_steps, "step"))
               : m.verdict == VerdictKind::within_envelope ? "within tolerance"
                                                           : "—",
        where = "—", values = "—", cause = m.verdict == VerdictKind::divergent ? "no cause named" : "—";
  if (m.first_divergence) {
    const Divergence& d = *m.first_divergence;
    const std::string phase = replaced(clean_line(d.phase), "_", " ");
    when = Datum(fmt::format("step {}", d.step)).note(phase + (phase.empty() ? "" : ", ") + rank_words(d.rank));
    where = Datum(d.where.empty() ? "—" : d.where).note(d.expected.empty() && d.actual.empty() ? d.sentence : "");
    const std::string expected = d.expected.substr(0, d.expected.find("; ")),
                      found = d.actual.substr(0, d.actual.find("; "));
    if (!expected.empty() || !found.empty()) values = Datum(expected + " → " + found).as_code();
  }
  if (m.cause) {
    cause = Datum(m.cause->code, "strong")
                .note(m.cause->confidence > 0 ? fmt::format("confidence {:.0f} %", 100 * m.cause->confidence) : "");
    cause.note(m.cause->evidence);
  }
  row.cells = {name.note(verdict), when, where, values, cause};
  return row;
}

}  // namespace

Section mechanism_section(const Page& page) {
  Table table{.css = "stack first-seen",
              .columns = {"cell", "first differs", "where", "expected → actual", "evidence"},
              .rows = {}};
  for (std::size_t i = 0; i < page.results.cells.size(); ++i)
    table.rows.push_back(mechanism_row(page.results.cells[i], page.anchors[i]));
  return {"mechanism",
          "Do cell and reference compute the same?",
          "Each cell against its reference, value by value. Emulated and real ranks must agree bit for bit, one "
          "process and the ranks to rounding.",
          {drawing(ladder_of(page.results)), tabled(std::move(table))}};
}

Section certification_section(const Page& page) {
  Table table{
      .columns = {"cell", "real ranks", numbers("steps that agree"), numbers("asked"), numbers("seed"), "result"},
      .rows = {}};
  bool any = false;
  for (const CellResult& cell : page.results.cells) {
    const Certification& c = cell.certification;
    any = any || c.wanted;
    const int ranks = world_size_of(cell);
    table.rows.push_back({{name_words(cell.scenario), "nothing to certify"}});
    if (!c.wanted) continue;
    table.rows.back() = {
        {name_words(cell.scenario),
         (ranks > 0 ? std::to_string(ranks) + " on " : "") + (c.backend.empty() ? "—" : backend_words(c.backend)),
         std::to_string(c.steps), std::to_string(c.asked), std::to_string(c.seed),
         agreement_of(cell, c, "= bit for bit", "? not certified")}};
  }
  if (!any) return {};
  return {"certified",
          "What was certified, and how",
          "Long runs use emulated ranks. Their first steps were repeated on real ranks and must give the same bits, "
          "or agree within a tolerance where a backend (NCCL) does not specify its summation order.",
          {tabled(std::move(table))}};
}

}  // namespace lockstep
