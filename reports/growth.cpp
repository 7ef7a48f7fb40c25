// Sections of planted faults, of rules where the batch grows, and of gradient noise scales.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/answer/results/words.h"
#include "harness/answer/stats/outcome.h"
#include "reports/html/parts.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {
namespace {

/// "best mean", "not shown to be worse", "shown to be worse", "not judged".
std::string standing_words(const Growth& growth, const Growth::Rule& rule) {
  if (std::isnan(rule.difference.mean)) return "not judged";
  if (growth.best.empty()) return "";
  if (rule.rule == growth.best) return "best mean";
  const auto is_this = [&rule](const std::string& name) { return name == rule.cell || name == rule.rule; };
  return std::ranges::any_of(growth.not_worse, is_this) ? "not shown to be worse" : "shown to be worse";
}

/// The level that the intervals of all judged rules have; below 0 where they differ, or none is judged.
double common_level_of(const Growth& growth) {
  Reach levels;
  for (const Growth::Rule& rule : growth.rules)
    if (!std::isnan(rule.difference.mean)) levels.take(rule.difference.interval.level);
  return levels.high - levels.low <= 1e-9 ? levels.high : -1;
}

std::string interval_of(const Growth& growth, const Growth::Rule& rule, int decimals) {
  const Interval& interval = rule.difference.interval;
  if (std::isnan(rule.difference.mean) || !std::isfinite(interval.low)) return "—";
  const std::string level = common_level_of(growth) < 0 ? ", " + level_words(interval.level) : "";
  return interval_words(interval, decimals) + level;
}

Table rules_of(const Growth& growth, int decimals) {
  Table table{.columns = {"rule", numbers("exponent"), numbers("difference"), numbers(rule_interval_name(growth)),
                          numbers("n"), "verdict", "compared with the best"},
              .rows = {}};
  for (const Growth::Rule& rule : growth.rules) {
    const bool judged = !std::isnan(rule.difference.mean);
    const VerdictStyle& style = style_of(rule.verdict);
    table.rows.push_back(
        {{clean_line(rule.rule), std::isnan(rule.exponent) ? "—" : fmt::format("{:.2f}", rule.exponent),
          judged ? signed_number(rule.difference.mean, decimals) : "—", interval_of(growth, rule, decimals),
          rule.n > 0 ? std::to_string(rule.n) : "—",
          judged ? Datum(fmt::format("{} {}", style.symbol, style.words), std::string("t-") + style.css) : Datum("—"),
          standing_words(growth, rule)}});
  }
  return table;
}

/// Of the first cell that a rule rests on.
std::string noise_of_rules(const Results& results, const Growth& growth) {
  for (const CellResult& cell : results.cells) {
    if (!cell.noise_scale || std::ranges::find(growth.rules, cell.scenario, &Growth::Rule::cell) == growth.rules.end())
      continue;
    return fmt::format("Gradient noise scale of {}: {}. {}", name_words(cell.scenario),
                       noise_scale_words(*cell.noise_scale), clean_line(cell.noise_scale->caveat));
  }
  return "";
}

}  // namespace

std::string rule_interval_name(const Growth& growth) {
  const double level = common_level_of(growth);
  return level < 0 ? "interval" : level_words(level) + " interval";
}

Section growth_section(const Page& page) {
  Section section{"growth", "Which learning-rate rule fits when the batch grows?", "", {}};
  if (!varies_batch_or_rate_rule(page.results)) return section;
  for (const Growth& g : page.results.growth) {
    if (g.rules.empty()) continue;
    section.intro =
        fmt::format("Difference of {} to the small batch, with its {} over paired seeds; green is the margin.",
                    metric_words(page.results.primary.metric), rule_interval_name(g));
    const bool grows = g.from_batch != g.to_batch;
    section.parts.push_back(
        heading(grows ? fmt::format("{}: from {} to {} rows, {}", name_words(g.reference), g.from_batch, g.to_batch,
                                    samples_in_words(g.samples_ratio))
                      : fmt::format("{}: the batch stays at {} rows", name_words(g.reference), g.to_batch)));
    if (grows) section.parts.push_back(rules_drawing(page.results, g));
    if (!g.caveat.empty()) section.parts.push_back(on_pages(prose(clean_line(g.caveat))));
    section.parts.push_back(tabled(rules_of(g, decimals_for(page.results.primary.margin))));
    for (const std::string& said : {clean_line(g.sentence), noise_of_rules(page.results, g)})
      if (!said.empty()) section.parts.push_back(prose(said));
  }
  return section;
}

Table noise_table(const std::vector<const CellResult*>& cells) {
  const auto on_page = [](const char* head) {
    Column column = numbers(head);
    column.page = true;
    return column;
  };
  Table table{.columns = {"cell", on_page("rows of a rank, of all"), numbers("noise scale, rows"),
                          numbers(level_words(cells.front()->noise_scale->interval.level) + " interval"),
                          on_page("|G|²"), on_page("S"), numbers("steps"), "caveat"},
              .rows = {}};
  std::string last;
  for (const CellResult* cell : cells) {
    const NoiseScale& n = *cell->noise_scale;
    table.rows.push_back(
        {{name_words(cell->scenario), fmt::format("{}, {}", n.small_batch, n.big_batch), compact_number(n.batch),
          fmt::format("[{}, {}]", compact_number(n.interval.low), compact_number(n.interval.high)),
          compact_number(n.gradient_squared), compact_number(n.noise), std::to_string(n.steps),
          n.caveat == last && !last.empty() ? "as above" : clean_line(n.caveat)}});
    last = n.caveat;
  }
  return table;
}

