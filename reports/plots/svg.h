#pragma once
// Figures drawn as static SVG. Rows of the two row plots are rows of an HTML table whose middle column is
// drawn in percent of its width: labels and figures wrap as text does, so nothing is cut or overlaps, however
// narrow the page.

#include <string>
#include <string_view>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// One row a cell that has an outcome or failed: paired difference, its intervals, the margin, single seeds,
/// the verdict. Power controls stand last.
std::string forest_plot(const Results& results);

/// One row a cell: the share of the floating-point band that its gradients used, on a logarithmic axis; 1 is
/// the edge.
std::string band_plot(const Results& results);

/// Median and band over seeds of one metric by step, cells against their reference. Up to six cells share a
/// panel; more get a small panel each. Empty if no cell or reference has a curve of that metric.
std::string curve_panels(const Results& results, std::string_view metric);

/// Metrics that have curves, loss over log N and accuracies first.
std::vector<std::string> curve_metrics(const Results& results);

}  // namespace lockstep
