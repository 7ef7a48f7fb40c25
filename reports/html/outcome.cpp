// Every other metric, and where one reads better while the primary reads worse.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/text.h"

namespace lockstep {
namespace {

std::string reading(const MetricDifference& d) {
  if (!(d.interval.low > 0 || d.interval.high < 0)) return "";
  if (!has_direction(d)) return d.mean > 0 ? "higher" : "lower";
  return (d.mean > 0) == d.higher_is_better ? "better" : "worse";
}

/// Enough decimals for the smaller of the difference and its interval's half width, and no more than six.
int decimals_of(const MetricDifference& d) {
  const double half = (d.interval.high - d.interval.low) / 2;
  const double size = std::isfinite(half) && half > 0 ? half : std::abs(d.mean);
  return std::clamp(decimals_for(size > 0 ? size : 0.03), 0, 6);
}

void write_metric_row(Markup& out, const MetricDifference& d, const MetricDifference& primary,
                      bool is_primary, int n) {
  const bool clash = !is_primary && disagrees_in_sign(primary, d);
  const int decimals = decimals_of(d);
  out.open("tr", {{"class", clash ? "clash" : ""}});
  if (is_primary)
    out.open("th", {{"scope", "row"}});
  else
    out.open("td");
  out.text(metric_words(d.metric));
  if (is_primary) out.text(" ").element("span", {{"class", "tag"}}, "primary");
  out.close();
  out.element("td", {{"class", "n"}}, compact_number(d.reference_mean))
      .element("td", {{"class", "n"}}, compact_number(d.cell_mean));
  out.element("td", {{"class", "n"}}, signed_number(d.mean, decimals));
  out.element("td", {{"class", "n"}}, n < 2 ? "one seed: none" : interval_words(d.interval, decimals));
  const std::string primary_reads = primary.higher_is_better == (primary.mean > 0) ? "better" : "worse";
  std::string text = reading(d);
  if (clash) text += fmt::format(", although {} is {}", metric_words(primary.metric), primary_reads);
  out.element("td", {}, text.empty() ? "no difference shown" : text).close();
}

/// What could not be compared.
void write_notes(Markup& out, const Outcome& outcome) {
  for (const std::string& note : outcome.notes) out.element("p", {{"class", "why"}}, clean_line(note));
}

}  // namespace

void write_metrics(Markup& out, const Page& page) {
  const auto has_outcome = [](const CellResult& cell) { return cell.outcome.has_value(); };
  const Results& results = page.results;
  if (std::none_of(results.cells.begin(), results.cells.end(), has_outcome)) return;
  constexpr std::size_t kShownOpen = 8;
  open_section(out, "metrics", "All metrics",
               "Paired differences, cell minus reference. A marked row disagrees with the primary "
               "metric: both intervals "
               "exclude 0, one is better and the other worse.");
  for (std::size_t i = 0; i < results.cells.size(); ++i) {
    const CellResult& cell = results.cells[i];
    if (!cell.outcome) continue;
    const Outcome& outcome = *cell.outcome;
    const bool clashes = std::any_of(outcome.others.begin(), outcome.others.end(), [&](const auto& other) {
      return disagrees_in_sign(outcome.primary, other);
    });
    const bool folded = results.cells.size() > kShownOpen && !clashes;
    if (folded)
      out.open("details", {{"id", "metrics-" + page.anchors[i]}}).open("summary");
    else
      out.open("h3", {{"id", "metrics-" + page.anchors[i]}});
    out.element("b", {}, name_words(cell.scenario)).text(" ");
    write_verdict(out, cell, outcome.verdict);
    out.close();
    if (!outcome.sentence.empty()) out.element("p", {{"class", "why"}}, outcome.sentence);
    write_notes(out, outcome);
    open_table(out, "metrics",
               {"metric", numbers(shorten(name_words(cell.reference), 24)), numbers("cell"),
                numbers("difference"),
                numbers(fmt::format("{} interval, n {}", level_words(outcome.primary.interval.level), outcome.n)),
                "reading"});
    write_metric_row(out, outcome.primary, outcome.primary, true, outcome.n);
    for (const MetricDifference& other : outcome.others)
      write_metric_row(out, other, outcome.primary, false, outcome.n);
    close_table(out);
    if (folded) out.close();
  }
  out.close();
}

}  // namespace lockstep
