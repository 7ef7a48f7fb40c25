#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/answer/results/words.h"
#include "harness/answer/stats/outcome.h"
#include "reports/html/parts.h"
#include "reports/plots/chart.h"
#include "reports/text.h"
#include "reports/words.h"

// The gradient noise scale by step, a drawing for each kind of negatives.

namespace lockstep {
namespace {

constexpr std::size_t kMostCurves = 6;

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
    auto found = std::ranges::find(families, heading, &Family::heading);
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
  if (std::ranges::all_of(family.cells, same))
    return caveat.empty() ? "Rows are independent examples of one objective: the theory applies." : caveat;
  return name_words(first.scenario) + ": " + caveat;
}

/// Of what is drawn, as powers of ten.
AxisRange range_of(const std::vector<Family>& families) {
  Reach reach;
  for (const Family& family : families) {
    for (const CellResult* cell : family.cells) {
      for (const double value : cell->noise_scale->batch_at)
        if (value > 0) reach.take(std::log10(value));
      if (cell->noise_scale->big_batch > 0) reach.take(std::log10(cell->noise_scale->big_batch));
    }
  }
  return reach.decades({0, 2});
}

std::string family_plot(const Family& family, AxisRange range, double last_step) {
  Plot plot{.title = "Gradient noise scale by step",
            .description = "Noise scale over all steps:",
            .x = {0, last_step},
            .y = range,
            .x_ticks = step_axis(last_step, 7),
            .y_ticks = powers_of_ten(range.low, range.high),
            .x_name = "step",
            .y_name = "rows",
            .y_log = true};
  for (const CellResult* cell : family.cells) {
    const NoiseScale& n = *cell->noise_scale;
    const std::string name = name_words(cell->scenario);
    plot.description += fmt::format(" {} {};", name, compact_number(n.batch));
    if (plot.lines.size() == kMostCurves) continue;
    PlotLine line{name, "c" + std::to_string(plot.lines.size()), {}, false, false, name};
    for (std::size_t i = 0; i < std::min(n.at.size(), n.batch_at.size()); ++i) {
      if (std::isfinite(n.batch_at[i]) && n.batch_at[i] > 0) line.points.push_back({static_cast<double>(n.at[i]), std::log10(n.batch_at[i])});
    }
    plot.lines.push_back(std::move(line));
  }
  if (const int batch = family.cells.front()->noise_scale->big_batch; batch > 0)
    plot.rules.push_back({false, std::log10(batch), "edge", fmt::format("global batch {}", batch)});
  return plot_drawing(plot);
}

}  // namespace

Section noise_section(const Page& page) {
  Section section{"noise-scale", "How noisy are the gradients?",
                  "Gradient noise scale in rows (McCandlish et al. 2018), from the ranks' own gradients against the reduced one, by block "
                  "of steps. A batch well below it gains from more rows, a batch well above it hardly.",
                  {}};
  const std::vector<Family> families = families_of(page.results);
  if (families.empty() || !varies_batch_or_rate_rule(page.results)) return section;
  double last = 1;
  std::vector<const CellResult*> cells;
  for (const Family& family : families) {
    for (const CellResult* cell : family.cells) {
      cells.push_back(cell);
      for (const int64_t at : cell->noise_scale->at) last = std::max(last, static_cast<double>(at));
    }
  }
  const AxisRange range = range_of(families);
  std::vector<Part> drawings;
  for (const Family& family : families) {
    const std::size_t more = family.cells.size() - std::min(family.cells.size(), kMostCurves);
    Markup out;
    write_figure(out, {family.heading, "", {caveat_of(family) + (more > 0 ? fmt::format(" {} more in the table.", more) : "")}},
                 family_plot(family, range, last));
    drawings.push_back(drawing(out.take()));
  }
  section.parts = {columns(std::move(drawings)), fold("Noise scales in numbers", {tabled(noise_table(cells))})};
  return section;
}

