#pragma once
// The tables that answer whole questions: losses certified. One set of words for every format.

#include <string>
#include <vector>

#include "harness/verdict/results/results.h"
#include "reports/columns.h"

namespace lockstep {

/// Cells of a table as texts.
struct TextTable {
  std::vector<Column> heads;
  std::size_t judged = 0;  ///< the column that shows the row's colour
  std::vector<std::vector<std::string>> rows;
  std::vector<const char*> css;  ///< of each row: ok, bad, und or fail
};

/// One row a loss and number of ranks; `wide`: with the worst case's name and signature. Empty where the
/// question is another.
TextTable certificate_table(const Results& results, bool wide);

/// What the terminal shows in place of a row for each cell; empty where the question is another. `width`
/// columns.
std::string terminal_answers(const Results& results, int width);

/// The same as Markdown.
std::string markdown_answers(const Results& results);

/// Cells that the page shows one by one: of a certificate those that are not certified and the worst of each
/// row, which speak for the others; else all.
Results with_telling_cells(const Results& results);

}  // namespace lockstep
