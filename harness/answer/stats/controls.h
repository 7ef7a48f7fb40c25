#pragma once
// Which power control shows that a comparison could see a difference, and how small a difference it could see.

#include <string>
#include <vector>

#include "harness/answer/results/results.h"

namespace lockstep {

/// Cells that are compared with references which train towards the same, with the power controls among them. A
/// control of another question says nothing of it: where little is learnt, or runs scatter less, the same change
/// of a setting may change nothing.
struct ControlledQuestion {
  std::string reference;  ///< name of its first cell's
  /// That answer it: no controls, A/A pairs or references compared with themselves.
  std::vector<const CellResult*> cells;
  std::vector<const CellResult*> caught;  ///< controls that came out divergent
  std::vector<const CellResult*> missed;  ///< controls that did not
  /// Cells among them that came out divergent: they show as much as a control that was caught.
  std::vector<const CellResult*> divergent;

  /// Does anything show that the comparison could see a difference?
  bool is_shown() const { return !caught.empty() || !divergent.empty(); }
};

/// In the order of the cells. Points into `results`.
std::vector<ControlledQuestion> controlled_questions(const Results& results);

/// Did a power control come out divergent by its outcome?
bool is_caught(const CellResult& control);

/// Was the cell called equivalent, though neither a power control nor another cell of its question came out
/// divergent?
bool is_uncontrolled(const std::vector<ControlledQuestion>& questions, const CellResult& cell);

/// References of such cells, each once.
std::vector<std::string> uncontrolled_references(const Results& results);

/// "neither a power control nor another cell came out divergent against 1x24 layer, so nothing shows that this
/// comparison could have come out otherwise"; of several cells: "these comparisons". References as they stand in
/// a sentence.
std::string uncontrolled_in_words(const std::string& references, std::size_t cells);

/// Adds that to the sentences of the outcomes that it is true of, and takes every outcome's `detectable` at the widest upper
/// bound of spread among the cells and power controls of its question: a cell that is as good as a copy of its reference
/// scatters less than one that differs.
void note_controls(Results& results);

/// "Against 1x24 global a true difference of 0.041 in 24-way accuracy or more comes out divergent with
/// probability 0.8 (10 paired seeds that scatter like 8x3 lr_scale=0.125, at the upper bound of that spread); ...", and what share of what is learnt
/// the margin is where that is much, and how far the nearest that came out divergent lies beyond the margin
/// where that is far. Empty where no cell of the question has two pairs, or none scatters.
std::string sight_in_words(const ControlledQuestion& question);

}  // namespace lockstep
