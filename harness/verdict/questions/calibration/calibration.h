#pragma once
// Do the tests keep their promises? Comparisons with a known true difference, by the tens of thousands.

#include <vector>

#include "harness/verdict/evidence/run_evidence.h"
#include "harness/verdict/questions/calibration/inputs.h"
#include "harness/verdict/stats/sequential.h"

namespace lockstep {

/// Tries a rule, sequentially too: by t on normal differences whose true mean lies exactly at the margin, at
/// minus the margin, at 0 and at half the margin; by either test on skewed and on collapsing differences
/// (shapes.h); by the matrix's own test on pairs of disjoint draws from the pool with the margin added. A test
/// is held to its promise where it makes one; of the rest the rates are shown.
///
/// A rate falls short if its Clopper-Pearson interval lies wholly on the bad side, and a power if the formula's
/// value lies outside its interval. The intervals' level is such that a rule that keeps all its promises exactly
/// falls short anywhere with a chance of at most 1 %. What is drawn follows from config.draw_seed alone. The
/// pool is left out if it has fewer than 2 runs a pair.
Calibration calibrate(const CalibrationInputs& inputs, const DecisionRule& rule = decide);

/// The same of a matrix's one cell, by its runs; sets the cell's failure and gives nothing if one of them has
/// not measured the primary metric.
std::optional<Calibration> calibrate_runs(const Matrix& matrix, const std::vector<const RunEvidence*>& runs,
                                          int jobs, CellResult& cell);

/// The report's first line.
std::string calibration_sentence(const Calibration& calibration);

}  // namespace lockstep
