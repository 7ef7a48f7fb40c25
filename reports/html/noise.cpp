#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/answer/results/words.h"
#include "harness/answer/stats/outcome.h"
#include "reports/growth.h"
#include "reports/html/parts.h"
#include "reports/plots/chart.h"
#include "reports/plots/curves.h"
#include "reports/text.h"
#include "reports/words.h"

// The gradient noise scale by step, a drawing for each kind of negatives.

namespace lockstep {
namespace {

constexpr std::size_t kMostCurves = 6;
constexpr double kNoiseLinePx = 14, kNoiseLabelPx = 12;

struct Family {
  std::string heading;
  std::vector<const CellResult*> cells;
};

std::string heading_of(const Results& results, const CellResult& cell) {
  std::string heading = "all cells";
  for (const auto& [key, value] : cell.config) {
    if (key == "negatives") heading = setting_words(key, value);
  }
  return heading + (is_of_grown_batch(results, cell) ? ", the batch grows" : "");
}

std::vector<Family> families_of(const Results& results) {
  std::vector<Family> families;
  for (const CellResult& cell : results.cells) {
    if (!cell.noise_scale || !is_judged(cell) || cell.power_control) continue;
    const std::string heading = heading_of(results, cell);
    auto found =
        std::find_if(families.begin(), families.end(), [&](const Family& f) { return f.heading == heading; });
    if (found == families.end()) found = families.insert(families.end(), {heading, {}});
    found->cells.push_back(&cell);
  }
  return families;
}

/// The caveat of the first cell, and whose it is if others have another.
std::string caveat_of(const Family& family) {
  const CellResult& first = *family.cells.front();
  const std::string caveat = clean_line(first.noise_scale->caveat);
  const auto same = [&first](const CellResult* cell) {
    return cell->noise_scale->caveat == first.noise_scale->caveat;
  };
  if (std::all_of(family.cells.begin(), family.cells.end(), same))
    return caveat.empty() ? "Rows are independent examples of one objective: the theory applies." : caveat;
  return name_words(first.scenario) + ": " + caveat;
}

/// Smallest and largest of what is drawn, as powers of ten.
std::pair<double, double> range_of(const std::vector<Family>& families) {
  double low = INFINITY, high = -INFINITY;
  for (const Family& family : families) {
    for (const CellResult* cell : family.cells) {
      for (const double value : cell->noise_scale->batch_at) {
        if (!std::isfinite(value) || value <= 0) continue;
        low = std::min(low, std::log10(value)), high = std::max(high, std::log10(value));
      }
      if (cell->noise_scale->big_batch > 0) {
        low = std::min(low, std::log10(cell->noise_scale->big_batch));
        high = std::max(high, std::log10(cell->noise_scale->big_batch));
      }
    }
  }
  if (!(low <= high)) return {0, 2};
  return {std::floor(low), std::max(std::ceil(high), std::floor(low) + 1)};
}

std::vector<std::pair<double, double>> points_of(const Chart& chart, const NoiseScale& n) {
  std::vector<std::pair<double, double>> points;
  for (std::size_t i = 0; i < std::min(n.at.size(), n.batch_at.size()); ++i) {
    if (std::isfinite(n.batch_at[i]) && n.batch_at[i] > 0)
      points.emplace_back(chart.x(static_cast<double>(n.at[i])), chart.y(std::log10(n.batch_at[i])));
  }
  return points;
}

void draw_names(Markup& out, const Chart& chart,
                std::vector<std::pair<double, std::pair<std::string, std::string>>> ends) {
  std::stable_sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<double> wanted;
  for (const auto& end : ends) wanted.push_back(end.first);
  const std::vector<double> centres =
      push_apart(wanted, std::vector<double>(ends.size(), kNoiseLinePx), chart.top, chart.floor());
  for (std::size_t i = 0; i < ends.size(); ++i) {
    out.empty("path", {{"class", "leader"},
                       {"d", fmt::format("M{} {}L{} {}", px(chart.edge() + 2), px(wanted[i]),
                                         px(chart.edge() + 10), px(centres[i]))}});
    line(out, "line " + ends[i].second.first, chart.edge() + 12, centres[i], chart.edge() + 34, centres[i]);
    text(out, "lab", chart.edge() + 38, centres[i] + 4, ends[i].second.second);
  }
}

std::string family_plot(const Family& family, std::pair<double, double> range, double last_step) {
  Chart chart{580, 250, 52, 60, 10, 42, {}, {}};
  for (const CellResult* cell : family.cells)
    chart.right = std::clamp(text_width_px(name_words(cell->scenario), kNoiseLabelPx) + 44, chart.right, 200.0);
  place(chart, 0, last_step, range.first, range.second);
  Markup out;
  std::string description = "Noise scale over all steps:";
  for (const CellResult* cell : family.cells)
    description +=
        fmt::format(" {} {};", name_words(cell->scenario), compact_number(cell->noise_scale->batch));
  open_chart(out, chart, "Gradient noise scale by step", description);
  draw_y_axis(out, chart, powers_of_ten(range.first, range.second));
  std::vector<Tick> ticks;
  for (const double step : step_ticks(last_step, 7).values)
    ticks.push_back({step, fmt::format("{:.0f}", step)});
  draw_x_axis(out, chart, ticks, "step");
  if (const int batch = family.cells.front()->noise_scale->big_batch; batch > 0) {
    const double y = chart.y(std::log10(batch));
    line(out, "edge", chart.left, y, chart.edge(), y);
    text(out, "tick end", chart.edge() - 4, y + 14, fmt::format("global batch {}", batch));
  }
  std::vector<std::pair<double, std::pair<std::string, std::string>>> ends;
  for (std::size_t i = 0; i < std::min(family.cells.size(), kMostCurves); ++i) {
    const auto points = points_of(chart, *family.cells[i]->noise_scale);
    if (points.empty()) continue;
    const std::string css = "c" + std::to_string(i);
    out.empty("path", {{"class", "line " + css}, {"d", path_through(points)}});
    std::string name = name_words(family.cells[i]->scenario);
    for (int columns = display_width(name); columns > 1 && text_width_px(name, kNoiseLabelPx) > chart.right - 42;)
      name = shorten(name, --columns);
    ends.push_back({points.back().second, {css, name}});
  }
  draw_names(out, chart, ends);
  return out.take();
}

void write_table(Markup& out, const std::vector<Family>& families) {
  out.open("details").element("summary", {}, "Noise scales in numbers");
  open_table(out, "plain",
             {"cell", numbers("rows of a rank, of all"), numbers("noise scale, rows"),
              numbers(level_words(families.front().cells.front()->noise_scale->interval.level) + " interval"),
              numbers("|G|²"), numbers("S"), numbers("steps"),
              "caveat"});
  for (const Family& family : families) {
    for (const CellResult* cell : family.cells) {
      const NoiseScale& n = *cell->noise_scale;
      out.open("tr").element("th", {{"scope", "row"}}, name_words(cell->scenario));
      out.element("td", {{"class", "n"}}, fmt::format("{}, {}", n.small_batch, n.big_batch));
      out.element("td", {{"class", "n"}}, compact_number(n.batch));
      out.element("td", {{"class", "n"}},
                  fmt::format("[{}, {}]", compact_number(n.interval.low), compact_number(n.interval.high)));
      out.element("td", {{"class", "n"}}, compact_number(n.gradient_squared));
      out.element("td", {{"class", "n"}}, compact_number(n.noise));
      out.element("td", {{"class", "n"}}, std::to_string(n.steps));
      out.element("td", {}, clean_line(n.caveat)).close();
    }
  }
  close_table(out);
  out.close();
}

}  // namespace

void write_noise_scale(Markup& out, const Page& page) {
  const std::vector<Family> families = families_of(page.results);
  if (families.empty() || !varies_batch_or_rate_rule(page.results)) return;
  open_section(
      out, "noise-scale", "How noisy are the gradients?",
      "Gradient noise scale in rows (McCandlish et al. 2018), from the ranks' own gradients against the "
      "reduced "
      "one, by block of steps. A batch well below it gains from more rows, a batch well above it hardly. A block "
      "with |G|² not above 0 has no value.");
  double last = 1;
  for (const Family& family : families) {
    for (const CellResult* cell : family.cells) {
      for (const int64_t at : cell->noise_scale->at) last = std::max(last, static_cast<double>(at));
    }
  }
  const auto range = range_of(families);
  out.open("div", {{"class", "two"}});
  for (const Family& family : families) {
    const std::size_t more = family.cells.size() - std::min(family.cells.size(), kMostCurves);
    out.open("figure", {{"class", "panel"}}).open("figcaption");
    out.element("b", {}, family.heading);
    out.element("span", {},
                caveat_of(family) + (more > 0 ? fmt::format(" {} more in the table.", more) : ""));
    out.close().raw(family_plot(family, range, last)).close();
  }
  out.close();
  write_table(out, families);
  out.close();
}

// How the gradients of each cell relate to the reference's at the same weights and batch.
namespace {

/// Shades by share of the band: three steps inside, then by powers of ten outside.
std::string shade_of(double share) {
  if (std::isnan(share)) return "h6";
  if (share <= 0.1) return "h0";
  if (share <= 0.5) return "h1";
  if (share <= 1) return "h2";
  if (share <= 10) return "h3";
  if (share <= 1e3) return "h4";
  return share <= 1e5 ? "h5" : "h6";
}

std::string fixed(double value, int decimals) {
  if (!std::isfinite(value)) return compact_number(value);
  if (std::abs(value) >= 1e5) return compact_number(value);
  if (value != 0 && std::abs(value) < 0.5 * std::pow(10.0, -decimals)) return fmt::format("{:.0e}", value);
  return fmt::format("{:.{}f}", value, decimals);
}

void write_figures(Markup& out, const GradientSignature* signature) {
  if (!signature) {
    for (int i = 0; i < 4; ++i) out.element("td", {{"class", i == 0 ? "n first-of" : "n"}}, "—");
    return;
  }
  const double share = share_of_band(*signature);
  const std::string shade = " " + shade_of(share);
  out.element("td", {{"class", "n first-of" + shade}}, fixed(signature->ratio, 3));
  out.element("td", {{"class", "n" + shade}}, fixed(signature->cosine, 3));
  out.element("td", {{"class", "n" + shade}}, fixed(signature->residual, 3));
  out.element("td", {{"class", "n" + shade}}, band_share(share));
}

const GradientSignature* find_group(const ForcedStep& step, const std::string& group) {
  const auto found =
      std::find_if(step.groups.begin(), step.groups.end(), [&](const auto& s) { return s.group == group; });
  return found == step.groups.end() ? nullptr : &*found;
}

void write_heads(Markup& out, const std::vector<const ForcedStep*>& steps) {
  out.open("thead").open("tr").element("th", {{"scope", "col"}, {"rowspan", "2"}}, "parameter group");
  for (const ForcedStep* step : steps) {
    out.element("th", {{"scope", "colgroup"}, {"colspan", "4"}, {"class", "over first-of"}},
                fmt::format("step {}", step->step));
  }
  out.close().open("tr");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    out.element("th", {{"scope", "col"}, {"class", "n first-of"}}, "ratio");
    for (const char* head : {"cosine", "residual", "of tolerance"})
      out.element("th", {{"scope", "col"}, {"class", "n"}}, head);
  }
  out.close().close();
}

void write_heat_table(Markup& out, const std::vector<ForcedStep>& forced) {
  std::vector<const ForcedStep*> steps{&forced.front()};
  if (forced.size() > 1) steps.push_back(&forced.back());
  open_scroll(out, "Gradients by parameter group");
  out.open("table", {{"class", "heat"}});
  write_heads(out, steps);
  out.open("tbody");
  for (const GradientSignature& group : forced.front().groups) {
    out.open("tr").element("th", {{"scope", "row"}}, group.group);
    for (const ForcedStep* step : steps) write_figures(out, find_group(*step, group.group));
    out.close();
  }
  out.close().close().close();
}

/// Share of the band by group and forced step, as one map; `brief`: without the signatures.
void write_all_steps(Markup& out, const std::vector<ForcedStep>& forced, bool brief) {
  out.open("details").element("summary", {}, fmt::format("All {} forced steps", forced.size()));
  open_scroll(out, "Gradients by parameter group and step");
  out.open("table", {{"class", "heat long"}}).open("thead").open("tr");
  out.element("th", {{"scope", "col"}}, "share of the tolerance");
  for (const ForcedStep& step : forced)
    out.element("th", {{"scope", "col"}, {"class", "n"}}, fmt::format("step {}", step.step));
  out.close().close().open("tbody");
  for (const GradientSignature& group : forced.front().groups) {
    out.open("tr").element("th", {{"scope", "row"}}, group.group);
    for (const ForcedStep& step : forced) {
      const GradientSignature* s = find_group(step, group.group);
      if (!s) {
        out.element("td", {{"class", "n"}}, "—");
        continue;
      }
      const double share = share_of_band(*s);
      out.open("td", {{"class", "n " + shade_of(share)}}).text(band_share(share));
      if (!brief) {
        out.element(
            "span", {{"class", "sub"}},
            fmt::format("{} · {} · {}", fixed(s->ratio, 3), fixed(s->cosine, 3), fixed(s->residual, 3)));
      }
      out.close();
    }
    out.close();
  }
  out.open("tr").element("th", {{"scope", "row"}}, "largest in");
  for (const ForcedStep& step : forced)
    out.element("td", {{"class", "n"}}, step.worst_tensor.empty() ? "—" : step.worst_tensor);
  out.close().close().close().close();
  out.element("p", {{"class", "why"}},
              brief ? "Ratio, cosine and residual of each step are in results.json."
                    : "Below each share: ratio · cosine · residual.")
      .close();
}

void write_legend(Markup& out) {
  out.open("p", {{"class", "keys"}});
  const std::pair<const char*, const char*> keys[] = {
      {"h0", "≤ 10 % of the tolerance"}, {"h1", "≤ 50 %"},  {"h2", "≤ 100 %"}, {"h3", "≤ 10 × the tolerance"},
      {"h4", "≤ 1000 ×"},           {"h5", "≤ 1e5 ×"}, {"h6", "more"}};
  for (const auto& [css, words] : keys) {
    out.open("span").element("span", {{"class", std::string("swatch ") + css}}, "").text(words).close();
  }
  out.close();
}

}  // namespace

