#pragma once
// Words that several questions' summaries share.

#include <algorithm>
#include <string>
#include <vector>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// Cells named one by one before the rest is only counted.
inline constexpr std::size_t kMostNamed = 3;

using CellList = std::vector<const CellResult*>;

/// The cells of a matrix by what is to be said of them; power controls apart.
struct SortedCells {
  CellList identical, within, equivalent, divergent, undecided, failed, uncertified;
};
SortedCells sort_cells(const Results& results);

/// "a", "a and b", "a, b, c and 9 more".
std::string names_of(const CellList& cells);
/// Their references, each once; "their references" if they are many.
std::string references_of(const CellList& cells);

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
/// "at step 3", "before the first step".
std::string step_in_words(int64_t step);
/// The outcome's own sentence, or that it could not be judged.
std::string undecided_in_words(const CellResult& cell);

/// What the first steps in exact arithmetic show of the cells; nothing if the matrix asked for none.
std::vector<std::string> exact_sentences(const Results& results);

/// What cells compute: the same, within the band, not the same, undecided; over how many steps of which seed.
std::vector<std::string> mechanism_sentences(const Results& results, const SortedCells& sorted);
/// What cells learn, and which rule fits a growing batch.
std::vector<std::string> outcome_sentences(const Results& results, const SortedCells& sorted);

}  // namespace lockstep
