#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/answer/results/results.h"
#include "reports/text.h"

// What a matrix with a grid answers, top down: which cells train the same, which do not and why, which rule
// fits when the batch grows, what it costs, how sure that is, whether the matrix can tell.

namespace lockstep {

struct Answer {
  std::string question, text;
  const char* css;  ///< ok, bad, und or ctl
};

struct Headline {
  std::vector<std::string> sentences;  ///< the grid in words, column by column
  std::vector<Answer> answers;
};

/// None where the matrix has no grid: its summary's sentence answers then.
std::optional<Headline> headline_of(const Results& results);

/// Cells that the page shows one by one: of a certificate those that are not certified and the worst of each
/// row, which speak for the others; else all.
Results with_telling_cells(const Results& results);

}  // namespace lockstep
