#include "reports/detection.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/html/parts.h"
#include "reports/text.h"

namespace lockstep {
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
