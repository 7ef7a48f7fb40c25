#include "reports/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/verdict/config/layout_name.h"
#include "harness/verdict/results/words.h"
#include "harness/verdict/stats/growth_words.h"
#include "reports/numbers.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {
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

}  // namespace lockstep
