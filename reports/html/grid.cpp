// The answer as a grid, and what the whole matrix answers in the box at the top.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/grid.h"
#include "reports/headline.h"
#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/plots/row_plot.h"
#include "reports/plots/svg.h"
#include "reports/text.h"

namespace lockstep {
namespace {

/// The little bars reach this many margins to either side.
constexpr double kReachOfBar = 3;

void draw_bar(Markup& out, const CellResult& cell, double margin) {
  const Outcome& o = *cell.outcome;
  const AxisRange range = drawable(-kReachOfBar * margin, kReachOfBar * margin);
  const Scale axis{range.low, range.high, 2, 98};
  const std::string css = row_css(cell, cell.verdict);
  out.open("svg", {{"class", "mini"}, {"aria-hidden", "true"}});
  out.empty("rect", {{"x", percent(axis(-margin))},
                     {"width", percent(axis(margin) - axis(-margin))},
                     {"height", "100%"},
                     {"class", "margin"}});
  const std::string zero = percent(axis(0));
  out.empty("line", {{"x1", zero}, {"x2", zero}, {"y1", "0"}, {"y2", "100%"}, {"class", "zero"}});
  const double low = std::max(o.primary.interval.low, axis.low),
               high = std::min(o.primary.interval.high, axis.high);
  if (low < high) {
    out.empty("line", {{"x1", percent(axis(low))},
                       {"x2", percent(axis(high))},
                       {"y1", "50%"},
                       {"y2", "50%"},
                       {"class", "ci " + css}});
  }
  const double mean = o.primary.mean;
  if (mean < axis.low)
    row_mark(out, 1, "left", css, "50%");
  else if (mean > axis.high)
    row_mark(out, 99, "right", css, "50%");
  else if (std::isfinite(mean))
    row_mark(out, axis(mean), "dot", css, "50%");
  out.close();
}

void write_place(Markup& out, const Page& page, const CellResult* cell, int decimals) {
  if (!cell) {
    out.element("td", {{"class", "none"}}, "—");
    return;
  }
  const std::string& anchor = page.anchors[static_cast<std::size_t>(cell - page.results.cells.data())];
  if (cell->anchor) {
    out.open("td", {{"class", "none"}}).element("b", {}, "reference");
    if (cell->outcome && std::isfinite(cell->outcome->primary.reference_mean)) {
      out.element("span", {{"class", "sub"}},
                  fmt::format("{:.{}f}, mean of {}", cell->outcome->primary.reference_mean, decimals,
                              counted(cell->outcome->n, "seed")));
    }
    out.close();
    return;
  }
  const VerdictStyle& style = style_of(cell->verdict);
  const bool expected = is_as_expected(*cell);
  out.open("td", {{"class", std::string("a-") + style.css}});
  out.open("a", {{"href", "#" + anchor}, {"class", std::string("t-") + style.css}});
  out.element("b", {}, fmt::format("{} {}", style.symbol, style.words)).close();
  if (cell->outcome && !cell->failure) {
    const MetricDifference& d = cell->outcome->primary;
    out.element("span", {{"class", "figure"}}, difference_and_half(d, decimals));
    if (const std::string terms = own_terms(page.results, *cell); !terms.empty())
      out.element("span", {{"class", "sub"}}, terms);
    draw_bar(out, *cell, cell->outcome->margin);
  } else {
    out.element("span", {{"class", "figure"}}, cell->failure ? "did not finish" : "no outcome");
  }
  if (cell->no_negatives) out.element("span", {{"class", "sub"}}, "no negatives: the loss is 0");
  if (!cell->failed_saves.empty()) out.element("span", {{"class", "sub t-bad"}}, "checkpoints: " + clean_line(cell->failed_saves));
  if (!expected) out.element("span", {{"class", "sub t-bad"}}, "✗ expected " + expected_words(*cell));
  out.close();
}

}  // namespace

void write_answers(Markup& out, const Headline& headline) {
  out.open("ul", {{"class", "first list"}});
  for (const std::string& sentence : headline.sentences) out.element("li", {}, sentence);
  out.close().open("dl", {{"class", "answers"}});
  for (const Answer& answer : headline.answers) {
    out.open("div").element("dt", {{"class", std::string("t-") + answer.css}}, answer.question);
    out.element("dd", {}, answer.text).close();
  }
  out.close();
}

void write_grid(Markup& out, const Page& page) {
  const std::optional<AnswerGrid> grid = grid_of(page.results);
  if (!grid) return;
  const Results& results = page.results;
  const int decimals = decimals_for(results.primary.margin);
  const std::string against = held_against(results, *grid);
  open_section(
      out, "grid",
      grid->row_axis == "layout" ? "Which layouts train the same as " + against + "?"
                                 : "Which cells train the same as " + against + "?",
      fmt::format(
          "Difference of {} after {}, mean of {} ± half of the {}. The bar shows that "
          "interval; the strip in the middle is the margin of ± {:g}; the drawing ends at {:g} margins. "
          "Each cell is compared with its own reference: same seeds, same samples.",
          metric_words(results.primary.metric), counted(results.steps, "step"), pairs_words(results),
          interval_name(results), results.primary.margin, kReachOfBar));
  open_scroll(out, "Each cell and its reference");
  out.open("table", {{"class", "answer"}}).open("thead").open("tr");
  out.element("th", {{"scope", "col"}}, clean_line(grid->row_axis));
  for (const std::string& column : grid->columns)
    out.element("th", {{"scope", "col"}}, setting_words(grid->column_axis, column));
  out.close().close().open("tbody");
  for (std::size_t row = 0; row < grid->rows.size(); ++row) {
    out.open("tr").element("th", {{"scope", "row"}}, name_words(grid->rows[row]));
    for (const CellResult* cell : grid->cells[row]) write_place(out, page, cell, decimals);
    out.close();
  }
  out.close().close().close().close();
}

}  // namespace lockstep
