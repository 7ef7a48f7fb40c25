#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/answer/results/results.h"
#include "reports/plots/chart.h"

// Curves made ready to draw: finite, thinned, in one common frame.

namespace lockstep {

struct Curve {
  std::string name;
  std::string label;               ///< at the line's end: what stands above the panel is left out of the name
  std::string anchor;              ///< of the cell; empty: a reference
  std::string css;                 ///< ref, or c0 to c5
  std::vector<PlotPoint> points;   ///< by step; only points whose median is finite
  int64_t last_step = 0;
  const Divergence* divergence = nullptr;  ///< of a cell whose mechanism diverged
  std::string reference;                   ///< name of the cell's reference
  double rows_a_step = 1;                  ///< where the axis counts samples: steps are multiplied by this
  std::optional<double> chance = {};       ///< of the runs' data
  bool is_reference() const { return anchor.empty(); }
};

/// Cells that share an axis: those whose batch grew over one reference are drawn by samples, because a step
/// of theirs takes more rows.
struct CurveGroup {
  std::string reference;  ///< empty: all cells of their reference's batch, by steps
  bool by_samples() const { return !reference.empty(); }
};

/// Curves of one metric: references that have one first, then the cells. A/A pairs and cells that are their
/// own reference have none.
std::vector<Curve> curves_of(const Results& results, std::string_view metric, const CurveGroup& group = {});

struct CurveFrame {
  double last_step = 1;   ///< right edge
  double common_end = 0;  ///< last step of the longest curve
  double low = 0, high = 1;
  std::optional<double> off_low, off_high;  ///< furthest values outside, if there are any
  double chance = -1;
  bool by_samples = false;  ///< the axis counts samples
};

/// What all panels of a metric show: references whole; a cell that leaves them by more than their height runs
/// off the frame.
CurveFrame frame_of(const std::vector<Curve>& curves, std::string_view metric, int64_t steps);

}  // namespace lockstep