namespace {

constexpr std::size_t kMostMisses = 100;
constexpr int kLongestCause = 200, kLongestMutant = 60;

std::string count_or_dot(int count) { return count == 0 ? "·" : std::to_string(count); }

std::string share(int hits, int of) { return fmt::format("{}/{}", hits, of); }

bool has_exact_trials(const Detection& detection) {
  return std::ranges::any_of(detection.rows, [](const DetectionRow& row) { return row.exact_trials > 0; });
}

Table rates_of(const Detection& detection) {
  Table table{.columns = {"of the trials", numbers("number"), numbers("share"), numbers("95 % interval"), "asked", ""},
              .rows = {}};
  for (const DetectionRate& rate : detection.rates) {
    const double of = static_cast<double>(std::max<int64_t>(rate.of, 1));
    table.rows.push_back(
        {{clean_line(rate.what), fmt::format("{} of {}", rate.hits, rate.of),
          Datum(rate.of == 0 ? "—" : fmt::format("{:.1f} %", 100 * static_cast<double>(rate.hits) / of))
              .drawn(bar_drawing({{static_cast<double>(rate.hits) / of, rate.asked < 0 ? "aa"
                                                                        : rate.enough  ? "ok"
                                                                                       : "bad"}},
                                 "bar")),
          rate.of == 0 ? "—" : fmt::format("{:.1f} to {:.1f} %", 100 * rate.interval.low, 100 * rate.interval.high),
          rate.asked < 0 ? ""
          : rate.at_most ? "none"
                         : fmt::format("at least {:.0f} %", 100 * rate.asked),
          rate.asked < 0 ? Datum()
          : rate.enough  ? Datum("✓ met", "t-ok")
                         : Datum("✗ not met", "t-bad")}});
  }
  return table;
}

/// Planted faults against what was found: "5/5" for shares, a count for detectors, "·" for none.
Table faults_of(const Detection& detection) {
  const bool exact = has_exact_trials(detection);
  Table table{.css = "plain trials", .columns = {"fault"}, .rows = {}};
  for (const char* head : {"caught", "step", "place", "named", "wrongly"}) table.columns.push_back(numbers(head));
  if (exact) table.columns.push_back(numbers("exact"));
  for (const std::string& detector : detection.detectors) table.columns.push_back(numbers(clean_line(detector)));
  table.columns.push_back(numbers("loss curve"));
  table.columns.emplace_back("stands for").page = true;
  for (const DetectionRow& row : detection.rows) {
    std::vector<Datum> cells{
        short_line(row.mutant, kLongestMutant), share(row.caught, row.trials),
        share(row.exact_step, row.trials),      row.place_asked ? share(row.exact_place, row.trials) : "·",
        share(row.right_cause, row.trials),     count_or_dot(row.wrong_cause)};
    if (exact) cells.emplace_back(row.exact_trials == 0 ? "·" : share(row.exact_found, row.exact_trials));
    for (const int first : row.first_found) cells.emplace_back(count_or_dot(first));
    cells.emplace_back(row.by_loss_curve == 0 ? "·" : share(row.by_loss_curve, row.trials));
    cells.emplace_back(short_line(row.report, kLongestCause));
    table.rows.emplace_back(std::move(cells));
  }
  return table;
}

std::vector<std::string> misses_of(const Detection& detection) {
  std::vector<std::string> lines;
  for (const DetectionMiss& miss : detection.misses) {
    if (lines.size() == kMostMisses) {
      lines.push_back(
          fmt::format("{} more trials failed; results.json lists them all.", detection.misses.size() - lines.size()));
      break;
    }
    lines.push_back(fmt::format("✗ {}: {}. Planted: {}. Reported: {}. Again: {}", clean_line(miss.cell),
                                clean_line(miss.wrong), short_line(miss.planted, kLongestCause),
                                short_line(miss.said, kLongestCause), clean_line(miss.rerun)));
  }
  return lines;
}

/// How the table is read, and the rule of its last column.
std::string detection_caption(const Detection& detection) {
  return fmt::format(
      "Trials of each fault: caught, at the exact step, in the exact tensor or collective{}, named correctly; {}then "
      "how often each detector found it first. Loss curve: trials whose loss (mean over ranks) is more than {:.0f} % "
      "away from the reference's at any step, or that ended early.",
      std::ranges::all_of(detection.rows, &DetectionRow::place_asked) ? "" : " (·: not asked)",
      has_exact_trials(detection)
          ? "exact: its free runs in exact arithmetic that show it at its step and place (·: it "
            "cannot act there); "
          : "",
      100 * detection.loss_tolerance);
}

}  // namespace

Section detection_section(const Detection& detection) {
  Section section{"detection",
                  "Which faults are found, where, and under which name",
                  "",
                  {tabled(rates_of(detection)), tabled(faults_of(detection)), prose(detection_caption(detection))}};
  if (detection.misses.empty()) return section;
  section.parts.push_back(heading("Failed trials"));
  section.parts.push_back(list(misses_of(detection)));
  return section;
}

}  // namespace lockstep
