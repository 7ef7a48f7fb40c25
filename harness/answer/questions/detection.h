#pragma once

#include <string>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/plan/matrix/cells.h"

// Scores a detection matrix: what was planted against what the judge said.

namespace lockstep {

/// Two losses further apart than this, relative to the reference's, count as different to someone who
/// compares curves: the fixed tolerance that large training frameworks' regression tests use.
inline constexpr double kLossCurveTolerance = 0.05;

/// One trial of a detection matrix.
struct TrialScore {
  bool planted = false;  ///< false: a clean pair, of which `caught` is a false alarm
  bool idle = false;     ///< the fault never acted: the trial says nothing about the detectors
  bool caught = false;   ///< divergent (or not finite); failed, where the fault ends the run
  bool exact_step = false;
  bool exact_place =
      false;  ///< the right phase and tensor, stream, value or collective; of failures the rank
  bool right_cause = false;
  bool wrong_cause = false;  ///< a code that is neither right nor `unexplained`
  bool by_loss_curve = false;
  int detector = -1;  ///< index into detector_names() of what showed it first
  bool exact() const { return exact_step && exact_place; }
  bool is_found() const;  ///< a planted fault that acted was caught, at its step and place
  bool is_right() const;  ///< caught, exact, named; of a clean pair: silent
};

/// Columns of the table: what can show a fault first.
const std::vector<std::string>& detector_names();

/// `fault`: what the cell plants and must show first; nothing: a clean cell. `loss_gap`: the largest relative difference of the two free runs' training losses (mean over ranks) at any
/// step; infinite if the cell's run left no finite curve.
TrialScore score_trial(const Cell& cell, const CellResult& result, double loss_gap, const std::optional<PlantedFault>& fault);

/// The table, its rates and verdict. `cells` and `loss_gaps` stand in the order of matrix.cells. Sets each
/// cell's as_expected, and drops from the cell what would be too much for 1,400 of them: curves, configs, and
/// all forced steps but that of the first divergence; what was drawn stands in its settings.
Detection score_detection(const Matrix& matrix, std::vector<CellResult>& cells,
                          const std::vector<double>& loss_gaps);

/// The report's first sentences.
std::vector<std::string> detection_sentences(const Detection& detection);

}  // namespace lockstep
