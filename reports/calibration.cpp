#include "reports/calibration.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/text.h"
#include "reports/text_table.h"

namespace lockstep {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string percent_of_runs(double share) { return fmt::format("{:.2f} %", 100 * share); }

std::string interval_words(const Interval& interval) {
  return fmt::format("{:.2f} to {:.2f} %", 100 * interval.low, 100 * interval.high);
}

/// "99.98 % interval": all of a calibration have one level.
std::string level_head(const Calibration& calibration) {
  if (calibration.rates.empty()) return "interval";
  return fmt::format("{:.4g} % interval", 100 * calibration.rates.front().interval.level);
}

Rows rate_rows(const Calibration& calibration) {
  Rows rows{promise_heads(calibration)};
  for (const DetectionRate& rate : calibration.rates) rows.push_back(promise_cells(rate));
  return rows;
}

Rows power_rows(const Calibration& calibration) {
  Rows rows{power_heads(calibration)};
  for (const PowerPoint& point : calibration.power) rows.push_back(power_cells(point));
  return rows;
}

std::string markdown_table(const Rows& rows) {
  std::string out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out += "|";
    for (const std::string& cell : rows[i]) out += " " + escape_markdown(cell) + " |";
    out += "\n";
    if (i > 0) continue;
    out += "|---|";
    for (std::size_t column = 1; column < rows[0].size(); ++column) out += "--:|";
    out += "\n";
  }
  return out;
}

}  // namespace

std::vector<std::string> promise_heads(const Calibration& calibration) {
  return {"rate", "number", "share", level_head(calibration), "allowed", ""};
}

std::vector<std::string> promise_cells(const DetectionRate& rate) {
  const double share = static_cast<double>(rate.hits) / static_cast<double>(std::max<int64_t>(rate.of, 1));
  return {
      clean_line(rate.what),
      fmt::format("{} of {}", rate.hits, rate.of),
      percent_of_runs(share),
      interval_words(rate.interval),
      rate.asked < 0 ? "" : fmt::format("{} {:g} %", rate.at_most ? "at most" : "at least", 100 * rate.asked),
      rate.asked < 0 ? ""
      : rate.enough  ? "✓"
                     : "✗"};
}

std::vector<std::string> power_heads(const Calibration& calibration) {
  return {"power", "sd / margin", "difference / margin", "measured", level_head(calibration), "theory", ""};
}

std::vector<std::string> power_cells(const PowerPoint& point) {
  return {fmt::format("{} pairs", point.n),
          fmt::format("{:g}", point.sd),
          fmt::format("{:g}", point.true_difference),
          percent_of_runs(point.measured),
          interval_words(point.interval),
          percent_of_runs(point.theory),
          is_as_theory(point) ? "✓" : "✗"};
}

bool is_as_theory(const PowerPoint& point) {
  return point.interval.low <= point.theory && point.theory <= point.interval.high;
}

std::string calibration_caption(const Calibration& calibration) {
  std::string text =
      "The tests judge data with a known true difference. A rate fails "
      "if its whole interval (Clopper and Pearson) lies on the wrong side of its limit, a power if the "
      "formula's value lies outside its interval; the intervals are so wide that correct tests fail "
      "anywhere with a probability of at most 1 %. Rates without a limit are shown but not judged: no test "
      "guarantees them.";
  if (calibration.pool_runs > 0) {
    text += fmt::format(" The pool: {} real runs, mean {:.4g}, standard deviation {:.3g}.",
                        calibration.pool_runs, calibration.pool_mean, calibration.pool_sd);
  }
  return text;
}

std::string calibration_text(const Calibration& calibration, int width) {
  return aligned_columns(rate_rows(calibration), "  ", width) + "\n" + aligned_columns(power_rows(calibration), "  ", width) +
         "\n" + wrapped(calibration_caption(calibration), width);
}

std::string calibration_markdown(const Calibration& calibration) {
  return markdown_table(rate_rows(calibration)) + "\n" + markdown_table(power_rows(calibration)) + "\n" +
         escape_markdown(calibration_caption(calibration)) + "\n\n";
}

}  // namespace lockstep
