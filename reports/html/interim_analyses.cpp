// Seeds added look by look: what each look said, and how much of alpha it spent.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/plots/row_plot.h"
#include "reports/text.h"

namespace lockstep {
namespace {

std::string analysis_words(const Look& look) {
  return fmt::format("{} seeds: {}, at {:.2g}, {:.2g} spent", look.n, style_of(look.verdict).words,
                     look.alpha_here, look.alpha_spent);
}

std::string ended_words(const Sequential& s) {
  switch (s.ended) {
    case InterimEnd::decided:
      return "decided";
    case InterimEnd::most_seeds:
      return "the most seeds allowed were used";
    case InterimEnd::budget:
      return "the time budget is spent";
  }
  return "";
}

void draw_interim_analyses(Markup& out, const CellResult& cell, const Scale& axis) {
  const Sequential& s = *cell.outcome->sequential;
  std::string description;
  for (const Look& look : s.looks) description += analysis_words(look) + ". ";
  open_row_drawing(out, name_words(cell.scenario) + ": interim analyses", description);
  const std::string css = row_css(cell, cell.outcome->verdict);
  out.empty("line", {{"x1", percent(axis(0))},
                     {"x2", percent(axis(s.looks.back().n))},
                     {"y1", "50%"},
                     {"y2", "50%"},
                     {"class", "ci " + css}});
  for (const Look& look : s.looks) {
    const bool decided = look.verdict != VerdictKind::inconclusive;
    out.open("svg", {{"x", percent(axis(look.n))}, {"y", "50%"}, {"class", "mark"}});
    out.empty("circle", {{"class", (decided ? "m " : "hollow ") + css}, {"r", "4.6"}}).close();
  }
  out.close();
}

void write_axis(Markup& out, const Scale& axis) {
  out.open("tfoot").open("tr").element("td", {{"class", "gap"}}, "").open("td", {{"class", "plot axis"}});
  open_row_drawing(out, "Axis", "Paired seeds");
  out.empty("line", {{"x1", "0"}, {"x2", "100%"}, {"y1", "0.5"}, {"y2", "0.5"}, {"class", "tk"}});
  for (const double n : step_ticks(axis.high, 7).values) axis_label(out, axis(n), fmt::format("{:.0f}", n));
  out.close();
  out.open("div", {{"class", "ends"}}).element("span", {}, "").element("span", {}, "paired seeds").close();
  out.close().element("td", {{"class", "gap"}, {"colspan", "3"}}, "").close().close();
}

}  // namespace

void write_interim_analyses(Markup& out, const Page& page) {
  std::vector<std::size_t> cells;
  double most = 1;
  for (const std::size_t i : row_order(page.results)) {
    const CellResult& cell = page.results.cells[i];
    if (!cell.outcome || !cell.outcome->sequential || cell.outcome->sequential->looks.empty()) continue;
    cells.push_back(i);
    most = std::max({most, static_cast<double>(cell.outcome->sequential->most),
                     static_cast<double>(cell.outcome->sequential->looks.back().n)});
  }
  if (cells.empty()) return;
  open_section(
      out, "looks", "How many seeds did it take?",
      "Seeds were added until the verdict was decided. Testing repeatedly at one fixed level would raise the error rate, so "
      "each interim analysis has its own level, and together they spend no more than α. A ring is an analysis that left the "
      "verdict open, a dot is one that decided it.");
  const Scale axis{0, most, 2, 97};
  out.open("table", {{"class", "rows looks"}}).open("thead").open("tr");
  out.element("th", {{"scope", "col"}}, "cell").element("th", {{"scope", "col"}}, "interim analyses");
  out.element("th", {{"scope", "col"}, {"class", "n"}}, "seeds")
      .element("th", {{"scope", "col"}, {"class", "n"}}, "level of the last analysis, α spent");
  out.element("th", {{"scope", "col"}}, "reason for ending").close().close().open("tbody");
  for (const std::size_t i : cells) {
    const CellResult& cell = page.results.cells[i];
    const Sequential& s = *cell.outcome->sequential;
    out.open("tr");
    row_label(out, cell, page.anchors[i]);
    out.open("td", {{"class", "plot"}});
    draw_interim_analyses(out, cell, axis);
    out.close();
    out.element("td", {{"class", "n"}}, fmt::format("{} of {}", s.looks.back().n, s.most));
    out.element("td", {{"class", "n ci-text"}},
                fmt::format("{:.2g}, {:.2g}", s.looks.back().alpha_here, s.looks.back().alpha_spent));
    const VerdictStyle& style = style_of(cell.outcome->verdict);
    out.open("td", {{"class", "v"}});
    out.element("b", {{"class", "t-" + row_css(cell, cell.outcome->verdict)}},
                fmt::format("{} {}", style.symbol, style.words));
    out.element("span", {{"class", "sub"}}, ended_words(s)).close().close();
  }
  out.close();
  write_axis(out, axis);
  out.close();
  out.open("details").element("summary", {}, "All interim analyses");
  open_table(out, "plain", {"cell", numbers("seeds"), numbers("information"), numbers("level"),
                            numbers("α spent"), "verdict"});
  for (const std::size_t i : cells) {
    for (const Look& look : page.results.cells[i].outcome->sequential->looks) {
      out.open("tr").element("th", {{"scope", "row"}}, name_words(page.results.cells[i].scenario));
      out.element("td", {{"class", "n"}}, std::to_string(look.n));
      out.element("td", {{"class", "n"}}, fmt::format("{:.3g}", look.information));
      out.element("td", {{"class", "n"}}, fmt::format("{:.3g}", look.alpha_here));
      out.element("td", {{"class", "n"}}, fmt::format("{:.3g}", look.alpha_spent));
      out.element("td", {}, style_of(look.verdict).words).close();
    }
  }
  close_table(out);
  out.close().close();
}

}  // namespace lockstep
