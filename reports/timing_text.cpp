#include "reports/timing_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "harness/base/counted.h"
#include "harness/verdict/config/layout_name.h"
#include "reports/text.h"
#include "reports/text_table.h"

namespace lockstep {
namespace {

using Line = std::vector<std::string>;

const Line kHead = {"layout",        "step ms",     "rows/s",         "speed-up",  "efficiency",
                    "communication", "received kB", "activations kB", "weights kB"};

std::string figure_or_na(double value, int decimals, const char* unit = "") {
  return std::isfinite(value) ? fmt::format("{:.{}f}{}", value, decimals, unit) : "n/a";
}

/// "2.10 (1.98 to 2.25)": a figure_or_na and what the runs allow; the figure_or_na alone of one run.
std::string ranged(const TimingRow& row, double value, const Interval& range, double times, int decimals,
                   const char* unit = "") {
  const std::string text = figure_or_na(times * value, decimals, unit);
  // The unit of its group has none, nor has what every run gives alike.
  if (row.runs < 2 || !std::isfinite(range.low) || !std::isfinite(range.high) || range.low == range.high) return text;
  return text +
         fmt::format(" ({} to {})", figure_or_na(times * range.low, decimals), figure_or_na(times * range.high, decimals));
}

/// How many runs each layout's figures are of; nothing where layouts have other numbers of runs.
std::optional<int> common_runs(const Timing& timing) {
  std::optional<int> runs;
  for (const TimingRow& row : timing.rows) {
    if (row.runs == 0) continue;  // It has no figures.
    if (runs && *runs != row.runs) return std::nullopt;
    runs = row.runs;
  }
  return runs;
}

/// How the figures are to be read.
std::string caption(const Timing& timing) {
  const std::optional<int> runs = common_runs(timing);
  return fmt::format("median of {}{}", runs ? counted(*runs, "run") : "the runs given beside the layout",
                     runs == 1 ? "" : " (smallest to largest: a range, not a confidence interval)");
}

Line line_of(const Timing& timing, const TimingRow& row) {
  const std::string runs = common_runs(timing) || row.runs == 0 ? "" : fmt::format(", {}", counted(row.runs, "run"));
  std::string step = figure_or_na(row.step_seconds * 1e3, 2);
  if (row.runs > 1) {
    step += fmt::format(" ({} to {})", figure_or_na(row.interval.low * 1e3, 2), figure_or_na(row.interval.high * 1e3, 2));
  }
  return {layout_name(row.layout) + runs + (row.crowded ? " *" : ""),
          step,
          figure_or_na(row.rows_per_second, 0),
          ranged(row, row.speed_up, row.speed_up_range, 1, 2),
          figure_or_na(row.efficiency * 100, 0, " %"),
          ranged(row, row.communication_share, row.share_range, 100, 0, " %"),
          figure_or_na(row.bytes / 1e3, 1),
          row.activation_bytes > 0 ? figure_or_na(row.activation_bytes / 1e3, 1) : "n/a",
          figure_or_na(row.weight_bytes / 1e3, 1)};
}

std::vector<Line> lines_of(const Timing& timing, const std::string& group) {
  std::vector<Line> lines{kHead};
  for (const TimingRow& row : timing.rows) {
    if (row.group == group) lines.push_back(line_of(timing, row));
  }
  return lines;
}

constexpr const char* kStar = "* more ranks than cores";

bool any_crowded(const Timing& timing) {
  return std::ranges::any_of(timing.rows, [](const TimingRow& row) { return row.crowded; });
}

}  // namespace

std::vector<std::string> timing_groups(const Timing& timing) {
  std::vector<std::string> groups;
  for (const TimingRow& row : timing.rows) {
    if (std::ranges::find(groups, row.group) == groups.end()) groups.push_back(row.group);
  }
  return groups;
}

std::string timing_table(const Timing& timing, int width) {
  std::string out;
  for (const std::string& group : timing_groups(timing)) {
    out += "  " + group + "\n" + aligned_columns(lines_of(timing, group), "    ", width);
  }
  if (!timing.rows.empty()) out += wrapped(caption(timing), width);
  if (any_crowded(timing)) out += std::string(kStar) + "\n";
  return out;
}

std::string timing_markdown(const Timing& timing) {
  std::string out = "## Speed\n\n" + escape_markdown(timing.sentence) + "\n\n";
  for (const std::string& group : timing_groups(timing)) {
    out += "At " + group + ", per step, " + caption(timing) + ":\n\n";
    bool head = true;
    for (const Line& line : lines_of(timing, group)) {
      out += "|";
      for (const std::string& text : line) out += " " + text + " |";
      out += "\n";
      if (head) {
        out += "|---|";
        for (std::size_t i = 1; i < line.size(); ++i) out += "---:|";
        out += "\n";
      }
      head = false;
    }
    out += "\n";
  }
  if (any_crowded(timing)) out += std::string("\\") + kStar + "\n";
  return out;
}

}  // namespace lockstep
