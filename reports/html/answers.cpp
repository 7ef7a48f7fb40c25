// Losses certified, with the figures.

#include <fmt/format.h>

#include <algorithm>

#include "reports/answers.h"
#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/text.h"

namespace lockstep {
void write_certificate(Markup& out, const Page& page) {
  if (!page.results.certificate) return;
  const Certificate& certificate = *page.results.certificate;
  std::string steps;
  for (const int64_t step : certificate.steps) steps += (steps.empty() ? "" : ", ") + std::to_string(step);
  open_section(
      out, "certificate", "Does every loss equal the loss of one process?",
      fmt::format(
          "Gradients after the mean over ranks, at the weights of step {} of the plain reference: one process "
          "with all rows. The tolerance is {:g} of max(|g_ref|, size of the summed terms) in each "
          "parameter group; a row shows the case and group that use most of it. Energies: how many "
          "the busiest rank computes in a step. Received: what a rank gets from the loss's collectives. "
          "Time: relative to the same cases with local negatives, median over the cases, a few steps "
          "each: an order of magnitude only.",
          steps, certificate.exact));
  const TextTable table = certificate_table(page.results, true);
  open_table(out, "certificate", table.heads);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    out.open("tr");
    for (std::size_t k = 0; k < table.rows[i].size(); ++k) {
      if (k == 0) {
        out.element("th", {{"scope", "row"}}, table.rows[i][k]);
      } else if (k == table.judged) {
        out.open("td", {{"class", "n"}});
        out.element("b", {{"class", std::string("t-") + table.css[i]}}, table.rows[i][k]).close();
      } else {
        out.element("td", {{"class", table.heads[k].numbers ? "n" : ""}}, table.rows[i][k]);
      }
    }
    out.close();
  }
  close_table(out);
  out.close();
}

}  // namespace lockstep
