#pragma once

#include <string>
#include <vector>

#include "harness/answer/results/results.h"
#include "reports/section.h"

// What a matrix answers, top down: which cells train the same, which do not and why, which rule fits when the batch grows, what it
// costs, how sure that is, whether the matrix can tell.

namespace lockstep {

/// The answer in a sentence for each group of cells: a column of the grid, or cells of one reference.
std::vector<std::string> headline_of(const Results& results);

/// Why not, how sure, what does it cost: what a reader asks next.
std::vector<Answer> answers_of(const Results& results);

/// Cells that the page shows one by one: of a certificate those that are not certified and the worst of each
/// row, which speak for the others; else all.
Results with_telling_cells(const Results& results);

}  // namespace lockstep
