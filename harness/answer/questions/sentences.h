#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "harness/answer/results/results.h"

// Words that several questions' summaries share.

namespace lockstep {

/// Cells named one by one before the rest is only counted.
inline constexpr std::size_t kMostNamed = 3;

using CellList = std::vector<const CellResult*>;

/// The cells of a matrix by what is to be said of them; power controls apart.
struct SortedCells {
  CellList identical, within, equivalent, divergent, undecided, failed, uncertified;
};

/// "a", "a and b", "a, b, c and 9 more".
std::string names_of(const CellList& cells);

/// One sentence a cell by `describe`, for the first few; then how many more there are: "9 more MORE."
template <typename F>
std::vector<std::string> each_of(const CellList& cells, const std::string& more, F describe) {
  std::vector<std::string> sentences;
  for (std::size_t i = 0; i < std::min(cells.size(), kMostNamed); ++i)
    sentences.push_back(describe(*cells[i]));
  if (cells.size() > kMostNamed)
    sentences.push_back(std::to_string(cells.size() - kMostNamed) + " more " + more + ".");
  return sentences;
}

void add(std::vector<std::string>& to, const std::vector<std::string>& more);

/// "8x3 does not compute the same as 1x24: …" of a cell that has a mechanism.
std::string mechanism_divergence(const CellResult& cell);
/// The outcome's own sentence, or that it could not be judged.
std::string undecided_in_words(const CellResult& cell);

/// What the first steps in exact arithmetic show of the cells; nothing if the matrix asked for none.
std::vector<std::string> exact_sentences(const Results& results);

/// What cells compute: the same, within the band, not the same, undecided; over how many steps of which seed.
std::vector<std::string> mechanism_sentences(const Results& results, const SortedCells& sorted);
/// What cells learn, and which rule fits a growing batch.
std::vector<std::string> outcome_sentences(const Results& results, const SortedCells& sorted);

// What a matrix says as a whole: counts, whether it can tell at all, its first line.

/// Everything but the counts of runs, from the cells, the question and the primary metric.
///
/// can_tell is false if a power control's outcome is not `divergent`. Whether each question has a power control
/// of its own is said apart: `uncontrolled` names the references of cells that were called equivalent without
/// one. The margin is refused if it exceeds half of the effect of a power control: of the smallest effect among
/// the controls whose (1 - alpha) interval leaves out 0. A control that shows no effect has none to measure a
/// margin against; it was not caught, which is said in its own way (exit 1 or 5).
Summary summarize_results(const Results& results);

}  // namespace lockstep
