#include "reports/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/answer/results/words.h"
#include "harness/answer/stats/outcome.h"
#include "harness/plan/config/run_config.h"
#include "reports/html/parts.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {

/// "caught", "325 of 325", "100.0 %", "98.9 to 100.0 %", "at least 95 %".
static std::vector<std::string> rate_cells(const DetectionRate& rate);

/// Heads of the table; the mutant's name comes first.
static std::vector<std::string> detection_heads(const Detection& detection);

/// "best mean", "not shown to be worse", "shown to be worse", "not judged".
static std::string standing_words(const Growth& growth, const Growth::Rule& rule);
namespace {

constexpr int kLongestCaveat = 400;

std::string layouts_words(const Growth& growth) {
  return layout_name(growth.from) + " to " + layout_name(growth.to);
}

std::string measured_exponent_words(double exponent) {
  return std::isnan(exponent) ? "—" : fmt::format("{:.2f}", exponent);
}

struct RuleRow {
  std::string rule, exponent, difference, interval, n, standing;
};

/// The level that the intervals of all judged rules have; below 0 where they differ, or none is judged.
double common_level_of(const Growth& growth) {
  double level = -1;
  for (const Growth::Rule& rule : growth.rules) {
    if (std::isnan(rule.difference.mean)) continue;
    const double own = rule.difference.interval.level;
    if (level >= 0 && std::abs(own - level) > 1e-9) return -1;
    level = own;
  }
  return level;
}

std::vector<RuleRow> rows_of(const Growth& growth, int decimals) {
  std::vector<RuleRow> rows;
  for (const Growth::Rule& rule : growth.rules) {
    const MetricDifference& d = rule.difference;
    const bool judged = !std::isnan(d.mean);
    rows.push_back({clean_line(rule.rule), measured_exponent_words(rule.exponent),
                    judged ? signed_number(d.mean, decimals) : "—",
                    rule_interval_words(growth, rule, decimals),
                    rule.n > 0 ? std::to_string(rule.n) : "—",
                    standing_words(growth, rule)});
  }
  return rows;
}

int widest(const std::vector<RuleRow>& rows, std::string RuleRow::*column) {
  int width = 0;
  for (const RuleRow& row : rows) width = std::max(width, display_width(row.*column));
  return width;
}

std::string line(const std::string& text, int width) {
  std::string out = shorten(text, width);
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

bool has_noise_scales(const Results& results) {
  return std::ranges::any_of(results.cells,
                             [](const CellResult& cell) { return cell.noise_scale.has_value(); });
}

std::string md_caveat(std::string_view text) { return escape_markdown(short_line(text, kLongestCaveat)); }

/// A page of equal sentences helps nobody: what was said of the cell before is not said again.
std::string caveat_once(const CellResult& cell, std::string& last) {
  if (cell.noise_scale->caveat == last) return last.empty() ? "" : "as above";
  last = cell.noise_scale->caveat;
  return last;
}

}  // namespace

std::string standing_words(const Growth& growth, const Growth::Rule& rule) {
  if (std::isnan(rule.difference.mean)) return "not judged";
  if (growth.best.empty()) return "";
  if (rule.rule == growth.best) return "best mean";
  const bool spared = std::ranges::find(growth.not_worse, rule.rule) != growth.not_worse.end();
  return spared ? "not shown to be worse" : "shown to be worse";
}

std::string rule_interval_name(const Growth& growth) {
  const double level = common_level_of(growth);
  return level < 0 ? "interval" : level_words(level) + " interval";
}

std::string rule_interval_words(const Growth& growth, const Growth::Rule& rule, int decimals) {
  const Interval& interval = rule.difference.interval;
  if (std::isnan(rule.difference.mean) || !std::isfinite(interval.low)) return "—";
  const std::string level = common_level_of(growth) < 0 ? ", " + level_words(interval.level) : "";
  return interval_words(interval, decimals) + level;
}

std::string growth_text(const Growth& growth, int decimals, int width) {
  const std::vector<RuleRow> rows = rows_of(growth, decimals);
  const int rule = widest(rows, &RuleRow::rule), difference = widest(rows, &RuleRow::difference),
            interval = widest(rows, &RuleRow::interval);
  std::string out =
      line(fmt::format("learning-rate rules, {}: difference, its {}, n", layouts_words(growth),
                       rule_interval_name(growth)),
           width);
  for (const RuleRow& row : rows) {
    out += line(
        fmt::format("  {}  exponent {}  {}  {}  n {}  {}", pad_right(row.rule, rule),
                    pad_right(row.exponent, 4), pad_right(row.difference, difference),
                    pad_right(row.interval, interval), row.n, row.standing),
        width);
  }
  return out;
}

std::string noise_scale_text(const Results& results, int width) {
  // The terminal shows the noise scales of cells that test a rule of the learning rate; the report shows all.
  const auto is_told = [&results](const CellResult& cell) {
    if (!cell.noise_scale) return false;
    return std::ranges::any_of(results.growth, [&cell](const Growth& growth) {
      return std::ranges::find(growth.rules, cell.scenario, &Growth::Rule::cell) != growth.rules.end();
    });
  };
  if (std::ranges::none_of(results.cells, is_told)) return "";
  int name = 12;
  for (const CellResult& cell : results.cells) {
    if (is_told(cell)) name = std::max(name, std::min(36, display_width(name_words(cell.scenario))));
  }
  std::string out = line("gradient noise scale", width), last;
  for (const CellResult& cell : results.cells) {
    if (!is_told(cell)) continue;
    const std::string caveat = clean_line(caveat_once(cell, last));
    out += line("  " + pad_right(shorten(name_words(cell.scenario), name), name) + "  " +
                    noise_scale_words(*cell.noise_scale) + (caveat.empty() ? "" : "; " + caveat),
                width);
  }
  return out;
}

std::string growth_markdown(const Results& results) {
  if (!varies_batch_or_rate_rule(results)) return "";
  const int decimals = decimals_for(results.primary.margin);
  std::string out;
  for (const Growth& growth : results.growth) {
    out += fmt::format("\n### Learning-rate rules, {}\n\n", md_caveat(layouts_words(growth)));
    out += fmt::format("| rule | exponent | difference | {} | n | |\n|---|--:|--:|---|--:|---|\n",
                       rule_interval_name(growth));
    for (const RuleRow& row : rows_of(growth, decimals)) {
      out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", md_caveat(row.rule), row.exponent, row.difference,
                         md_caveat(row.interval), row.n, row.standing);
    }
    out += "\n" + escape_markdown(short_line(growth.sentence, 1000)) + "\n";
  }
  if (!has_noise_scales(results)) return out;
  out += "\n### Gradient noise scale\n\n| cell | noise scale | |\n|---|---|---|\n";
  std::string last;
  for (const CellResult& cell : results.cells) {
    if (!cell.noise_scale) continue;
    out += fmt::format("| {} | {} | {} |\n", md_caveat(name_words(cell.scenario)),
                       noise_scale_words(*cell.noise_scale), md_caveat(caveat_once(cell, last)));
  }
  return out;
}

