#pragma once
// The grid as text.

#include <string>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// What the grid says in sentences and as a table of at most `width` columns; empty without a grid, and
/// without the table where it is wider than that.
std::string grid_text(const Results& results, int width);

/// The same as Markdown, with the headline's answers as a list.
std::string grid_markdown(const Results& results);

}  // namespace lockstep
