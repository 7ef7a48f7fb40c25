#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/plan/config/run_config.h"
#include "reports/headline.h"
#include "reports/html/parts.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"

// Failures, provenance with differences first, and the commands that repeat.

namespace lockstep {
namespace {

constexpr int kLongestValue = 400;  ///< columns; a value beyond it is in results.json

struct FieldDifference {
  std::string key;
  const std::string* reference;  ///< null: it has no such field
  const std::string* cell;
};

std::vector<FieldDifference> differences_of(const Pairs& reference, const Pairs& cell) {
  std::vector<FieldDifference> out;
  for (const auto& [key, value] : cell) {
    const std::string* other = value_of(reference, key);
    if (!other || *other != value) out.push_back({key, other, &value});
  }
  for (const auto& [key, value] : reference) {
    if (!value_of(cell, key)) out.push_back({key, &value, nullptr});
  }
  return out;
}

/// Fields that have one value in every cell and every reference.
Pairs equal_fields(const Results& results) {
  std::vector<const Pairs*> all;
  for (const ReferenceResult& reference : results.references) all.push_back(&reference.config);
  for (const CellResult& cell : results.cells) {
    if (!cell.config.empty()) all.push_back(&cell.config);
  }
  Pairs equal;
  if (all.empty()) return equal;
  for (const auto& [key, value] : *all.front()) {
    const bool everywhere = std::ranges::all_of(all, [&](const Pairs* pairs) {
      const std::string* other = value_of(*pairs, key);
      return other && *other == value;
    });
    if (everywhere) equal.emplace_back(key, value);
  }
  return equal;
}

std::string shown(const std::string* value) {
  if (!value) return "— not set";
  return value->empty() ? "(empty)" : short_line(*value, kLongestValue);
}

Part pairs_table(const Pairs& pairs) {
  Table table{.columns = {"setting", "value"}, .rows = {}};
  for (const auto& [key, value] : pairs) table.rows.push_back({{key, shown(&value)}});
  return tabled(std::move(table));
}

Table config_differences(const Page& page) {
  Table table{.css = "stack config", .columns = {"cell", "setting", "reference", "cell's"}, .rows = {}};
  for (std::size_t i = 0; i < page.results.cells.size(); ++i) {
    const CellResult& cell = page.results.cells[i];
    const ReferenceResult* reference = reference_of(page.results, cell);
    std::vector<FieldDifference> rows;
    if (reference) rows = differences_of(reference->config, cell.config);
    Datum name = Datum(name_words(cell.scenario)).to(page.anchors[i]);
    if (rows.empty())
      table.rows.push_back({{name, reference ? "no difference" : "the results do not contain its reference"}});
    name.note("against " + name_words(cell.reference)).rows = static_cast<int>(rows.size());
    for (const FieldDifference& row : rows) {
      std::vector<Datum> cells{Datum(row.key).as_code(), shown(row.reference), shown(row.cell)};
      if (&row == rows.data()) cells.insert(cells.begin(), name);
      table.rows.emplace_back(std::move(cells));
    }
  }
  return table;
}

}  // namespace

Section failures_section(const Page& page) {
  constexpr int kLongestLine = 500;
  Section section{"failures",
                  "Cells that failed or cannot be judged",
                  "The first rank that failed, and the last lines of its log.",
                  {}};
  for (std::size_t i = 0; i < page.results.cells.size(); ++i) {
    const CellResult& cell = page.results.cells[i];
    if (!cell.failure) continue;
    const Failure& failure = *cell.failure;
    section.parts.push_back(
        heading(name_words(cell.scenario), "failure-" + page.anchors[i], {"× " + failure_words(failure), "t-fail"}));
    section.parts.push_back(
        tabled({.columns = {"run", "rank", "step", "operation"},
                .rows = {{{Datum(failure.run).as_code(), failure.rank < 0 ? "unknown" : std::to_string(failure.rank),
                           failure.step < 0 ? "unknown" : std::to_string(failure.step),
                           failure.operation.empty() ? "unknown" : failure.operation}}}}));
    std::string log;
    for (const std::string& line : failure.last_lines)
      log += (log.empty() ? "" : "\n") + short_line(line, kLongestLine);
    section.parts.push_back(log.empty() ? prose("It wrote no output.") : code(log));
  }
  return section;
}

Section provenance_section(const Page& page) {
  const Results& results = page.results;
  Section section{"provenance", "Differences between the runs' settings", "", {}};
  if (!results.cells.empty() && !results.detection) {
    section.parts.push_back(tabled(config_differences(page)));
    if (const Pairs equal = equal_fields(results); !equal.empty())
      section.parts.push_back(
          fold(counted(std::ssize(equal), "setting") + " equal in all runs", {pairs_table(equal)}));
  }
  if (!results.provenance.empty()) {
    section.parts.push_back(heading("Build, machine and data"));
    section.parts.push_back(pairs_table(results.provenance));
  }
  return section;
}

Section commands_section(const Page& page) {
  const Results& results = page.results;
  Section section{"again", "Run it again", "", {}};
  const auto add = [&section](const std::string& words, const std::string& command, const std::string& id = "") {
    if (command.empty()) return;
    section.parts.push_back(prose(words));
    section.parts.push_back(code(command));
    section.parts.back().id = id;
  };
  add("The whole matrix:", results.rerun);
  for (std::size_t i = 0; i < results.cells.size() && !results.detection; ++i) {
    if (results.cells[i].rerun.empty()) continue;
    add(name_words(results.cells[i].scenario) + ":", results.cells[i].rerun, "again-" + page.anchors[i]);
    add("Only the first step that differs, from its saved state:", results.cells[i].replay);
  }
  return section;
}

// What the layouts cost: speed-up against the ideal and this machine's cores, and where the time goes.
namespace {

std::string figure_or_dash(double value, int decimals, std::string_view unit = "") {
  return std::isfinite(value) ? fmt::format("{:.{}f}{}", value, decimals, unit) : "—";
}

std::vector<std::string> timing_groups(const Timing& timing) {
  std::vector<std::string> groups;
  for (const TimingRow& row : timing.rows) {
    add_value(groups, row.group);
  }
  return groups;
}

std::string speed_plot(const Timing& timing) {
  double most = 2, fastest = 1.2;
  Plot plot{.title = "Speed-up by the number of ranks",
            .description = "",
            .x = {},
            .y = {},
            .x_ticks = {},
            .y_ticks = {},
            .x_name = "ranks",
            .y_name = "times the speed of one rank"};
  std::map<int, Tick> ticks;
  for (const std::string& group : timing_groups(timing)) {
    plot.lines.push_back({group, "c" + std::to_string(plot.lines.size() % 6), {}, true, false, group});
    for (const TimingRow& row : timing.rows) {
      const int ranks = std::max(1, row.layout.world_size);
      if (row.group != group || !std::isfinite(row.speed_up)) continue;
      plot.description +=
          fmt::format("{} {}: {}. ", row.group, layout_name(row.layout), figure_or_dash(row.speed_up, 2));
      plot.lines.back().points.push_back({std::log2(ranks), row.speed_up, NAN, NAN, row.crowded});
      ticks[ranks] = {std::log2(ranks), std::to_string(ranks)};
      most = std::max(most, static_cast<double>(ranks));
      fastest = std::max(fastest, row.speed_up);
    }
    std::ranges::stable_sort(plot.lines.back().points, {}, &PlotPoint::x);
  }
  for (const auto& [ranks, tick] : ticks) plot.x_ticks.push_back(tick);
  plot.x = {-0.15, std::log2(most) + 0.15};
  plot.y = {0, std::min(most, 1.35 * std::max(fastest, 1.6))};
  plot.y_ticks = numbered(nice_ticks(0, plot.y.high, 6));
  plot.lines.push_back({"ideal", "aa", {}, false, true, "ideal"});
  for (int i = 0; i <= 24; ++i) {
    const double ranks = std::pow(2.0, std::log2(most) * i / 24);
    if (ranks <= plot.y.high) plot.lines.back().points.push_back({std::log2(ranks), ranks});
  }
  // Beyond the cores nothing can be faster on this machine.
  if (timing.cores >= 1 && timing.cores <= most)
    plot.rules.push_back({true, std::log2(timing.cores), "edge", counted(timing.cores, "core")});
  return plot_drawing(plot);
}

/// What its runs allow at least and at most.
std::string range_words(const Interval& range, double times, int decimals) {
  if (!std::isfinite(range.low) || !std::isfinite(range.high) || range.low == range.high) return "";
  return fmt::format("{} to {}", figure_or_dash(times * range.low, decimals),
                     figure_or_dash(times * range.high, decimals));
}

Datum share_of_step(const TimingRow& row) {
  const double share = row.communication_share;
  if (!std::isfinite(share)) return "—";
  return Datum(fmt::format("{:.0f} %", 100 * share))
      .note(range_words(row.share_range, 100, 0))
      .drawn(bar_drawing({{share, "c1"}}, "bar"));
}

Table costs_of(const Timing& timing, const std::string& group) {
  Table table{.css = "costs",
              .columns = {"layout", numbers("runs"), numbers("ms a step"), numbers("rows a second"),
                          numbers("speed-up"), numbers("efficiency"), "communication", numbers("received a step"),
                          numbers("activations"), numbers("weights")},
              .rows = {}};
  table.columns[6].css = "share";
  for (const TimingRow& row : timing.rows) {
    if (row.group != group) continue;
    const int ranks = std::max(1, row.layout.world_size);
    table.rows.push_back(
        {{Datum(layout_name(row.layout)).note(row.crowded ? "crowded" : ""), std::to_string(row.runs),
          Datum(std::isfinite(row.step_seconds) ? compact_number(1000 * row.step_seconds) : "—")
              .note(row.runs > 1 ? fmt::format("{} to {}", compact_number(1000 * row.interval.low),
                                               compact_number(1000 * row.interval.high))
                                 : ""),
          figure_or_dash(row.rows_per_second, 0),
          Datum(figure_or_dash(row.speed_up, 2)).note(range_words(row.speed_up_range, 1, 2)),
          Datum(figure_or_dash(100 * row.efficiency, 0, " %")).note(range_words(row.speed_up_range, 100.0 / ranks, 0)),
          share_of_step(row), bytes_words(row.bytes), bytes_words(row.activation_bytes), bytes_words(row.weight_bytes)}});
  }
  return table;
}

}  // namespace

Section costs_section(const Timing& timing) {
  Section section{"costs",
                  "What does it cost?",
                  "Real ranks, one run at a time. Speed-up: rows a second over those of one rank of the same group. "
                  "Medians of the runs, with the fastest and slowest. Communication: the share of a step that the rank "
                  "that waits most waits. Memory is per rank. Crowded: more ranks than cores.",
                  {}};
  if (timing.rows.empty()) return section;
  if (!timing.sentence.empty()) section.parts.push_back(prose(clean_line(timing.sentence)));
  Markup out;
  write_figure(out,
               {"",
                "",
                {fmt::format("{}{}; rings: more ranks than cores",
                             timing.cores > 0 ? counted(timing.cores, "core") : "cores unknown",
                             timing.processor.empty() ? "" : ", " + clean_line(timing.processor))}},
               speed_plot(timing));
  section.parts.push_back(drawing(out.take()));
  for (const std::string& group : timing_groups(timing)) {
    section.parts.push_back(heading(clean_line(group)));
    section.parts.push_back(tabled(costs_of(timing, group)));
  }
  return section;
}

// The answer as a grid, and what the whole matrix answers in the box at the top.
namespace {

/// The little bars reach this many margins to either side.
constexpr double kReachOfBar = 3;

std::string bar_of(const CellResult& cell, double margin) {
  const MetricDifference& d = cell.outcome->primary;
  const AxisRange range = drawable(-kReachOfBar * margin, kReachOfBar * margin);
  const std::string css = row_css(cell, cell.verdict);
  Strip strip({range.low, range.high, 2, 98}, "", "", 50, "mini");
  return strip.area(-margin, margin)
      .rule(0, "zero")
      .span(d.interval.low, d.interval.high, "ci " + css)
      .mark(d.mean, "dot", css)
      .take();
}

/// "≠ −0.094 ± 0.020", and what it was expected to be if it is not.
Datum place_of(const Page& page, const CellResult* cell, int decimals) {
  if (!cell) return Datum("—").in("none");
  if (cell->anchor) {
    Datum reference = Datum("reference").in("none");
    if (cell->outcome && std::isfinite(cell->outcome->primary.reference_mean))
      reference.note(fmt::format("mean {:.{}f}", cell->outcome->primary.reference_mean, decimals));
    return reference;
  }
  const VerdictStyle& style = style_of(cell->verdict);
  const bool measured = cell->outcome && !cell->failure;
  Datum place(fmt::format("{} {}", style.symbol,
                          measured ? difference_and_half(cell->outcome->primary, decimals) : style.words),
              std::string("t-") + style.css);
  place.to(page.anchors[static_cast<std::size_t>(cell - page.results.cells.data())]).in(std::string("a-") + style.css);
  if (measured) place.note(own_terms(page.results, *cell)).drawn(bar_of(*cell, cell->outcome->margin));
  if (cell->no_negatives) place.note("no negatives: the loss is 0");
  if (!cell->failed_saves.empty()) place.note({"checkpoints: " + clean_line(cell->failed_saves), "t-bad"});
  if (!is_as_expected(*cell)) place.note({"✗ expected " + expected_words(*cell), "t-bad"});
  return place;
}

}  // namespace

Section answers_section(const Results& results) {
  const Part answers = answered(answers_of(results));
  return {"answers", "", "", answers.answers.empty() ? std::vector<Part>() : std::vector{answers}};
}

Section grid_section(const Page& page) {
  const std::optional<AnswerGrid> grid = grid_of(page.results);
  if (!grid) return {};
  const Results& results = page.results;
  const std::string against = held_against(results, *grid);
  Table table{.css = "answer", .columns = {clean_line(grid->row_axis)}, .rows = {}};
  for (const std::string& column : grid->columns) table.columns.emplace_back(setting_words(grid->column_axis, column));
  for (std::size_t row = 0; row < grid->rows.size(); ++row) {
    table.rows.push_back({{name_words(grid->rows[row])}});
    for (const CellResult* cell : grid->cells[row])
      table.rows.back().cells.push_back(place_of(page, cell, decimals_for(results.primary.margin)));
  }
  const bool alike = common_level(results).has_value();
  const std::string caption = fmt::format(
      "{} after {}, difference to {} ± half of the {}, {}; margin ± {:g}; = equivalent, ≠ divergent, ? undecided.",
      metric_words(results.primary.metric), counted(results.steps, "step"), against,
      alike ? interval_name(results) : "interval at each cell's own level", pairs_words(results),
      results.primary.margin);
  return {"grid",
          fmt::format("Which {} train the same as {}?", grid->row_axis == "layout" ? "layouts" : "cells", against),
          "",
          {tabled(std::move(table)),
           prose(fmt::format("{} A bar shows the interval, its middle strip the margin; it ends at {:g} margins.",
                             caption, kReachOfBar))}};
}

// Losses certified, with the figures.
namespace {

std::string count_words(double value) { return std::isnan(value) ? "—" : fmt::format("{:.0f}", value); }

std::string times_words(double ratio) { return std::isnan(ratio) ? "—" : fmt::format("{:.2f} ×", ratio); }

/// 1 - cosine loses nothing where six digits of the cosine would.
std::string cosine_words(double cosine) { return std::abs(1 - cosine) < 1e-6 ? "1" : compact_number(cosine); }

/// One row a loss and number of ranks.
Table losses_of(const Certificate& certificate) {
  Table table{.css = "certificate",
              .columns = {"loss", numbers("ranks"), numbers("certified"), numbers("worst / tolerance"), "group",
                          numbers("ratio"), numbers("cosine"), numbers("residual"), "worst case", numbers("energies"),
                          numbers("received"), numbers("time / local")},
              .rows = {}};
  for (const std::size_t wide : {6, 7, 8}) table.columns[wide].page = true;
  for (const CertificateRow& row : certificate.rows) {
    const GradientSignature& g = row.worst_group;
    const bool none = row.worst_cell.empty(), all = row.certified == row.cases;
    table.rows.push_back(
        {{name_words(row.loss), std::to_string(row.world_size),
          Datum(all ? fmt::format("all {}", row.cases) : fmt::format("{} of {}", row.certified, row.cases),
                all ? "t-ok" : "t-bad")
              .drawn(bar_drawing({{static_cast<double>(row.certified) / std::max(1, row.cases), all ? "ok" : "bad"}},
                                 "bar")),
          none ? "—" : compact_number(row.worst), none ? "" : clean_line(g.group), none ? "—" : compact_number(g.ratio),
          none ? "—" : cosine_words(g.cosine), none ? "—" : compact_number(g.residual),
          none ? "" : fmt::format("{}, step {}", name_words(row.worst_cell), row.worst_step),
          count_words(row.costs.energies), bytes_words(row.costs.bytes), times_words(row.time_to_local)}});
  }
  return table;
}

}  // namespace

Section certificate_section(const Certificate& certificate) {
  std::string steps;
  for (const int64_t step : certificate.steps) steps += (steps.empty() ? "" : ", ") + std::to_string(step);
  return {
      "certificate",
      "Does every loss equal the loss of one process?",
      fmt::format("Gradients after the mean over ranks, at the weights of step {} of the plain reference: one process "
                  "with all rows. The tolerance is {:g} of max(|g_ref|, size of the summed terms) in each "
                  "parameter group; a row shows the case and group that use most of it. Energies: of the busiest "
                  "rank in a step. Received: by a rank from the loss's collectives. Time: over that with local "
                  "negatives, median of the cases: an order of magnitude only.",
                  steps, certificate.exact),
      {tabled(losses_of(certificate))}};
}

}  // namespace lockstep
