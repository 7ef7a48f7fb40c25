// Losses certified and claims decided, with the figures.

#include <fmt/format.h>

#include <algorithm>

#include "reports/answers.h"
#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/text.h"

namespace lockstep {
namespace {

void write_cell_link(Markup& out, const Page& page, const std::string& name) {
  const auto& cells = page.results.cells;
  const auto found = std::find_if(cells.begin(), cells.end(),
                                  [&name](const CellResult& cell) { return cell.scenario == name; });
  if (found == cells.end()) {
    out.text(name_words(name));
    return;
  }
  const std::string& anchor = page.anchors[static_cast<std::size_t>(found - cells.begin())];
  out.element("a", {{"href", "#" + anchor}}, name_words(name));
}

void write_conditions(Markup& out, const ClaimResult& claim) {
  if (claim.conditions.empty()) out.text(short_line(claim.reason, 400));
  for (const ConditionResult& condition : claim.conditions) {
    const StateStyle style = style_of(condition.state);
    out.open("div").element("b", {{"class", std::string("t-") + style.css}}, style.symbol);
    out.text(" " + condition_words(condition)).close();
  }
}

}  // namespace

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

void write_claims(Markup& out, const Page& page) {
  if (page.results.claims.empty()) return;
  open_section(out, "claims", "Which claims hold",
               "A claim holds if all its conditions are true, and does not hold if one is false. Intervals are "
               "over paired seeds.");
  open_table(out, "claims stack", {"claim", "as stated", "verdict", "conditions and figures", "shown by"});
  for (const ClaimResult& claim : page.results.claims) {
    const StateStyle style = style_of(claim.state);
    out.open("tr").element("th", {{"scope", "row"}}, clean_line(claim.id));
    out.element("td", {{"data-label", "as stated"}}, clean_line(claim.told));
    out.open("td", {{"data-label", "verdict"}});
    out.element("b", {{"class", std::string("t-") + style.css}},
                fmt::format("{} {}", style.symbol, name_of(claim.state)));
    if (claim.expected && !claim.as_expected) {
      out.element("div", {}, fmt::format("expected: {}", name_of(*claim.expected)));
    }
    out.close().open("td", {{"data-label", "figures"}});
    write_conditions(out, claim);
    out.close().open("td", {{"data-label", "shown by"}});
    for (const std::string& name : claim.shows) {
      out.open("div");
      write_cell_link(out, page, name);
      out.close();
    }
    out.close().close();
  }
  close_table(out);
  out.close();
}

}  // namespace lockstep
