#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/forced/forced.h"

// Scores of the cell beside the reference's, row by row and column by column.

namespace lockstep::causes {

/// A row of the cell beside the reference's, column by column.
struct AlignedRow {
  int64_t id = 0;
  int rank = 0;
  std::vector<int64_t> columns;
  std::vector<double> expected, actual;
};

/// Rows that both have, with the columns that both have; empty if scores were not kept.
std::vector<AlignedRow> aligned_rows(const CauseInputs& inputs);

/// Of forced runs that record rewards: what each rank has of them at each step, as a table and a drawing.
void add_reward_answers(const ForcedInputs& inputs, Mechanism& mechanism);

/// Which scores lie outside the band.
struct WrongScores {
  std::size_t count = 0, total = 0;
  std::map<int64_t, std::size_t> by_row, by_column;
  std::map<int64_t, std::size_t> row_width, column_height;
  std::map<int, std::size_t> by_rank, of_rank;
};
WrongScores wrong_in(const std::vector<AlignedRow>& rows, double band);

/// Does the cell lack columns or rows, so that nothing can be said of the values?
bool misses_scores(const CauseInputs& inputs);

/// Do rows have candidates as columns, their own among them? Where it is not known of the trainer, most rows' ids must stand among the columns.
bool scores_candidates(const CauseInputs& inputs);

/// What the trainer's scores are called: "energies".
std::string_view score_name(const CauseInputs& inputs);

}  // namespace lockstep::causes