// How the gradients of each cell relate to the reference's at the same weights and batch.
namespace {

/// Shades by share of the band: three steps inside, then by powers of ten outside.
std::string shade_of(double share) {
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

const GradientSignature* find_group(const ForcedStep& step, const std::string& group) {
  const auto found = std::ranges::find(step.groups, group, &GradientSignature::group);
  return found == step.groups.end() ? nullptr : &*found;
}

/// Ratio, cosine and residual, shaded by the share of the tolerance; `brief`: the share alone.
Table steps_of(const std::vector<const ForcedStep*>& steps, bool brief) {
  Table table{.css = "heat", .columns = {"parameter group"}, .rows = {}};
  for (const ForcedStep* step : steps) table.columns.push_back(numbers(fmt::format("step {}", step->step)));
  for (const GradientSignature& group : steps.front()->groups) {
    table.rows.push_back({{group.group}});
    for (const ForcedStep* step : steps) {
      const GradientSignature* s = find_group(*step, group.group);
      if (!s) {
        table.rows.back().cells.emplace_back("—");
        continue;
      }
      const double share = share_of_band(*s);
      Datum figure = Datum(band_share(share)).in(shade_of(share));
      if (!brief) figure.note(fmt::format("{} · {} · {}", fixed(s->ratio, 3), fixed(s->cosine, 3), fixed(s->residual, 3)));
      table.rows.back().cells.push_back(std::move(figure));
    }
  }
  table.rows.push_back({{"largest in"}});
  for (const ForcedStep* step : steps) table.rows.back().cells.emplace_back(step->worst_tensor.empty() ? "—" : step->worst_tensor);
  return table;
}

std::string shades() {
  Markup out;
  out.open("p", {{"class", "keys"}});
  const std::pair<const char*, const char*> keys[] = {
      {"h0", "≤ 10 % of the tolerance"}, {"h1", "≤ 50 %"},  {"h2", "≤ 100 %"}, {"h3", "≤ 10 × the tolerance"},
      {"h4", "≤ 1000 ×"},           {"h5", "≤ 1e5 ×"}, {"h6", "more"}};
  for (const auto& [css, words] : keys) {
    out.open("span").element("span", {{"class", std::string("swatch ") + css}}, "").text(words).close();
  }
  return out.take();
}

}  // namespace

Section gradients_section(const Page& page) {
  constexpr std::size_t kShownOpen = 6, kFoldAll = 12;
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < page.results.cells.size(); ++i) {
    const CellResult& cell = page.results.cells[i];
    if (cell.mechanism && !cell.mechanism->forced.empty() && !cell.mechanism->forced.front().groups.empty())
      shown.push_back(i);
  }
  if (shown.empty()) return {};
  Section section{"gradients", "How the gradients differ",
                  "Both runs start from the reference's weights and batch. Shaded: ‖g − g_ref‖ as a share of the rounding tolerance. "
                  "Below: ratio c = ⟨g, g_ref⟩ / ‖g_ref‖² · cosine · residual ‖g − c g_ref‖ / ‖g‖.",
                  {drawing(shades())}};
  for (const std::size_t i : shown) {
    const CellResult& cell = page.results.cells[i];
    const Mechanism& m = *cell.mechanism;
    const bool folded = shown.size() > kFoldAll || (shown.size() > kShownOpen && m.verdict != VerdictKind::divergent);
    std::vector<const ForcedStep*> all, ends{&m.forced.front()};
    for (const ForcedStep& step : m.forced) all.push_back(&step);
    if (all.size() > 1) ends.push_back(all.back());
    std::vector<Part> parts{tabled(steps_of(ends, false))};
    if (all.size() > 2) parts.push_back(fold(fmt::format("All {} forced steps", all.size()), {tabled(steps_of(all, shown.size() > kFoldAll))}));
    const std::string id = "gradients-" + page.anchors[i], name = name_words(cell.scenario) + " against " + name_words(cell.reference);
    const Note used{band_words(m.band_used), m.band_used <= 1 ? "t-ok" : "t-bad"};
    if (folded) {
      section.parts.push_back(fold(name, std::move(parts), id, used));
      continue;
    }
    section.parts.push_back(heading(name, id, used));
    section.parts.insert(section.parts.end(), parts.begin(), parts.end());
  }
  return section;
}

