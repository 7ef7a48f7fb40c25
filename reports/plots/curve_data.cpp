#include "reports/plots/curve_data.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reports/grid.h"
#include "reports/plots/row_plot.h"
#include "reports/words.h"

namespace lockstep {
namespace {

constexpr std::size_t kColours = 6;

std::vector<CurvePoint> points_of(const CurveBand& band) {
  std::vector<CurvePoint> points;
  for (std::size_t i = 0; i < std::min(band.steps.size(), band.median.size()); ++i) {
    const double median = band.median[i];
    if (!std::isfinite(median)) continue;
    const bool has_band = i < band.low.size() && i < band.high.size();
    const double low = has_band && std::isfinite(band.low[i]) ? band.low[i] : median;
    const double high = has_band && std::isfinite(band.high[i]) ? band.high[i] : median;
    points.push_back({static_cast<double>(band.steps[i]), median, low, high});
  }
  std::stable_sort(points.begin(), points.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  return points;
}

bool add_curve(std::vector<Curve>& curves, const std::vector<CurveBand>& bands, std::string_view metric,
               Curve curve) {
  const auto band =
      std::find_if(bands.begin(), bands.end(), [&](const CurveBand& b) { return b.metric == metric; });
  if (band == bands.end()) return false;
  curve.points = points_of(*band);
  if (curve.points.empty()) return false;
  for (CurvePoint& point : curve.points) point.step *= curve.rows_a_step;
  curve.last_step = static_cast<int64_t>(curve.points.back().step);
  curve.chance = band->chance;
  curves.push_back(std::move(curve));
  return true;
}

struct Block {
  double centre, height;
  std::size_t count;
};

}  // namespace

std::vector<CurveGroup> curve_groups(const Results& results) {
  std::vector<CurveGroup> groups{CurveGroup{}};
  for (const CellResult& cell : results.cells) {
    if (!is_judged(cell) || !is_of_grown_batch(results, cell)) continue;
    const auto same = [&cell](const CurveGroup& group) { return group.reference == cell.reference; };
    if (std::none_of(groups.begin(), groups.end(), same)) groups.push_back({cell.reference});
  }
  return groups;
}

std::vector<Curve> curves_of(const Results& results, std::string_view metric, const CurveGroup& group) {
  std::vector<Curve> curves;
  const auto belongs = [&](const CellResult& cell) {
    return is_judged(cell) && (is_of_grown_batch(results, cell) ? cell.reference : "") == group.reference;
  };
  const auto rows = [&group](const std::optional<Layout>& layout) {
    return group.by_samples() ? static_cast<double>(global_batch_of(layout)) : 1.0;
  };
  for (const ReferenceResult& reference : results.references) {
    const auto only_grown = [&] {
      bool used = false;
      for (const CellResult& cell : results.cells) {
        if (cell.reference != reference.name || !is_judged(cell)) continue;
        if (!is_of_grown_batch(results, cell)) return false;
        used = true;
      }
      return used;
    };
    if (group.by_samples() ? reference.name != group.reference : only_grown()) continue;
    add_curve(curves, reference.curves, metric,
              {reference.name, reference.name, "", "ref", {}, 0, nullptr, "", rows(reference.layout)});
  }
  const std::vector<std::string> anchors = cell_anchors(results);
  std::size_t colour = 0;
  for (const std::size_t i : row_order(results)) {
    const CellResult& cell = results.cells[i];
    if (!belongs(cell)) continue;
    const bool parted = cell.mechanism && cell.mechanism->verdict == VerdictKind::divergent &&
                        cell.mechanism->first_divergence;
    add_curve(curves, cell.curves, metric,
              {cell.scenario,
               group.by_samples() && !cell.short_name.empty() ? cell.short_name : cell.scenario,
               anchors[i],
               "c" + std::to_string(colour++ % kColours),
               {},
               0,
               parted ? &*cell.mechanism->first_divergence : nullptr,
               cell.reference,
               rows(cell.layout)});
  }
  return curves;
}

std::vector<CurvePoint> thin(const std::vector<CurvePoint>& points, int columns) {
  const std::size_t room = static_cast<std::size_t>(std::max(columns, 2));
  if (points.size() <= 2 * room) return points;
  std::vector<CurvePoint> kept;
  for (std::size_t column = 0; column < room; ++column) {
    const std::size_t begin = column * points.size() / room, end = (column + 1) * points.size() / room;
    std::size_t low = begin, high = begin;
    double band_low = points[begin].low, band_high = points[begin].high;
    for (std::size_t i = begin; i < end; ++i) {
      if (points[i].median < points[low].median) low = i;
      if (points[i].median > points[high].median) high = i;
      band_low = std::min(band_low, points[i].low);
      band_high = std::max(band_high, points[i].high);
    }
    std::vector<std::size_t> chosen{low, high};
    if (column == 0) chosen.push_back(0);
    if (column + 1 == room) chosen.push_back(points.size() - 1);
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const std::size_t i : chosen)
      kept.push_back({points[i].step, points[i].median, band_low, band_high});
  }
  return kept;
}

CurveFrame frame_of(const std::vector<Curve>& curves, std::string_view metric, int64_t steps) {
  CurveFrame frame;
  frame.last_step = std::max(1.0, static_cast<double>(steps));
  frame.chance = chance_of(metric);
  double low = std::numeric_limits<double>::infinity(), high = -low, all_low = low, all_high = high;
  for (const Curve& curve : curves) {
    if (curve.chance) frame.chance = *curve.chance;
    for (const CurvePoint& point : curve.points) {
      frame.last_step = std::max(frame.last_step, point.step);
      frame.common_end = std::max(frame.common_end, point.step);
      all_low = std::min(all_low, point.low), all_high = std::max(all_high, point.high);
      if (!curve.is_reference()) continue;
      low = std::min(low, point.low), high = std::max(high, point.high);
    }
  }
  if (frame.chance >= 0) {
    low = std::min(low, frame.chance), high = std::max(high, frame.chance);
    all_low = std::min(all_low, frame.chance), all_high = std::max(all_high, frame.chance);
  }
  if (!(high > low)) low = all_low, high = all_high;
  if (!(high > low)) low = std::isfinite(low) ? low - 0.5 : 0, high = low + 1;
  const double height = high - low;
  frame.low = std::max(all_low, low - height);
  frame.high = std::min(all_high, high + height);
  if (all_low < frame.low) frame.off_low = all_low;
  if (all_high > frame.high) frame.off_high = all_high;
  // Zero is drawn where it is near: a quantity that cannot be negative reads better from its floor.
  if (frame.low > 0 && frame.low < 0.35 * frame.high) frame.low = 0;
  const double room = 0.04 * (frame.high - frame.low);
  frame.high += room;
  if (frame.low != 0) frame.low -= room;
  const AxisRange range = drawable(frame.low, frame.high);
  frame.low = range.low, frame.high = range.high;
  return frame;
}

std::vector<double> push_apart(const std::vector<double>& wanted, const std::vector<double>& heights,
                               double top, double bottom) {
  // Neighbours that would overlap become one block around the mean of what they want; blocks merge until none
  // overlap.
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Block block{wanted[i], heights[i], 1};
    const auto settle = [&](Block& b) {
      b.centre = std::min(std::max(b.centre, top + b.height / 2),
                          std::max(bottom - b.height / 2, top + b.height / 2));
    };
    settle(block);
    while (!blocks.empty() &&
           blocks.back().centre + blocks.back().height / 2 > block.centre - block.height / 2) {
      const Block& above = blocks.back();
      const double count = static_cast<double>(above.count + block.count);
      block.centre = (above.centre * static_cast<double>(above.count) +
                      block.centre * static_cast<double>(block.count)) /
                     count;
      block.height += above.height;
      block.count += above.count;
      blocks.pop_back();
      settle(block);
    }
    blocks.push_back(block);
  }
  std::vector<double> centres;
  for (const Block& block : blocks) {
    double at = block.centre - block.height / 2;
    for (std::size_t i = 0; i < block.count; ++i) {
      const double height = heights[centres.size()];
      centres.push_back(at + height / 2);
      at += height;
    }
  }
  return centres;
}

}  // namespace lockstep
