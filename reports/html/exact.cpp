// The first steps of cells and references in exact arithmetic, beside the runs that were asked for.

#include <algorithm>

#include "reports/html/parts.h"
#include "reports/text.h"

namespace lockstep {
namespace {

void write_result(Markup& out, const CellResult& cell) {
  const Certification& exact = *cell.exact;
  out.open("td");
  if (exact.divergence) {
    out.element("b", {{"class", "t-bad"}}, "≠ differs").text(": " + divergence_words(*exact.divergence));
  } else if (exact.steps > 0 && exact.steps >= exact.asked && !cell.failure) {
    out.element("b", {{"class", "t-ok"}}, "= equal bit for bit").text(": native differences are rounding");
  } else {
    out.element("b", {{"class", "t-und"}}, "? not compared");
  }
  out.close();
}

}  // namespace

void write_exact(Markup& out, const Page& page) {
  const auto asked = [](const CellResult& cell) { return cell.exact.has_value(); };
  if (std::ranges::none_of(page.results.cells, asked)) return;
  open_section(out, "exact", "Do they agree in exact arithmetic?",
               "The first steps of one seed of each cell and its reference were repeated in an arithmetic that no layout can change: "
               "each row is computed by itself, and sums do not round. Equal bits show that cell and reference compute the same; a "
               "difference is not rounding, and has a step and a row. The verdicts are about the native runs.");
  open_table(out, "plain", {"cell", "reference", numbers("steps equal"), numbers("asked"), numbers("seed"), "result"});
  for (const CellResult& cell : page.results.cells) {
    if (!cell.exact) continue;
    out.open("tr").element("th", {{"scope", "row"}}, name_words(cell.scenario));
    out.element("td", {}, name_words(cell.reference));
    for (const int64_t number : {cell.exact->steps, cell.exact->asked, cell.exact->seed})
      out.element("td", {{"class", "n"}}, std::to_string(number));
    write_result(out, cell);
    out.close();
  }
  close_table(out);
  out.close();
}

}  // namespace lockstep