void write_signatures(Markup& out, const Page& page) {
  constexpr std::size_t kShownOpen = 6, kFoldAll = 12;
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < page.results.cells.size(); ++i) {
    const CellResult& cell = page.results.cells[i];
    if (cell.mechanism && !cell.mechanism->forced.empty() && !cell.mechanism->forced.front().groups.empty())
      shown.push_back(i);
  }
  if (shown.empty()) return;
  open_section(out, "gradients", "How the gradients differ",
               "Both runs start from the reference's weights and batch, so training cannot amplify rounding. Ratio c "
               "= ⟨g, g_ref⟩ / ‖g_ref‖², "
               "cosine, and residual ‖g − c g_ref‖ / ‖g‖; shaded by ‖g − g_ref‖ as a share of the "
               "rounding tolerance.");
  write_legend(out);
  for (const std::size_t i : shown) {
    const CellResult& cell = page.results.cells[i];
    const bool folded = shown.size() > kFoldAll ||
                        (shown.size() > kShownOpen && cell.mechanism->verdict != VerdictKind::divergent);
    const std::string id = "gradients-" + page.anchors[i];
    if (folded) {
      out.open("details", {{"id", id}}).open("summary");
    } else {
      out.open("h3", {{"id", id}});
    }
    out.element("b", {}, name_words(cell.scenario)).text(" against " + name_words(cell.reference) + " ");
    const double used = cell.mechanism->band_used;
    out.element("b", {{"class", used <= 1 ? "t-ok" : "t-bad"}}, used_words(*cell.mechanism));
    out.close();
    write_heat_table(out, cell.mechanism->forced);
    if (cell.mechanism->forced.size() > 2)
      write_all_steps(out, cell.mechanism->forced, shown.size() > kFoldAll);
    if (folded) out.close();
  }
  out.close();
}

// The batch that grows: what each rule of the learning rate came to, and what the gradient noise predicts.
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
