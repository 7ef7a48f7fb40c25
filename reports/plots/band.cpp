// The band plot: how much of the floating-point band each cell's gradients used.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reports/numbers.h"
#include "reports/plots/row_plot.h"
#include "reports/plots/svg.h"
#include "reports/text.h"

namespace lockstep {
namespace {

/// Where "no difference at all" stands, which a logarithm does not reach; and where the logarithmic part
/// begins.
constexpr double kZeroAt = 3, kBegin = 9;

struct BandAxis {
  int low = -3, high = 1;  ///< powers of ten
  double operator()(double share) const {
    if (share <= 0) return kZeroAt;
    const double power = std::clamp(std::log10(share), static_cast<double>(low), static_cast<double>(high));
    return kBegin + (power - low) / (high - low) * (98 - kBegin);
  }
};

BandAxis band_axis_of(const Results& results) {
  BandAxis axis;
  const auto widen = [&axis](double share) {
    if (!std::isfinite(share) || share <= 0) return;
    axis.low = std::clamp(static_cast<int>(std::floor(std::log10(share))), -9, axis.low);
    axis.high = std::clamp(static_cast<int>(std::ceil(std::log10(share))), axis.high, 12);
  };
  for (const CellResult& cell : results.cells) {
    if (!cell.mechanism) continue;
    widen(cell.mechanism->band_used);
    for (const ForcedStep& step : cell.mechanism->forced) {
      widen(step.band_used);
      if (cell.mechanism->twins) widen(step.meaning_used);
    }
  }
  return axis;
}

const ForcedStep* worst_step(const Mechanism& mechanism) {
  const auto found =
      std::max_element(mechanism.forced.begin(), mechanism.forced.end(),
                       [](const ForcedStep& a, const ForcedStep& b) { return a.band_used < b.band_used; });
  return found == mechanism.forced.end() ? nullptr : &*found;
}

/// Is there a share of the band to show?
bool is_compared(const CellResult& cell) {
  if (!cell.mechanism) return false;
  const Mechanism& m = *cell.mechanism;
  return m.verdict == VerdictKind::identical || !m.forced.empty() || m.band_used != 0;
}

void draw_row(Markup& out, const BandAxis& axis, const CellResult& cell) {
  const double edge = axis(1);
  out.empty("rect",
            {{"x", "0"}, {"width", percent(edge)}, {"y", "0"}, {"height", "100%"}, {"class", "margin"}});
  if (!is_compared(cell)) return;
  out.empty("line",
            {{"x1", percent(edge)}, {"x2", percent(edge)}, {"y1", "0"}, {"y2", "100%"}, {"class", "edge"}});
  const Mechanism& mechanism = *cell.mechanism;
  const std::string css = row_css(cell, mechanism.verdict);
  for (const ForcedStep& step : mechanism.forced) {
    const double used = mechanism.twins ? step.arithmetic_used : step.band_used;
    if (!std::isnan(used)) {
      out.empty("circle", {{"cx", percent(axis(used))}, {"cy", "80%"}, {"r", "2.6"}, {"class", "seed " + css}});
    }
    if (!mechanism.twins || std::isnan(step.meaning_used)) continue;
    out.empty("circle",
              {{"cx", percent(axis(step.meaning_used))}, {"cy", "22%"}, {"r", "2.6"}, {"class", "ring " + css}});
  }
  if (std::isnan(mechanism.band_used)) return;
  const bool off = mechanism.band_used > std::pow(10.0, axis.high);
  row_mark(out, off ? 100 : axis(mechanism.band_used), off ? "right" : "dot", css);
}

void write_row(Markup& out, const BandAxis& axis, const CellResult& cell, const std::string& anchor) {
  const bool compared = is_compared(cell);
  out.open("tr");
  row_label(out, cell, anchor);
  out.open("td", {{"class", "plot"}});
  const std::string used = compared ? used_words(*cell.mechanism) : "no forced comparison";
  open_row_drawing(out, name_words(cell.scenario) + ": " + used, mechanism_words(cell));
  draw_row(out, axis, cell);
  out.close();
  if (!compared)
    out.element("span", {{"class", "nothing"}}, cell.failure ? "did not finish" : "no forced comparison");
  out.close();
  out.open("td", {{"class", "n"}}).element("b", {}, compared ? band_share(cell.mechanism->band_used) : "—");
  if (compared && !cell.mechanism->band_measured && !cell.mechanism->twins && cell.mechanism->verdict != VerdictKind::identical) {
    out.element("span", {{"class", "sub"}}, "estimated, not measured");
  }
  out.close();
  const ForcedStep* worst = cell.mechanism ? worst_step(*cell.mechanism) : nullptr;
  out.open("td", {{"class", "worst"}});
  if (worst && worst->band_used > 0) {
    out.text(worst->worst_tensor).element("span", {{"class", "sub"}}, fmt::format("step {}", worst->step));
  } else {
    out.text("—");
  }
  out.close();
  row_verdict(out, cell, cell.verdict);
  out.close();
}

void write_axis(Markup& out, const BandAxis& axis) {
  out.open("tfoot").open("tr").element("td", {{"class", "gap"}}, "").open("td", {{"class", "plot axis"}});
  open_row_drawing(out, "Axis", "Share of the rounding tolerance that was used; 1 is its limit");
  out.empty("line", {{"x1", "0"}, {"x2", "100%"}, {"y1", "0.5"}, {"y2", "0.5"}, {"class", "tk"}});
  axis_label(out, kZeroAt, "0");
  const int stride = (axis.high - axis.low) / 6 + 1;
  for (int power = axis.low; power <= axis.high; ++power) {
    if (power % stride != 0) continue;
    axis_label(
        out, axis(std::pow(10.0, power)),
        power >= -3 && power <= 4 ? fmt::format("{:g}", std::pow(10.0, power)) : fmt::format("1e{}", power));
  }
  out.close();
  out.open("div", {{"class", "ends"}}).element("span", {}, "← all bits equal");
  out.element("span", {}, "more than rounding explains →");
  out.close().close().element("td", {{"class", "gap"}, {"colspan", "3"}}, "").close().close();
}

}  // namespace

std::string band_plot(const Results& results) {
  const BandAxis axis = band_axis_of(results);
  const std::vector<std::string> anchors = cell_anchors(results);
  Markup out;
  out.open("table", {{"class", "rows bands"}}).open("thead").open("tr");
  out.element("th", {{"scope", "col"}}, "cell")
      .element("th", {{"scope", "col"}}, "largest difference / tolerance");
  out.element("th", {{"scope", "col"}, {"class", "n"}}, "tolerance used")
      .element("th", {{"scope", "col"}}, "largest in");
  out.element("th", {{"scope", "col"}}, "verdict").close().close().open("tbody");
  for (const std::size_t i : row_order(results)) write_row(out, axis, results.cells[i], anchors[i]);
  out.close();
  write_axis(out, axis);
  return out.take();
}

}  // namespace lockstep
