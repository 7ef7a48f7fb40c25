#include "reports/curve_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/results/metric_names.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/plots/svg.h"
#include "reports/words.h"

namespace lockstep {

std::string curve_table(const std::vector<Curve>& curves, const CurveFrame& frame) {
  Markup out;
  out.open("details").element("summary", {}, "The curves in numbers: median [lowest, highest seed]");
  out.open("div", {{"class", "scroll"}}).open("table", {{"class", "plain"}}).open("thead").open("tr");
  out.element("th", {{"scope", "col"}}, "step");
  constexpr int kColumns = 8;
  const auto step_of = [&](const Curve& curve, int column) {
    // The points nearest to even distances, so that whatever was evaluated is found.
    const double wanted = frame.last_step * column / (kColumns - 1);
    const auto near = [wanted](const CurvePoint& a, const CurvePoint& b) {
      return std::abs(a.step - wanted) < std::abs(b.step - wanted);
    };
    return *std::min_element(curve.points.begin(), curve.points.end(), near);
  };
  std::vector<double> steps;
  for (int column = 0; column < kColumns; ++column) {
    const double step = step_of(curves.front(), column).step;
    if (steps.empty() || steps.back() != step) steps.push_back(step);
  }
  for (const double step : steps)
    out.element("th", {{"scope", "col"}, {"class", "n"}}, fmt::format("{:.0f}", step));
  out.close().close().open("tbody");
  for (const Curve& curve : curves) {
    out.open("tr").element("th", {{"scope", "row"}}, name_words(curve.name));
    for (const double step : steps) {
      const auto at = std::find_if(curve.points.begin(), curve.points.end(),
                                   [step](const CurvePoint& p) { return p.step == step; });
      std::string text = "—";
      if (at != curve.points.end()) {
        text = compact_number(at->median);
        if (at->high > at->low)
          text += fmt::format(" [{}, {}]", compact_number(at->low), compact_number(at->high));
      }
      out.element("td", {{"class", "n"}}, text);
    }
    out.close();
  }
  return out.take();
}

std::vector<std::string> curve_metrics(const Results& results) {
  std::vector<std::string> metrics;
  const auto add = [&metrics](const std::vector<CurveBand>& bands) {
    for (const CurveBand& band : bands) {
      if (std::find(metrics.begin(), metrics.end(), band.metric) == metrics.end())
        metrics.push_back(band.metric);
    }
  };
  for (const ReferenceResult& reference : results.references) add(reference.curves);
  for (const CellResult& cell : results.cells) add(cell.curves);
  const auto order = [&results](const std::string& metric) {
    if (metric == results.primary.metric) return 0;
    const MetricName name = metric_name(metric);
    if (name.spec == nullptr || !(name.spec->chance || name.spec->chance_by) || name.area) return 3;
    return name.training ? 1 : 2;
  };
  std::stable_sort(metrics.begin(), metrics.end(),
                   [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return metrics;
}

}  // namespace lockstep
