#pragma once
// The course of learning, paired by seed: differences at every evaluated step, areas under curves, steps to a
// target.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/answer/stats/outcome.h"
#include "harness/judge/evidence/run_evidence.h"

namespace lockstep {

/// The finished runs of a cell and of its reference, seed by seed in one order.
struct PairedRuns {
  std::string cell, reference;              ///< names
  int cell_batch = 0, reference_batch = 0;  ///< rows of a step
  std::vector<int64_t> seeds;
  std::vector<const RunEvidence*> cell_runs, reference_runs;
  std::string shown_metric = {};  ///< whose curve every comparison shows; empty: the primary one alone
};

/// One metric's curves at the points that all runs of both arms have: as many samples seen (step times rows
/// of a step), which are the same steps where the batches are equal.
struct PairedCurves {
  std::string metric;
  std::vector<int64_t> cell_steps, reference_steps;  ///< of the points
  std::vector<std::vector<double>> cell, reference;  ///< by seed, then by point
  std::string note;                                  ///< how points were matched if not step by step
  /// Nothing if a run has no curve of that metric, or if no point is common to all.
  static std::optional<PairedCurves> of(const PairedRuns& runs, const std::string& metric);
};

/// Takes every area auc_X anew over the points that both arms have, so that evaluating more often or longer
/// makes no difference between them. Areas of fewer than two common points are taken away.
void align_areas(const PairedRuns& runs, MetricsBySeed& cell_metrics, MetricsBySeed& reference_metrics);

/// Mean paired differences with a simultaneous band at 1 - alpha over all points (sup-t): mean +- c * se,
/// c the (1 - alpha) quantile of the largest |t| over the points when seeds are resampled with all their
/// points. c is held between the pointwise Student quantile and Bonferroni's over the points, which no band
/// needs to exceed: few seeds make few different resamples, whose largest |t| has no bound. Where all seeds
/// differ by the same amount the band is that amount. Nothing for fewer than two seeds. `margin` as in
/// CurveDifference.
std::optional<CurveDifference> difference_of(const PairedCurves& curves, double margin, double alpha);

/// Which runs reached the target, when, and which of each pair was first. The metric must have a direction. The
/// intervals of the medians lie between two order statistics (median_interval), at 1 - alpha or as near as the
/// runs allow.
TargetReach reach_of(const PairedCurves& curves, double target, bool higher_is_better, double alpha = 0.05);

/// Fills the outcome's curves (of the primary metric and of the one that is always shown) and its steps to primary.target, and notes
/// curves that are not finite.
void judge_curves(const PairedRuns& runs, const Primary& primary, Outcome& outcome);

}  // namespace lockstep
