// Do the tests keep their promises: error rates against what is allowed, power against theory.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/plots/chart.h"
#include "reports/plots/curve_data.h"
#include "reports/plots/row_plot.h"
#include "reports/text.h"

namespace lockstep {
namespace {

/// What is allowed lies in the middle of each kind's axis, which ends where a share does.
Scale axis_of(const std::vector<const DetectionRate*>& rates) {
  double low = 1, high = 0;
  for (const DetectionRate* rate : rates) {
    for (const double value : {rate->interval.low, rate->interval.high, rate->asked}) {
      if (!std::isfinite(value) || value < 0) continue;
      low = std::min(low, value), high = std::max(high, value);
    }
  }
  if (!(low < high)) return {0, 1, 2, 98};
  const double room = 0.12 * (high - low);
  const AxisRange range = drawable(std::max(0.0, low - room), std::min(1.0, high + room));
  return {range.low, range.high, 2, 98};
}

std::string share_words(double share) {
  return std::isfinite(share) ? fmt::format("{:.4f}", share) : "not a number";
}

void draw_rate(Markup& out, const DetectionRate& rate, const Scale& axis) {
  const double share = rate.of > 0 ? static_cast<double>(rate.hits) / static_cast<double>(rate.of) : NAN;
  open_row_drawing(out, clean_line(rate.what),
                   fmt::format("{}, interval {} to {}", share_words(share), share_words(rate.interval.low),
                               share_words(rate.interval.high)));
  if (rate.asked >= 0) {
    const double asked = axis(std::clamp(rate.asked, axis.low, axis.high));
    const double from = rate.at_most ? 0 : asked, to = rate.at_most ? asked : 100;
    out.empty("rect",
              {{"x", percent(from)}, {"width", percent(to - from)}, {"height", "100%"}, {"class", "margin"}});
    out.empty(
        "line",
        {{"x1", percent(asked)}, {"x2", percent(asked)}, {"y1", "0"}, {"y2", "100%"}, {"class", "edge"}});
  }
  const std::string css = rate.enough ? "ok" : "bad";
  const double low = std::clamp(rate.interval.low, axis.low, axis.high),
               high = std::clamp(rate.interval.high, axis.low, axis.high);
  if (std::isfinite(low) && std::isfinite(high)) {
    out.empty("line", {{"x1", percent(axis(low))},
                       {"x2", percent(axis(high))},
                       {"y1", "42%"},
                       {"y2", "42%"},
                       {"class", "ci " + css}});
  }
  if (std::isfinite(share)) row_mark(out, axis(std::clamp(share, axis.low, axis.high)), "dot", css);
  out.close();
}

void write_rates(Markup& out, const std::vector<const DetectionRate*>& rates, std::string_view heading) {
  if (rates.empty()) return;
  const Scale axis = axis_of(rates);
  out.element("h3", {}, heading).open("table", {{"class", "rows rates"}}).open("thead").open("tr");
  out.element("th", {{"scope", "col"}}, "rate")
      .element("th", {{"scope", "col"}}, "share, Clopper–Pearson interval");
  out.element("th", {{"scope", "col"}, {"class", "n"}}, "share")
      .element("th", {{"scope", "col"}, {"class", "n"}}, "of, interval");
  out.element("th", {{"scope", "col"}}, "").close().close().open("tbody");
  for (const DetectionRate* rate : rates) {
    out.open("tr").element("th", {{"scope", "row"}, {"class", "name"}}, clean_line(rate->what));
    out.open("td", {{"class", "plot"}});
    draw_rate(out, *rate, axis);
    out.close();
    const double share = rate->of > 0 ? static_cast<double>(rate->hits) / static_cast<double>(rate->of) : NAN;
    out.open("td", {{"class", "n"}}).element("b", {}, share_words(share)).close();
    out.element("td", {{"class", "n ci-text"}},
                fmt::format("{}, [{}, {}]", rate->of, share_words(rate->interval.low),
                            share_words(rate->interval.high)));
    out.open("td", {{"class", "v"}});
    out.element("b", {{"class", rate->enough ? "t-ok" : "t-bad"}}, rate->enough ? "✓ within" : "✗ exceeded");
    if (rate->asked >= 0)
      out.element("span", {{"class", "sub"}},
                  fmt::format("at {} {:g}", rate->at_most ? "most" : "least", rate->asked));
    out.close().close();
  }
  out.close()
      .open("tfoot")
      .open("tr")
      .element("td", {{"class", "gap"}}, "")
      .open("td", {{"class", "plot axis"}});
  open_row_drawing(out, "Axis", "Share of the draws");
  out.empty("line", {{"x1", "0"}, {"x2", "100%"}, {"y1", "0.5"}, {"y2", "0.5"}, {"class", "tk"}});
  for (const Tick& tick : numbered(nice_ticks(axis.low, axis.high, 6))) {
    if (axis(tick.at) >= 2 && axis(tick.at) <= 98) axis_label(out, axis(tick.at), tick.text);
  }
  out.close().close().element("td", {{"class", "gap"}, {"colspan", "3"}}, "").close().close().close();
}

/// "a pool of 100 real runs (mean 0.41, standard deviation 0.03)".
std::string pool_words(const Calibration& c) {
  if (c.pool_runs <= 0) return "no real runs";
  return fmt::format("a pool of {} (mean {}, standard deviation {})", counted(c.pool_runs, "real run"),
                     compact_number(c.pool_mean), compact_number(c.pool_sd));
}

struct Design {
  double sd, difference;
  std::vector<const PowerPoint*> points;
};

std::vector<Design> designs_of(const Calibration& c) {
  std::vector<Design> designs;
  for (const PowerPoint& p : c.power) {
    auto found = std::find_if(designs.begin(), designs.end(), [&p](const Design& d) {
      return d.sd == p.sd && d.difference == p.true_difference;
    });
    if (found == designs.end()) found = designs.insert(designs.end(), {p.sd, p.true_difference, {}});
    found->points.push_back(&p);
  }
  for (Design& d : designs)
    std::stable_sort(d.points.begin(), d.points.end(),
                     [](const auto* a, const auto* b) { return a->n < b->n; });
  return designs;
}

std::string design_words(const Design& d) {
  return fmt::format("sd {:g}, {}", d.sd,
                     d.difference == 0 ? "no difference" : fmt::format("difference {:g}", d.difference));
}

std::string power_plot(const std::vector<Design>& designs) {
  double most = 2;
  for (const Design& d : designs) most = std::max(most, static_cast<double>(d.points.back()->n));
  Chart chart{640, 330, 44, 190, 12, 46, {}, {}};
  place(chart, 0, 1.04 * most, 0, 1.02);
  Markup out;
  std::string description;
  for (const Design& d : designs) {
    description += design_words(d) + ":";
    for (const PowerPoint* p : d.points)
      description += fmt::format(" n {}: {:.3f} of {:.3f};", p->n, p->measured, p->theory);
    description.back() = '.', description += " ";
  }
  open_chart(out, chart, "Power measured against theory, by paired seeds", description);
  draw_y_axis(out, chart, numbered(nice_ticks(0, 1, 6)));
  draw_x_axis(out, chart, numbered(step_ticks(1.04 * most, 7)), "paired seeds");
  line(out, "edge", chart.left, chart.y(0.8), chart.edge(), chart.y(0.8));
  std::vector<std::pair<double, std::size_t>> ends;
  for (std::size_t i = 0; i < designs.size(); ++i) {
    const std::string css = "c" + std::to_string(i % 6);
    std::vector<std::pair<double, double>> theory;
    for (const PowerPoint* p : designs[i].points) theory.emplace_back(chart.x(p->n), chart.y(p->theory));
    out.empty("path", {{"class", "line " + css}, {"d", path_through(theory)}});
    for (const PowerPoint* p : designs[i].points) {
      if (std::isfinite(p->interval.low) && std::isfinite(p->interval.high))
        line(out, "ci " + css, chart.x(p->n), chart.y(p->interval.low), chart.x(p->n),
             chart.y(p->interval.high));
      if (std::isfinite(p->measured))
        mark(out, static_cast<int>(i), css, chart.x(p->n), chart.y(p->measured));
    }
    if (!theory.empty() && std::isfinite(theory.back().second)) ends.emplace_back(theory.back().second, i);
  }
  std::stable_sort(ends.begin(), ends.end());
  std::vector<double> wanted;
  for (const auto& end : ends) wanted.push_back(end.first);
  const auto centres = push_apart(wanted, std::vector<double>(ends.size(), 15), 0, chart.floor());
  for (std::size_t k = 0; k < ends.size(); ++k) {
    const std::string css = "c" + std::to_string(ends[k].second % 6);
    line(out, "line " + css, chart.edge() + 12, centres[k], chart.edge() + 40, centres[k]);
    mark(out, static_cast<int>(ends[k].second), css, chart.edge() + 26, centres[k]);
    text(out, "lab", chart.edge() + 46, centres[k] + 4, design_words(designs[ends[k].second]));
  }
  return out.take();
}

void write_power_table(Markup& out, const std::vector<Design>& designs) {
  out.open("details").element("summary", {}, "Power in numbers");
  open_table(out, "plain",
             {numbers("sd, margins"), numbers("true difference, margins"), numbers("n"), numbers("measured"),
              numbers("interval"), numbers("theory")});
  for (const Design& d : designs) {
    for (const PowerPoint* p : d.points) {
      out.open("tr");
      for (const std::string& text : {fmt::format("{:g}", p->sd), fmt::format("{:g}", p->true_difference),
                                      std::to_string(p->n), fmt::format("{:.4f}", p->measured),
                                      fmt::format("[{:.4f}, {:.4f}]", p->interval.low, p->interval.high),
                                      fmt::format("{:.4f}", p->theory)})
        out.element("td", {{"class", "n"}}, text);
      out.close();
    }
  }
  close_table(out);
  out.close();
}

}  // namespace

void write_calibration(Markup& out, const Page& page) {
  if (!page.results.calibration) return;
  const Calibration& c = *page.results.calibration;
  std::vector<const DetectionRate*> most, least;
  for (const DetectionRate& rate : c.rates) (rate.at_most ? most : least).push_back(&rate);
  open_section(
      out, "calibration", "Are the tests' error rates as stated?",
      fmt::format(
          "Comparisons with a known true difference, drawn from a normal distribution and from {}: how often each "
          "rule gives a wrong verdict. Green is allowed; a rate exceeds its limit if its whole interval "
          "lies on the other side.",
          pool_words(c)));
  write_rates(out, most, "At most");
  write_rates(out, least, "At least");
  if (const std::vector<Design> designs = designs_of(c); !designs.empty()) {
    out.element("h3", {}, "Power to conclude equivalence");
    out.element("p", {{"class", "why"}},
                "Marks are measured values with their intervals; lines are theory. Standard deviation and true "
                "difference are "
                "in margins.");
    out.open("figure", {{"class", "panel"}}).raw(power_plot(designs)).close();
    write_power_table(out, designs);
  }
  out.close();
}

}  // namespace lockstep