// The batch that grows: what each rule of the learning rate came to, and what the gradient noise predicts.
namespace {

/// Between which exponents the prediction lies; the one itself where nothing bounds it.
Interval predicted_of(const Growth& g) {
  const Interval& i = g.predicted_interval;
  if (std::isfinite(i.low) && std::isfinite(i.high) && i.low < i.high) return i;
  return {g.predicted_exponent, g.predicted_exponent, i.level};
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

std::string rules_plot(const Results& results, const Growth& g) {
  const double margin = results.primary.margin;
  Plot plot{.title = "Difference by the exponent of the rule",
            .description = "",
            .x = {-0.16, 1.16},
            .y = {-1.6 * margin, 1.6 * margin},
            .x_ticks = {{0, "0 (none)"}, {0.5, "½ (square root)"}, {1, "1 (linear)"}},
            .y_ticks = {},
            .x_name = "exponent of the learning rate in the batch",
            .y_name = "difference of " + metric_words(results.primary.metric)};
  plot.areas.push_back({-HUGE_VAL, HUGE_VAL, -margin, margin, "margin"});
  if (std::isfinite(g.predicted_exponent)) {
    // A prediction of one digit at best is drawn at least as broad as that.
    const Interval predicted = predicted_of(g);
    plot.areas.push_back({std::min(predicted.low, g.predicted_exponent - 0.02), std::max(predicted.high, g.predicted_exponent + 0.02), -HUGE_VAL,
                          HUGE_VAL, "predicted"});
  }
  plot.rules.push_back({false, 0, "zero"});
  if (std::isfinite(g.measured_exponent)) plot.rules.push_back({true, std::clamp(g.measured_exponent, plot.x.low, plot.x.high), "edge"});
  std::map<double, int> taken;
  for (const Growth::Rule& rule : g.rules) {
    const MetricDifference& d = rule.difference;
    plot.description += fmt::format("{}: {}. ", clean_line(rule.rule), difference_and_half(d, decimals_for(margin)));
    if (!std::isfinite(d.mean) || !std::isfinite(rule.exponent)) continue;
    const bool bounded = std::isfinite(d.interval.low) && std::isfinite(d.interval.high);
    // Those of one exponent stand side by side.
    const double low = bounded ? d.interval.low : d.mean, high = bounded ? d.interval.high : d.mean, x = rule.exponent + 0.07 * taken[rule.exponent]++;
    plot.lines.push_back({clean_line(rule.rule), style_of(rule.verdict).css, {{x, d.mean, low, high}}, true, false, clean_line(rule.rule)});
    plot.y = {std::min(plot.y.low, low), std::max(plot.y.high, high)};
  }
  const double room = 0.06 * (plot.y.high - plot.y.low);
  plot.y = {plot.y.low - room, plot.y.high + room};
  plot.y_ticks = numbered(nice_ticks(plot.y.low, plot.y.high, 6));
  if (const Parabola parabola = parabola_of(g); std::isfinite(parabola.a + parabola.b + parabola.c)) {
    plot.lines.push_back({"parabola", "ref", {}, false, true});
    for (int i = 0; i <= 32; ++i) plot.lines.back().points.push_back({i / 32.0, parabola(i / 32.0)});
  }
  if (std::isfinite(g.measured_exponent) && std::isfinite(g.measured_interval.low) && std::isfinite(g.measured_interval.high)) {
    const double above = plot.y.low + room / 2;
    plot.lines.push_back({"measured exponent", "ref", {{g.measured_interval.low, above}, {g.measured_interval.high, above}}});
  }
  return plot_drawing(plot);
}

std::string growth_caption(const Growth& g) {
  std::string text;
  if (std::isfinite(g.measured_exponent))
    text = "Dashed: the parabola through the means of none, sqrt and linear; bar above the axis: its best exponent. ";
  else if (std::isfinite(parabola_of(g).a))
    text = "A parabola through the means has no best exponent between 0 and 1. ";
  return text + (std::isfinite(g.predicted_exponent) ? "Shaded: what the gradient noise scale predicts." : "No prediction.");
}

}  // namespace

Part rules_drawing(const Results& results, const Growth& g) {
  Markup out;
  write_figure(out, {}, rules_plot(results, g));
  return on_pages(columns({drawing(out.take()), prose(growth_caption(g))}));
}

}  // namespace lockstep
