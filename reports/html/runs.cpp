#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/plan/config/run_config.h"
#include "reports/headline.h"
#include "reports/html/parts.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"

// Failures, provenance with differences first, and the commands that repeat.

namespace lockstep {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr int kLongestValue = 400;  ///< columns; a value beyond it is in results.json

const std::string* find(const Pairs& pairs, const std::string& key) {
  const auto found =
      std::find_if(pairs.begin(), pairs.end(), [&](const auto& pair) { return pair.first == key; });
  return found == pairs.end() ? nullptr : &found->second;
}

struct FieldDifference {
  std::string key;
  const std::string* reference;  ///< null: it has no such field
  const std::string* cell;
};

std::vector<FieldDifference> differences_of(const Pairs& reference, const Pairs& cell) {
  std::vector<FieldDifference> out;
  for (const auto& [key, value] : cell) {
    const std::string* other = find(reference, key);
    if (!other || *other != value) out.push_back({key, other, &value});
  }
  for (const auto& [key, value] : reference) {
    if (!find(cell, key)) out.push_back({key, &value, nullptr});
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
    const bool everywhere = std::all_of(all.begin(), all.end(), [&](const Pairs* pairs) {
      const std::string* other = find(*pairs, key);
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

void write_pairs(Markup& out, const Pairs& pairs) {
  open_table(out, "plain", {"setting", "value"});
  for (const auto& [key, value] : pairs) {
    out.open("tr").element("th", {{"scope", "row"}}, key).element("td", {}, shown(&value)).close();
  }
  close_table(out);
}

void write_config_differences(Markup& out, const Page& page) {
  open_table(out, "stack config", {"cell", "setting", "reference", "cell's"});
  for (std::size_t i = 0; i < page.results.cells.size(); ++i) {
    const CellResult& cell = page.results.cells[i];
    const ReferenceResult* reference = reference_of(page.results, cell);
    std::vector<FieldDifference> rows;
    if (reference) rows = differences_of(reference->config, cell.config);
    if (rows.empty()) {
      out.open("tr")
          .open("th", {{"scope", "row"}})
          .element("a", {{"href", "#" + page.anchors[i]}}, name_words(cell.scenario))
          .close();
      out.element("td", {{"colspan", "3"}},
                  reference ? "no difference" : "the results do not contain its reference")
          .close();
    }
    for (std::size_t row = 0; row < rows.size(); ++row) {
      out.open("tr");
      if (row == 0) {
        out.open("th", {{"scope", "rowgroup"}, {"rowspan", std::to_string(rows.size())}});
        out.element("a", {{"href", "#" + page.anchors[i]}}, name_words(cell.scenario));
        out.element("span", {{"class", "sub"}}, "against " + name_words(cell.reference)).close();
      }
      out.open("td", {{"data-label", "setting"}}).element("code", {}, rows[row].key).close();
      out.element("td", {{"data-label", "reference"}}, shown(rows[row].reference));
      out.element("td", {{"data-label", "cell's"}}, shown(rows[row].cell)).close();
    }
  }
  close_table(out);
}

void write_log(Markup& out, const std::vector<std::string>& lines) {
  constexpr int kLongestLine = 500;
  std::string log;
  for (const std::string& line : lines) log += (log.empty() ? "" : "\n") + short_line(line, kLongestLine);
  out.element("pre", {}, log);
}

}  // namespace

void write_failures(Markup& out, const Page& page) {
  const auto failed = [](const CellResult& cell) { return cell.failure.has_value(); };
  if (std::none_of(page.results.cells.begin(), page.results.cells.end(), failed)) return;
  open_section(out, "failures", "Cells that failed or cannot be judged",
               "The first rank that failed, and the last lines of its log.");
  for (std::size_t i = 0; i < page.results.cells.size(); ++i) {
    const CellResult& cell = page.results.cells[i];
    if (!cell.failure) continue;
    const Failure& failure = *cell.failure;
    out.open("div", {{"class", "failure"}, {"id", "failure-" + page.anchors[i]}});
    out.open("h3").element("b", {}, name_words(cell.scenario)).text(" ");
    out.element("b", {{"class", "t-fail"}}, "× " + failure_words(failure)).close();
    open_table(out, "plain", {"run", "rank", "step", "operation"});
    out.open("tr").open("td").element("code", {}, failure.run).close();
    out.element("td", {}, failure.rank < 0 ? "unknown" : std::to_string(failure.rank));
    out.element("td", {}, failure.step < 0 ? "unknown" : std::to_string(failure.step));
    out.element("td", {}, failure.operation.empty() ? "unknown" : failure.operation).close();
    close_table(out);
    if (failure.last_lines.empty())
      out.element("p", {{"class", "why"}}, "It wrote no output.");
    else
      write_log(out, failure.last_lines);
    out.close();
  }
  out.close();
}

void write_provenance(Markup& out, const Page& page) {
  const Results& results = page.results;
  open_section(out, "provenance", "Differences between the runs' settings", "");
  const Pairs equal = equal_fields(results);
  if (!results.cells.empty() && !results.detection) {
    write_config_differences(out, page);
    if (!equal.empty()) {
      out.open("details").element(
          "summary", {}, counted(static_cast<int64_t>(equal.size()), "setting") + " equal in all runs");
      write_pairs(out, equal);
      out.close();
    }
  }
  if (!results.provenance.empty()) {
    out.element("h3", {}, "Build, machine and data");
    write_pairs(out, results.provenance);
  }
  out.close();
}

void write_commands(Markup& out, const Page& page) {
  const Results& results = page.results;
  const bool any =
      !results.rerun.empty() || std::any_of(results.cells.begin(), results.cells.end(),
                                            [](const CellResult& cell) { return !cell.rerun.empty(); });
  if (!any) return;
  open_section(out, "again", "Run it again", "");
  if (!results.rerun.empty()) out.element("p", {}, "The whole matrix:").element("pre", {}, results.rerun);
  for (std::size_t i = 0; i < results.cells.size() && !results.detection; ++i) {
    if (results.cells[i].rerun.empty()) continue;
    out.element("p", {{"id", "again-" + page.anchors[i]}}, name_words(results.cells[i].scenario) + ":");
    out.element("pre", {}, results.cells[i].rerun);
    if (results.cells[i].replay.empty()) continue;
    out.element("p", {}, "Only the first step that differs, from its saved state:");
    out.element("pre", {}, results.cells[i].replay);
  }
  out.close();
}

// What the layouts cost: speed-up against the ideal and this machine's cores, and where the time goes.
namespace {

std::string size_words(double bytes) {
  if (!std::isfinite(bytes)) return "—";
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", bytes / 1024);
  return fmt::format("{:.1f} MiB", bytes / 1024 / 1024);
}

std::string figure_or_dash(double value, int decimals, std::string_view unit = "") {
  return std::isfinite(value) ? fmt::format("{:.{}f}{}", value, decimals, unit) : "—";
}

/// What stands beyond the cores: nothing there can be faster on this machine.
void draw_bounds(Markup& out, const Chart& chart, const Timing& timing, double most) {
  const auto at = [&chart](double ranks) { return chart.x(std::log2(ranks)); };
  std::vector<std::pair<double, double>> ideal;
  for (int i = 0; i <= 24; ++i) {
    const double ranks = std::pow(2.0, std::log2(most) * i / 24);
    if (ranks <= chart.y.high) ideal.emplace_back(at(ranks), chart.y(ranks));
  }
  out.empty("path", {{"class", "line dashed aa"}, {"d", path_through(ideal)}});
  if (!ideal.empty()) text(out, "tick end", ideal.back().first - 6, ideal.back().second + 4, "ideal");
  if (timing.cores < 1 || timing.cores > most) return;
  line(out, "edge", at(timing.cores), chart.top, at(timing.cores), chart.floor());
  text(out, "tick", at(timing.cores) + 5, chart.floor() - 6, counted(timing.cores, "core"));
}

std::string speed_plot(const Timing& timing) {
  double most = 2, fastest = 1.2;
  for (const TimingRow& row : timing.rows) {
    most = std::max(most, static_cast<double>(row.layout.world_size));
    if (std::isfinite(row.speed_up)) fastest = std::max(fastest, row.speed_up);
  }
  Chart chart{580, 320, 44, 22, 12, 46, {}, {}};
  place(chart, -0.15, std::log2(most) + 0.15, 0, std::min(most, 1.35 * std::max(fastest, 1.6)));
  Markup out;
  std::string description;
  for (const TimingRow& row : timing.rows)
    description += fmt::format("{} {}: {}. ", row.group, layout_name(row.layout), figure_or_dash(row.speed_up, 2));
  open_chart(out, chart, "Speed-up by the number of ranks", description);
  draw_y_axis(out, chart, numbered(nice_ticks(0, chart.y.high, 6)));
  draw_bounds(out, chart, timing, most);
  std::vector<Tick> ticks;
  const std::vector<std::string> groups = timing_groups(timing);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string css = "c" + std::to_string(g % 6);
    std::vector<std::pair<double, double>> points;
    for (const TimingRow& row : timing.rows) {
      const double x = chart.x(std::log2(std::max(1, row.layout.world_size)));
      if (row.group == groups[g] && std::isfinite(row.speed_up))
        points.emplace_back(x, chart.y(row.speed_up));
    }
    std::stable_sort(points.begin(), points.end());
    out.empty("path", {{"class", "line " + css}, {"d", path_through(points)}});
    for (const TimingRow& row : timing.rows) {
      if (row.group != groups[g] || !std::isfinite(row.speed_up)) continue;
      const double ranks = std::log2(std::max(1, row.layout.world_size));
      mark(out, static_cast<int>(g), css, chart.x(ranks), chart.y(row.speed_up), row.crowded);
      ticks.push_back({ranks, std::to_string(row.layout.world_size)});
    }
  }
  std::stable_sort(ticks.begin(), ticks.end(), [](const Tick& a, const Tick& b) { return a.at < b.at; });
  ticks.erase(
      std::unique(ticks.begin(), ticks.end(), [](const Tick& a, const Tick& b) { return a.at == b.at; }),
      ticks.end());
  draw_x_axis(out, chart, ticks, "ranks");
  return out.take();
}

void write_key(Markup& out, const Timing& timing) {
  const std::vector<std::string> groups = timing_groups(timing);
  out.open("p", {{"class", "keys"}});
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string css = "c" + std::to_string(g % 6);
    out.open("span").open("svg", {{"class", "key"}, {"viewBox", "0 0 34 14"}, {"aria-hidden", "true"}});
    line(out, "line " + css, 1, 7, 33, 7);
    mark(out, static_cast<int>(g), css, 17, 7);
    out.close().text(groups[g]).close();
  }
  const auto crowded = [](const TimingRow& row) { return row.crowded; };
  if (std::any_of(timing.rows.begin(), timing.rows.end(), crowded)) {
    out.open("span").open("svg", {{"class", "key"}, {"viewBox", "0 0 34 14"}, {"aria-hidden", "true"}});
    mark(out, 0, "ref", 17, 7, true);
    out.close().text("more ranks than cores").close();
  }
  out.close();
}

/// Below a figure_or_dash: what its runs allow at least and at most.
void write_range(Markup& out, const Interval& range, double times, int decimals) {
  if (!std::isfinite(range.low) || !std::isfinite(range.high) || range.low == range.high) return;
  out.element("span", {{"class", "sub"}},
              fmt::format("{} to {}", figure_or_dash(times * range.low, decimals), figure_or_dash(times * range.high, decimals)));
}

void write_share(Markup& out, const TimingRow& row) {
  const double share = row.communication_share;
  out.open("td", {{"class", "share"}});
  if (!std::isfinite(share)) {
    out.text("—").close();
    return;
  }
  out.open("svg", {{"class", "bar"}, {"aria-hidden", "true"}});
  out.empty("rect", {{"width", "100%"}, {"height", "100%"}, {"class", "bar-of"}});
  out.empty("rect",
            {{"width", percent(100 * std::clamp(share, 0.0, 1.0))}, {"height", "100%"}, {"class", "bar-in"}});
  out.close().text(fmt::format("{:.0f} %", 100 * share));
  write_range(out, row.share_range, 100, 0);
  out.close();
}

void write_rows(Markup& out, const Timing& timing, const std::string& group) {
  open_table(out, "costs",
             {"layout", numbers("runs"), numbers("ms a step"), numbers("fastest, slowest run"),
              numbers("rows a second"), numbers("speed-up"), numbers("efficiency"),
              "communication", numbers("received a step"), numbers("activations"), numbers("weights")});
  for (const TimingRow& row : timing.rows) {
    if (row.group != group) continue;
    out.open("tr").open("th", {{"scope", "row"}}).text(layout_name(row.layout));
    if (row.crowded) out.element("span", {{"class", "sub"}}, "crowded");
    out.close();
    out.element("td", {{"class", "n"}}, std::to_string(row.runs));
    out.element("td", {{"class", "n"}}, compact_number(1000 * row.step_seconds));
    out.element("td", {{"class", "n"}},
                fmt::format("{}, {}", compact_number(1000 * row.interval.low),
                            compact_number(1000 * row.interval.high)));
    out.element("td", {{"class", "n"}}, figure_or_dash(row.rows_per_second, 0));
    const int ranks = std::max(1, row.layout.world_size);
    out.open("td", {{"class", "n"}}).text(figure_or_dash(row.speed_up, 2));
    write_range(out, row.speed_up_range, 1, 2);
    out.close().open("td", {{"class", "n"}}).text(figure_or_dash(100 * row.efficiency, 0, " %"));
    write_range(out, row.speed_up_range, 100.0 / ranks, 0);
    out.close();
    write_share(out, row);
    for (const double bytes : {row.bytes, row.activation_bytes, row.weight_bytes})
      out.element("td", {{"class", "n"}}, size_words(bytes));
    out.close();
  }
  close_table(out);
}

}  // namespace

void write_costs(Markup& out, const Page& page) {
  if (!page.results.timing || page.results.timing->rows.empty()) return;
  const Timing& timing = *page.results.timing;
  std::string why =
      "Real ranks, one run at a time on the machine. Speed-up: rows a second relative to one rank of the same group, median "
      "over runs. The range below speed-up, efficiency and communication is that of the fastest and slowest runs, "
      "not a confidence interval. Communication: the share of a step that the rank that waits "
      "most spends waiting. Memory is per rank.";
  if (!timing.sentence.empty()) why += " " + clean_line(timing.sentence);
  open_section(out, "costs", "What does it cost?", why);
  write_key(out, timing);
  out.open("figure", {{"class", "panel"}}).raw(speed_plot(timing));
  out.open("figcaption")
      .element("span", {},
               fmt::format("{}{}", timing.cores > 0 ? counted(timing.cores, "core") : "cores unknown",
                           timing.processor.empty() ? "" : ", " + clean_line(timing.processor)));
  out.close().close();
  for (const std::string& group : timing_groups(timing)) {
    out.element("h3", {}, clean_line(group));
    write_rows(out, timing, group);
  }
  out.close();
}

// The answer as a grid, and what the whole matrix answers in the box at the top.
namespace {

/// The little bars reach this many margins to either side.
constexpr double kReachOfBar = 3;

void draw_bar(Markup& out, const CellResult& cell, double margin) {
  const Outcome& o = *cell.outcome;
  const AxisRange range = drawable(-kReachOfBar * margin, kReachOfBar * margin);
  const Scale axis{range.low, range.high, 2, 98};
  const std::string css = row_css(cell, cell.verdict);
  out.open("svg", {{"class", "mini"}, {"aria-hidden", "true"}});
  out.empty("rect", {{"x", percent(axis(-margin))},
                     {"width", percent(axis(margin) - axis(-margin))},
                     {"height", "100%"},
                     {"class", "margin"}});
  const std::string zero = percent(axis(0));
  out.empty("line", {{"x1", zero}, {"x2", zero}, {"y1", "0"}, {"y2", "100%"}, {"class", "zero"}});
  const double low = std::max(o.primary.interval.low, axis.low),
               high = std::min(o.primary.interval.high, axis.high);
  if (low < high) {
    out.empty("line", {{"x1", percent(axis(low))},
                       {"x2", percent(axis(high))},
                       {"y1", "50%"},
                       {"y2", "50%"},
                       {"class", "ci " + css}});
  }
  const double mean = o.primary.mean;
  if (mean < axis.low)
    row_mark(out, 1, "left", css, "50%");
  else if (mean > axis.high)
    row_mark(out, 99, "right", css, "50%");
  else if (std::isfinite(mean))
    row_mark(out, axis(mean), "dot", css, "50%");
  out.close();
}

void write_place(Markup& out, const Page& page, const CellResult* cell, int decimals) {
  if (!cell) {
    out.element("td", {{"class", "none"}}, "—");
    return;
  }
  const std::string& anchor = page.anchors[static_cast<std::size_t>(cell - page.results.cells.data())];
  if (cell->anchor) {
    out.open("td", {{"class", "none"}}).element("b", {}, "reference");
    if (cell->outcome && std::isfinite(cell->outcome->primary.reference_mean)) {
      out.element("span", {{"class", "sub"}},
                  fmt::format("{:.{}f}, mean of {}", cell->outcome->primary.reference_mean, decimals,
                              counted(cell->outcome->n, "seed")));
    }
    out.close();
    return;
  }
  const VerdictStyle& style = style_of(cell->verdict);
  const bool expected = is_as_expected(*cell);
  out.open("td", {{"class", std::string("a-") + style.css}});
  out.open("a", {{"href", "#" + anchor}, {"class", std::string("t-") + style.css}});
  out.element("b", {}, fmt::format("{} {}", style.symbol, style.words)).close();
  if (cell->outcome && !cell->failure) {
    const MetricDifference& d = cell->outcome->primary;
    out.element("span", {{"class", "figure"}}, difference_and_half(d, decimals));
    if (const std::string terms = own_terms(page.results, *cell); !terms.empty())
      out.element("span", {{"class", "sub"}}, terms);
    draw_bar(out, *cell, cell->outcome->margin);
  } else {
    out.element("span", {{"class", "figure"}}, cell->failure ? "did not finish" : "no outcome");
  }
  if (cell->no_negatives) out.element("span", {{"class", "sub"}}, "no negatives: the loss is 0");
  if (!cell->failed_saves.empty()) out.element("span", {{"class", "sub t-bad"}}, "checkpoints: " + clean_line(cell->failed_saves));
  if (!expected) out.element("span", {{"class", "sub t-bad"}}, "✗ expected " + expected_words(*cell));
  out.close();
}

}  // namespace

void write_answers(Markup& out, const Headline& headline) {
  out.open("ul", {{"class", "first list"}});
  for (const std::string& sentence : headline.sentences) out.element("li", {}, sentence);
  out.close().open("dl", {{"class", "answers"}});
  for (const Answer& answer : headline.answers) {
    out.open("div").element("dt", {{"class", std::string("t-") + answer.css}}, answer.question);
    out.element("dd", {}, answer.text).close();
  }
  out.close();
}

void write_grid(Markup& out, const Page& page) {
  const std::optional<AnswerGrid> grid = grid_of(page.results);
  if (!grid) return;
  const Results& results = page.results;
  const int decimals = decimals_for(results.primary.margin);
  const std::string against = held_against(results, *grid);
  open_section(
      out, "grid",
      grid->row_axis == "layout" ? "Which layouts train the same as " + against + "?"
                                 : "Which cells train the same as " + against + "?",
      fmt::format(
          "Difference of {} after {}, mean of {} ± half of the {}. The bar shows that "
          "interval; the strip in the middle is the margin of ± {:g}; the drawing ends at {:g} margins. "
          "Each cell is compared with its own reference: same seeds, same samples.",
          metric_words(results.primary.metric), counted(results.steps, "step"), pairs_words(results),
          interval_name(results), results.primary.margin, kReachOfBar));
  open_scroll(out, "Each cell and its reference");
  out.open("table", {{"class", "answer"}}).open("thead").open("tr");
  out.element("th", {{"scope", "col"}}, clean_line(grid->row_axis));
  for (const std::string& column : grid->columns)
    out.element("th", {{"scope", "col"}}, setting_words(grid->column_axis, column));
  out.close().close().open("tbody");
  for (std::size_t row = 0; row < grid->rows.size(); ++row) {
    out.open("tr").element("th", {{"scope", "row"}}, name_words(grid->rows[row]));
    for (const CellResult* cell : grid->cells[row]) write_place(out, page, cell, decimals);
    out.close();
  }
  out.close().close().close().close();
}

// Losses certified, with the figures.
void write_certificate(Markup& out, const Page& page) {
  if (!page.results.certificate) return;
  const Certificate& certificate = *page.results.certificate;
  std::string steps;
  for (const int64_t step : certificate.steps) steps += (steps.empty() ? "" : ", ") + std::to_string(step);
  open_section(
      out, "certificate", "Does every loss equal the loss of one process?",
      fmt::format(
          "Gradients after the mean over ranks, at the weights of step {} of the plain reference: one process "
          "with all rows. The tolerance is {:g} of max(|g_ref|, size of the summed terms) in each "
          "parameter group; a row shows the case and group that use most of it. Energies: how many "
          "the busiest rank computes in a step. Received: what a rank gets from the loss's collectives. "
          "Time: relative to the same cases with local negatives, median over the cases, a few steps "
          "each: an order of magnitude only.",
          steps, certificate.exact));
  const TextTable table = certificate_table(page.results, true);
  open_table(out, "certificate", table.heads);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    out.open("tr");
    for (std::size_t k = 0; k < table.rows[i].size(); ++k) {
      if (k == 0) {
        out.element("th", {{"scope", "row"}}, table.rows[i][k]);
      } else if (k == table.judged) {
        out.open("td", {{"class", "n"}});
        out.element("b", {{"class", std::string("t-") + table.css[i]}}, table.rows[i][k]).close();
      } else {
        out.element("td", {{"class", table.heads[k].numbers ? "n" : ""}}, table.rows[i][k]);
      }
    }
    out.close();
  }
  close_table(out);
  out.close();
}

}  // namespace lockstep
