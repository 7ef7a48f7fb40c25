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

// The tables that answer whole questions: losses certified. One set of words for every format.

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

// The grid as text.

/// What the grid says in sentences and as a table of at most `width` columns; empty without a grid, and
/// without the table where it is wider than that.
std::string grid_text(const Results& results, int width);

/// The same as Markdown, with the headline's answers as a list.
std::string grid_markdown(const Results& results);

}  // namespace lockstep
