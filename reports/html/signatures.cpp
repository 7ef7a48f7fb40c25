// How the gradients of each cell relate to the reference's at the same weights and batch.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/text.h"

namespace lockstep {
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

}  // namespace lockstep