namespace {

constexpr std::size_t kMostMisses = 20, kMostMissesOnPage = 100;
constexpr int kLongestCause = 200, kLongestMutant = 60;

std::string count_or_dot(int count) { return count == 0 ? "·" : std::to_string(count); }

std::string share(int hits, int of) { return fmt::format("{}/{}", hits, of); }

std::string interval_in_percent(const Interval& interval) {
  return fmt::format("{:.1f} to {:.1f} %", 100 * interval.low, 100 * interval.high);
}

bool has_exact_trials(const Detection& detection) {
  return std::ranges::any_of(detection.rows, [](const DetectionRow& row) { return row.exact_trials > 0; });
}

std::vector<std::vector<std::string>> table_of(const Detection& detection) {
  std::vector<std::vector<std::string>> rows{detection_heads(detection)};
  for (const DetectionRow& row : detection.rows) {
    rows.push_back({short_line(row.mutant, kLongestMutant)});
    for (std::string& cell : detection_cells(detection, row)) rows.back().push_back(std::move(cell));
  }
  return rows;
}

std::string more_misses(const Detection& detection, std::size_t shown) {
  const std::size_t all = detection.misses.size();
  return all > shown ? fmt::format("{} more trials failed; results.json lists them all", all - shown) : "";
}

std::string markdown_row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + escape_markdown(cell) + " |";
  return line + "\n";
}

