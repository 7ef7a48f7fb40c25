#pragma once
// The tables that answer whole questions: losses certified, claims decided. One set of words for every
// format.

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

/// How a claim's or a condition's state is shown.
struct StateStyle {
  const char* symbol;  ///< one column wide
  const char* css;
};
StateStyle style_of(ClaimState state);

/// "8x3 local against 1x24 global: 24-way accuracy worse: −0.09 (−0.11 to −0.07), 10 paired seeds".
std::string condition_words(const ConditionResult& condition);

/// What a claim came to, its reason if it has one, and what was expected if it came to something else.
std::string claim_words(const ClaimResult& claim);

/// What the terminal shows in place of a row for each cell; empty where the question is another. `width`
/// columns.
std::string terminal_answers(const Results& results, int width);

/// The same as Markdown.
std::string markdown_answers(const Results& results);

/// Cells that the page shows one by one: of a certificate those that are not certified and the worst of each
/// row, which speak for the others; else all.
Results with_telling_cells(const Results& results);

}  // namespace lockstep
