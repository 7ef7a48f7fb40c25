// The batch that grows: what each rule of the learning rate came to, and what the gradient noise predicts.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/verdict/results/rate_scaling.h"
#include "harness/verdict/stats/growth_words.h"
#include "reports/grid.h"
#include "reports/growth.h"
#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/plots/chart.h"
#include "reports/text.h"

namespace lockstep {
namespace {

/// Between which exponents the prediction lies; the one itself where nothing bounds it.
Interval predicted_of(const Growth& g) {
  const Interval& i = g.predicted_interval;
  if (std::isfinite(i.low) && std::isfinite(i.high) && i.low < i.high) return i;
  return {g.predicted_exponent, g.predicted_exponent, i.level};
}

std::string exponent_words(double exponent) {
  if (!std::isfinite(exponent)) return "—";
  return exponent == 0.5 ? "½" : fmt::format("{:g}", exponent);
}

/// Where each rule stands on the axis of exponents: those of one exponent side by side.
std::vector<double> places_of(const Growth& g) {
  constexpr double kApart = 0.07;
  std::map<double, int> taken, all;
  for (const Growth::Rule& rule : g.rules) ++all[rule.exponent];
  std::vector<double> places;
  for (const Growth::Rule& rule : g.rules)
    places.push_back(rule.exponent + kApart * (taken[rule.exponent]++ - 0.5 * (all[rule.exponent] - 1)));
  return places;
}

struct Parabola {
  double a = NAN, b = NAN, c = NAN;
  double operator()(double x) const { return (a * x + b) * x + c; }
};

/// Through the first rules of exponent 0, 0.5 and 1; not a number where one of them is missing.
Parabola parabola_of(const Growth& g) {
  double y[3] = {NAN, NAN, NAN};
  for (auto rule = g.rules.rbegin(); rule != g.rules.rend(); ++rule) {
    const double twice = 2 * rule->exponent;
    // adam_sqrt turns more than the rate, so it is no point of the curve where sqrt is there.
    const bool other = rule->rule == "adam_sqrt" && std::isfinite(y[1]);
    if ((twice == 0 || twice == 1 || twice == 2) && !other)
      y[static_cast<int>(twice)] = rule->difference.mean;
  }
  return {2 * y[0] - 4 * y[1] + 2 * y[2], -3 * y[0] + 4 * y[1] - y[2], y[0]};
}

const char* css_of(const Growth::Rule& rule) { return style_of(rule.verdict).css; }

void place_rules(Chart& chart, const Growth& g, double margin) {
  double low = -1.6 * margin, high = 1.6 * margin;
  for (const Growth::Rule& rule : g.rules) {
    for (const double end :
         {rule.difference.interval.low, rule.difference.interval.high, rule.difference.mean}) {
      if (std::isfinite(end)) low = std::min(low, end), high = std::max(high, end);
    }
  }
  const double room = 0.06 * (high - low);
  place(chart, -0.16, 1.16, low - room, high + room);
}

void draw_exponents(Markup& out, const Chart& chart, const Growth& g) {
  const auto at = [&chart](double exponent) {
    return chart.x(std::clamp(exponent, chart.x.low, chart.x.high));
  };
  if (std::isfinite(g.predicted_exponent)) {
    // A prediction of one digit at best is drawn at least as broad as that.
    const Interval predicted = predicted_of(g);
    const double low = std::min(predicted.low, g.predicted_exponent - 0.02),
                 high = std::max(predicted.high, g.predicted_exponent + 0.02);
    out.empty("rect", {{"class", "predicted"},
                       {"x", px(at(low))},
                       {"width", px(at(high) - at(low))},
                       {"y", px(chart.top)},
                       {"height", px(chart.floor() - chart.top)}});
  }
  if (!std::isfinite(g.measured_exponent)) return;
  line(out, "edge", at(g.measured_exponent), chart.top, at(g.measured_exponent), chart.floor());
  if (std::isfinite(g.measured_interval.low) && std::isfinite(g.measured_interval.high)) {
    line(out, "ci ref", at(g.measured_interval.low), chart.floor() - 7, at(g.measured_interval.high),
         chart.floor() - 7);
  }
}

void draw_rules(Markup& out, const Chart& chart, const Growth& g) {
  const std::vector<double> places = places_of(g);
  if (const Parabola parabola = parabola_of(g); std::isfinite(parabola.a + parabola.b + parabola.c)) {
    std::vector<std::pair<double, double>> points;
    for (int i = 0; i <= 32; ++i) points.emplace_back(chart.x(i / 32.0), chart.y(parabola(i / 32.0)));
    out.empty("path", {{"class", "line dashed ref"}, {"d", path_through(points)}});
  }
  for (std::size_t i = 0; i < g.rules.size(); ++i) {
    const Growth::Rule& rule = g.rules[i];
    if (!std::isfinite(rule.difference.mean) || !std::isfinite(rule.exponent)) continue;
    const double x = chart.x(places[i]);
    const std::string css = css_of(rule);
    if (std::isfinite(rule.difference.interval.low) && std::isfinite(rule.difference.interval.high)) {
      line(out, "ci " + css, x, chart.y(rule.difference.interval.low), x,
           chart.y(rule.difference.interval.high));
    }
    mark(out, 0, css, x, chart.y(rule.difference.mean));
    // Of two rules side by side the left one has its name at the left.
    const bool left = places[i] < rule.exponent;
    const std::string weight = rule.rule == g.best ? " strong" : "";
    text(out, (left ? "lab end" : "lab") + weight, left ? x - 9 : x + 9, chart.y(rule.difference.mean) - 8,
         clean_line(rule.rule));
  }
}

std::string rules_plot(const Results& results, const Growth& g) {
  const double margin = results.primary.margin;
  Chart chart{580, 330, 60, 24, 12, 46, {}, {}};
  place_rules(chart, g, margin);
  Markup out;
  std::string description;
  for (const Growth::Rule& rule : g.rules) {
    description += fmt::format("{}: {}. ", clean_line(rule.rule),
                               difference_and_half(rule.difference, decimals_for(margin)));
  }
  open_chart(out, chart, "Difference by the exponent of the rule", description);
  out.empty("rect", {{"class", "margin"},
                     {"x", px(chart.left)},
                     {"width", px(chart.edge() - chart.left)},
                     {"y", px(chart.y(margin))},
                     {"height", px(chart.y(-margin) - chart.y(margin))}});
  draw_exponents(out, chart, g);
  draw_y_axis(out, chart, numbered(nice_ticks(chart.y.low, chart.y.high, 6)));
  line(out, "zero", chart.left, chart.y(0), chart.edge(), chart.y(0));
  draw_rules(out, chart, g);
  draw_x_axis(out, chart, {{0, "0 (none)"}, {0.5, "½ (square root)"}, {1, "1 (linear)"}},
              "exponent of the learning rate in the batch");
  return out.take();
}

void write_rule_table(Markup& out, const Page& page, const Growth& g) {
  const int decimals = decimals_for(page.results.primary.margin);
  open_table(out, "plain",
             {"rule", numbers("exponent"), numbers("difference"), numbers(rule_interval_name(g)),
              numbers("n"), "verdict", "against the best"});
  for (const Growth::Rule& rule : g.rules) {
    const bool best = rule.rule == g.best;
    const auto is_this = [&rule](const std::string& name) { return name == rule.cell || name == rule.rule; };
    const bool not_worse = std::any_of(g.not_worse.begin(), g.not_worse.end(), is_this);
    out.open("tr").element("th", {{"scope", "row"}}, clean_line(rule.rule));
    out.element("td", {{"class", "n"}}, exponent_words(rule.exponent));
    out.element("td", {{"class", "n"}}, signed_number(rule.difference.mean, decimals));
    out.element("td", {{"class", "n"}}, rule_interval_words(g, rule, decimals));
    out.element("td", {{"class", "n"}}, rule.n > 0 ? std::to_string(rule.n) : "—");
    const VerdictStyle& style = style_of(rule.verdict);
    out.open("td")
        .element("b", {{"class", std::string("t-") + style.css}},
                 fmt::format("{} {}", style.symbol, style.words))
        .close();
    const bool judged = std::isfinite(rule.difference.mean) && !g.best.empty();
    out.element("td", {},
                !judged     ? "not judged"
                : best      ? "best mean"
                : not_worse ? "not shown to be worse"
                            : "shown to be worse")
        .close();
  }
  close_table(out);
}

std::string range_words(const Interval& i) {
  return i.low < i.high ? fmt::format("{:.2f} to {:.2f}", i.low, i.high) : fmt::format("{:.2f}", i.low);
}

std::string growth_caption(const Growth& g) {
  std::string text;
  if (std::isfinite(g.measured_exponent)) {
    text += fmt::format(
        "Dashed: the parabola through the means of none, sqrt and linear; its best exponent is {:.2f}",
        g.measured_exponent);
    if (std::isfinite(g.measured_interval.low) && std::isfinite(g.measured_interval.high)) {
      text += fmt::format(", {} interval {:.2f} to {:.2f} by Student's t over seeds (bar above the axis)",
                          level_words(g.measured_interval.level), g.measured_interval.low,
                          g.measured_interval.high);
    }
    text += ". ";
  } else if (std::isfinite(parabola_of(g).a)) {
    text += "A parabola through the means has no best exponent between 0 and 1. ";
  }
  text += std::isfinite(g.predicted_exponent)
              ? fmt::format("Shaded: the exponents that the gradient noise scale predicts, {}.", range_words(predicted_of(g)))
              : "No prediction.";
  return text;
}

}  // namespace

void write_growth(Markup& out, const Page& page) {
  if (!varies_batch_or_rate_rule(page.results)) return;
  bool opened = false;
  for (const Growth& g : page.results.growth) {
    if (g.rules.empty()) continue;
    if (!opened) {
      open_section(
          out, "growth", "Which learning-rate rule fits when the batch grows?",
          fmt::format("Difference of {} to the small batch, with its {} over paired seeds; green is the margin.",
                      metric_words(page.results.primary.metric), rule_interval_name(g)));
    }
    opened = true;
    out.element(
        "h3", {},
        g.from_batch == g.to_batch
            ? fmt::format("{}: the batch stays at {} rows", name_words(g.reference), g.to_batch)
            : fmt::format("{}: from {} to {} rows, {}", name_words(g.reference), g.from_batch, g.to_batch,
                          samples_in_words(g.samples_ratio)));
    if (g.from_batch == g.to_batch) {
      if (!g.caveat.empty()) out.element("p", {{"class", "why"}}, clean_line(g.caveat));
    } else {
      out.open("div", {{"class", "two"}}).open("figure", {{"class", "panel"}});
      out.raw(rules_plot(page.results, g)).close();
      out.open("div").element("p", {{"class", "why"}}, growth_caption(g));
      if (!g.caveat.empty()) out.element("p", {}, clean_line(g.caveat));
      out.close().close();
    }
    write_rule_table(out, page, g);
  }
  if (opened) out.close();
}

}  // namespace lockstep
