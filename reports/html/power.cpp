// How sure the answers are: spread, power, the seeds that would decide; other estimates.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/verdict/stats/outcome.h"
#include "reports/grid.h"
#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/plots/row_plot.h"
#include "reports/text.h"

namespace lockstep {
namespace {

/// Cells with an outcome of two seeds or more, in the order of the row plots.
std::vector<std::size_t> cells_of(const Results& results) {
  std::vector<std::size_t> all;
  for (const std::size_t i : row_order(results)) {
    if (results.cells[i].outcome && results.cells[i].outcome->n >= 2) all.push_back(i);
  }
  return all;
}

std::string seeds_needed_words(int seeds) {
  if (seeds <= 0) return "decided";
  return seeds >= 10000 ? "10000 or more" : std::to_string(seeds);
}

/// Decimals for spreads: one more than the margin has use for.
std::string spread(double value, double margin) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals_for(margin) + 1)
                              : compact_number(value);
}

void draw_power(Markup& out, const CellResult& cell) {
  const Outcome& o = *cell.outcome;
  const Scale axis{0, 1, 3, 97};
  open_row_drawing(out, name_words(cell.scenario) + ": power",
                   fmt::format("{} if there is no difference, {} if it is half the margin", probability_words(o.power),
                               probability_words(o.power_half)));
  out.empty("rect", {{"x", percent(axis(0.8))},
                     {"width", percent(axis(1) - axis(0.8))},
                     {"height", "100%"},
                     {"class", "margin"}});
  const std::string css = o.power >= 0.8 ? "c0" : "c1";
  for (const bool half : {true, false}) {
    const double value = half ? o.power_half : o.power;
    if (!std::isfinite(value)) continue;
    const std::string x = percent(axis(std::clamp(value, 0.0, 1.0)));
    const std::string name = (half ? "hollow " : "m ") + css;
    out.empty("circle", {{"class", name}, {"cx", x}, {"cy", "50%"}, {"r", half ? "4" : "4.6"}});
  }
  out.close();
}

void write_power_rows(Markup& out, const Page& page, const std::vector<std::size_t>& cells) {
  open_table(out, "rows power",
             {"cell", "● no difference, ○ half the margin", numbers("n"), numbers("sd"),
              numbers("upper bound"), numbers("power at 0"),
              numbers("power at ½ margin"), numbers("seeds at 0"), numbers("seeds at ½ margin"), numbers("smallest visible")});
  for (const std::size_t i : cells) {
    const CellResult& cell = page.results.cells[i];
    const Outcome& o = *cell.outcome;
    out.open("tr");
    row_label(out, cell, page.anchors[i]);
    out.open("td", {{"class", "plot"}});
    draw_power(out, cell);
    out.close();
    const auto figure = [&out](std::string_view label, const std::string& text) {
      out.element("td", {{"class", "n"}, {"data-label", std::string(label)}}, text);
    };
    figure("n", std::to_string(o.n));
    figure("sd", spread(o.primary.sd, o.margin));
    figure("upper bound", spread(o.sd_upper, o.margin));
    figure("power at 0", probability_words(o.power));
    figure("power at ½ margin", probability_words(o.power_half));
    const auto seeds = [&o](double size, int needed) {
      return needed > 0 && leaves_out(o.primary.interval, size) ? "excluded" : seeds_needed_words(needed);
    };
    figure("seeds at 0", seeds(0, o.seeds_needed));
    figure("seeds at ½ margin", seeds(o.margin / 2, o.seeds_needed_half));
    figure("smallest visible", o.detectable > 0 ? spread(o.detectable, o.margin) : "not known");
    out.close();
  }
  close_table(out);
}

void write_p_values(Markup& out, const Page& page, const std::vector<std::size_t>& cells) {
  out.open("details").element("summary", {}, "p values, plain and Holm-adjusted over the cells");
  open_table(out, "plain", {"cell", numbers("not equivalent"), numbers("no difference"),
                            numbers("no difference, Holm")});
  for (const std::size_t i : cells) {
    const CellResult& cell = page.results.cells[i];
    out.open("tr").element("th", {{"scope", "row"}}, name_words(cell.scenario));
    out.element("td", {{"class", "n"}}, probability_words(cell.outcome->p_equivalent));
    out.element("td", {{"class", "n"}}, probability_words(cell.outcome->p_different));
    const bool in_family = !cell.power_control && !cell.noise;
    out.element("td", {{"class", "n"}}, in_family ? probability_words(cell.outcome->p_holm) : "—").close();
  }
  close_table(out);
  out.element("p", {{"class", "why"}},
              "Not equivalent: the larger p of the two one-sided tests. No difference: p of the two-sided test; and the same "
              "Holm-adjusted over all cells except power controls and A/A pairs, for a conclusion about one cell that was picked "
              "from them.");
  out.close();
}

void write_estimates(Markup& out, const Page& page, const std::vector<std::size_t>& cells) {
  const auto has = [&](std::size_t i) { return !page.results.cells[i].outcome->estimates.empty(); };
  if (std::none_of(cells.begin(), cells.end(), has)) return;
  const int decimals = decimals_for(page.results.primary.margin);
  out.open("details").element("summary", {}, "Mean, median and interquartile mean of the differences");
  open_table(out, "plain stack", {"cell", "estimate", numbers("value"), numbers("interval"), "by"});
  for (const std::size_t i : cells) {
    const CellResult& cell = page.results.cells[i];
    const auto& estimates = cell.outcome->estimates;
    for (std::size_t k = 0; k < estimates.size(); ++k) {
      const Estimate& e = estimates[k];
      out.open("tr");
      if (k == 0) {
        out.element("th", {{"scope", "rowgroup"}, {"rowspan", std::to_string(estimates.size())}},
                    name_words(cell.scenario));
      }
      out.element("td", {{"data-label", "estimate"}}, clean_line(e.what));
      out.element("td", {{"class", "n"}, {"data-label", "value"}}, signed_number(e.value, decimals));
      out.element("td", {{"class", "n"}, {"data-label", "interval"}}, interval_words(e.interval, decimals));
      out.element("td", {{"data-label", "by"}},
                  fmt::format("{}, {:.3g} %, n {}", clean_line(e.method), 100 * e.interval.level,
                              cell.outcome->n))
          .close();
    }
  }
  close_table(out);
  out.close();
}

}  // namespace

void write_power(Markup& out, const Page& page) {
  const std::vector<std::size_t> cells = cells_of(page.results);
  if (cells.empty()) return;
  open_section(
      out, "power", "How sure is that?",
      "Power: the probability that these seeds show equivalence if the true difference is 0, or half the margin. It uses the "
      "upper bound of the standard deviation (level 0.8) and not the measured difference. Green is 0.8 and above. Seeds: how many "
      "seeds a new run needs for a power of 0.8 (to extend this run use seeds: auto); excluded: the interval excludes such a "
      "difference. Smallest visible: the smallest true difference that so many seeds find with probability 0.8, with the largest "
      "upper bound among the cells and power controls of the question.");
  write_power_rows(out, page, cells);
  write_p_values(out, page, cells);
  write_estimates(out, page, cells);
  out.close();
}

}  // namespace lockstep
