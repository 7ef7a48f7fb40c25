#pragma once
// The answer as a table: two axes of the matrix against each other, a cell where they meet.

#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/results/results.h"

namespace lockstep {

struct AnswerGrid {
  std::string row_axis, column_axis;  ///< keys of the config: "layout", "negatives"
  std::vector<std::string> rows, columns;
  std::vector<std::vector<const CellResult*>> cells;  ///< by row and column; null: the matrix has none there
  bool holds(const CellResult& cell) const;
};

/// The two axes that have the most cells between them, the others at one value each; the axis with more
/// values makes the rows. None where the matrix has no such product: fewer than 6 places, more than an eighth
/// of them empty, or another question. Power controls, A/A pairs and cells whose batch grew have no place in
/// it. Points into `results`.
std::optional<AnswerGrid> grid_of(const Results& results);

/// Is the global batch of the cell another than its reference's?
bool is_of_grown_batch(const Results& results, const CellResult& cell);

/// Rows of all ranks; 0: not known.
int global_batch_of(const std::optional<Layout>& layout);

/// Is the cell one of those that answer the question: neither its own reference nor an A/A pair?
bool is_judged(const CellResult& cell);

/// "24-way accuracy" values in the digits that the margin needs: "−0.094 ± 0.020".
std::string difference_and_half(const MetricDifference& difference, int decimals);

/// The level that the intervals of all judged cells have; none where cells have levels of their own.
std::optional<double> common_level(const Results& results);

/// "95 % interval"; "interval" where cells have levels of their own, as looks have.
std::string interval_name(const Results& results);

/// "10 paired seeds", "5 to 20 paired seeds": of the cells with an outcome; empty without any.
std::string pairs_words(const Results& results);

/// What tells a cell's interval apart where cells have pairs or levels of their own: "n 15, 98.8 %"; empty where
/// the heading says both.
std::string own_terms(const Results& results, const CellResult& cell);

/// "global negatives" of negatives and global, "lr_rule sqrt" of other keys.
std::string setting_words(const std::string& key, const std::string& value);

/// What the rows of the grid are compared with: the reference's name where there is one; "1x24" where all
/// references have that value of the row axis; else "its reference".
std::string held_against(const Results& results, const AnswerGrid& grid);

}  // namespace lockstep