void write_rates(Markup& out, const Detection& detection) {
  open_table(out, "plain", {"of the trials", numbers("number"), numbers("share"), numbers("95 % interval"),
                            "asked", ""});
  for (const DetectionRate& rate : detection.rates) {
    const std::vector<std::string> cells = rate_cells(rate);
    out.open("tr").element("th", {{"scope", "row"}}, cells[0]);
    for (std::size_t i = 1; i < 4; ++i) out.element("td", {{"class", "n"}}, cells[i]);
    out.element("td", {}, cells[4]).open("td");
    if (rate.asked >= 0) {
      out.element("b", {{"class", rate.enough ? "t-ok" : "t-bad"}},
                  rate.enough ? "✓ met" : "✗ not met");
    }
    out.close().close();
  }
  close_table(out);
}

void write_table(Markup& out, const Detection& detection) {
  std::vector<Column> heads;
  for (const std::string& head : detection_heads(detection))
    heads.push_back(heads.empty() ? Column(head) : numbers(head));
  heads.emplace_back("stands for");
  open_table(out, "plain trials", heads);
  for (const DetectionRow& row : detection.rows) {
    out.open("tr").element("th", {{"scope", "row"}}, short_line(row.mutant, kLongestMutant));
    for (const std::string& cell : detection_cells(detection, row)) out.element("td", {{"class", "n"}}, cell);
    out.element("td", {}, short_line(row.report, kLongestCause)).close();
  }
  close_table(out);
}

void write_misses(Markup& out, const Detection& detection) {
  if (detection.misses.empty()) return;
  const std::size_t shown = std::min(detection.misses.size(), kMostMissesOnPage);
  out.element("h3", {}, "Failed trials");
  open_table(out, "plain", {"trial", "error", "planted fault", "reported", "run again"});
  for (std::size_t i = 0; i < shown; ++i) {
    const DetectionMiss& miss = detection.misses[i];
    out.open("tr").element("th", {{"scope", "row"}}, short_line(miss.cell, kLongestMutant));
    for (const std::string* text : {&miss.wrong, &miss.planted, &miss.said})
      out.element("td", {}, short_line(*text, kLongestCause));
    out.open("td").element("code", {}, miss.rerun).close().close();
  }
  close_table(out);
  if (const std::string more = more_misses(detection, shown); !more.empty())
    out.element("p", {{"class", "why"}}, more + ".");
}

}  // namespace

std::vector<std::string> detection_heads(const Detection& detection) {
  std::vector<std::string> heads{"fault", "caught", "step", "place", "named", "wrongly"};
  if (has_exact_trials(detection)) heads.emplace_back("exact");
  for (const std::string& detector : detection.detectors) heads.push_back(clean_line(detector));
  heads.emplace_back("loss curve");
  return heads;
}

std::vector<std::string> detection_cells(const Detection& detection, const DetectionRow& row) {
  std::vector<std::string> cells{share(row.caught, row.trials), share(row.exact_step, row.trials),
                                 row.place_asked ? share(row.exact_place, row.trials) : "·", share(row.right_cause, row.trials),
                                 count_or_dot(row.wrong_cause)};
  if (has_exact_trials(detection)) {
    cells.push_back(row.exact_trials == 0 ? "·" : share(row.exact_found, row.exact_trials));
  }
  for (const int first : row.first_found) cells.push_back(count_or_dot(first));
  cells.push_back(row.by_loss_curve == 0 ? "·" : share(row.by_loss_curve, row.trials));
  return cells;
}

