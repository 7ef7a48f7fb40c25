// What the layouts cost: speed-up against the ideal and this machine's cores, and where the time goes.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/verdict/config/layout_name.h"
#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/timing_text.h"

namespace lockstep {
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

}  // namespace lockstep