std::string detection_caption(const Detection& detection) {
  return fmt::format(
      "For each fault, the number of trials caught, at the exact step, in the exact tensor or collective{}, named correctly; "
      "{}then how "
      "often each detector was the first to find it. Loss curve: trials that a comparison of training-loss "
      "curves would "
      "have found: the loss (mean over ranks) is more than {:.0f} % away from the reference's "
      "at any "
      "step, or the run ended early.",
      std::ranges::all_of(detection.rows, &DetectionRow::place_asked) ? "" : " (·: not asked)",
      has_exact_trials(detection) ? "exact: its free runs in exact arithmetic that show it at its step and place (·: it "
                                    "cannot act there); "
                                  : "",
      100 * detection.loss_tolerance);
}

std::vector<std::string> rate_cells(const DetectionRate& rate) {
  const double of = static_cast<double>(std::max<int64_t>(rate.of, 1));
  return {clean_line(rate.what), fmt::format("{} of {}", rate.hits, rate.of),
          rate.of == 0 ? "—" : fmt::format("{:.1f} %", 100 * static_cast<double>(rate.hits) / of),
          rate.of == 0 ? "—" : interval_in_percent(rate.interval),
          rate.asked < 0 ? ""
          : rate.at_most ? "none"
                         : fmt::format("at least {:.0f} %", 100 * rate.asked)};
}

std::string detection_text(const Detection& detection, int width) {
  std::string out = aligned_columns(table_of(detection), "  ", width) + "\n";
  std::vector<std::vector<std::string>> rates{std::vector<std::string>(6)};
  for (const DetectionRate& rate : detection.rates) {
    rates.push_back(rate_cells(rate));
    rates.back().push_back(rate.asked < 0 ? "" : rate.enough ? "✓" : "✗");
  }
  out += aligned_columns(rates, "  ", width);
  const std::size_t shown = std::min(detection.misses.size(), kMostMisses);
  for (std::size_t i = 0; i < shown; ++i) {
    const DetectionMiss& miss = detection.misses[i];
    if (i == 0) out += "\n";
    out += wrapped(fmt::format("✗ {}: {}. Planted: {}. Reported: {}.", clean_line(miss.cell), clean_line(miss.wrong),
                               short_line(miss.planted, kLongestCause), short_line(miss.said, kLongestCause)),
                   width);
    out += shorten("    " + clean_line(miss.rerun), width) + "\n";
  }
  if (const std::string more = more_misses(detection, shown); !more.empty()) out += more + ".\n";
  return out;
}

std::string detection_markdown(const Detection& detection) {
  const std::vector<std::vector<std::string>> rows = table_of(detection);
  std::string out = markdown_row({"of the trials", "number", "share", "95 % interval", "asked"}) +
                    "|---|--:|--:|--:|---|\n";
  for (const DetectionRate& rate : detection.rates) out += markdown_row(rate_cells(rate));
  out += "\n" + escape_markdown(detection_caption(detection)) + "\n\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out += markdown_row(rows[i]);
    if (i > 0) continue;
    out += "|---|";
    for (std::size_t column = 1; column < rows[0].size(); ++column) out += "--:|";
    out += "\n";
  }
  return out;
}

void write_detection(Markup& out, const Page& page) {
  if (!page.results.detection) return;
  const Detection& detection = *page.results.detection;
  open_section(out, "detection", "Which faults are found, where, and under which name", detection_caption(detection));
  write_rates(out, detection);
  write_table(out, detection);
  write_misses(out, detection);
  out.close();
}

}  // namespace lockstep
