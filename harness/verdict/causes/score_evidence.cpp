#include "harness/verdict/causes/score_evidence.h"

#include <algorithm>

#include "harness/verdict/compare/step_records.h"
#include "harness/verdict/trace/record_values.h"

namespace lockstep::causes {

std::vector<AlignedRow> aligned_rows(const CauseInputs& inputs) {
  std::vector<AlignedRow> rows;
  if (!inputs.forced || !inputs.forced->reference.scores || !inputs.forced->cell.scores) return rows;
  const Scores &reference = *inputs.forced->reference.scores, &cell = *inputs.forced->cell.scores;
  for (const ScoreRow& row : cell.rows) {
    const auto same = std::find_if(reference.rows.begin(), reference.rows.end(),
                                   [&](const ScoreRow& each) { return each.row_id == row.row_id; });
    if (same == reference.rows.end()) continue;
    const std::vector<int64_t>& wanted = reference.columns[static_cast<std::size_t>(same->rank)];
    const std::vector<int64_t>& own = cell.columns[static_cast<std::size_t>(row.rank)];
    AlignedRow aligned{row.row_id, row.rank, {}, {}, {}};
    for (std::size_t j = 0; j < own.size(); ++j) {
      const auto place = std::find(wanted.begin(), wanted.end(), own[j]);
      if (place == wanted.end()) continue;
      aligned.columns.push_back(own[j]);
      aligned.expected.push_back(same->values[static_cast<std::size_t>(place - wanted.begin())]);
      aligned.actual.push_back(row.values[j]);
    }
    rows.push_back(std::move(aligned));
  }
  return rows;
}

WrongScores wrong_in(const std::vector<AlignedRow>& rows, double band) {
  WrongScores wrong;
  for (const AlignedRow& row : rows) {
    for (std::size_t j = 0; j < row.columns.size(); ++j) {
      ++wrong.total;
      ++wrong.row_width[row.id];
      ++wrong.column_height[row.columns[j]];
      ++wrong.of_rank[row.rank];
      if (distance(row.expected[j], row.actual[j]) <= band) continue;
      ++wrong.count;
      ++wrong.by_row[row.id];
      ++wrong.by_column[row.columns[j]];
      ++wrong.by_rank[row.rank];
    }
  }
  return wrong;
}

bool misses_scores(const CauseInputs& inputs) {
  return inputs.difference.phase == Phase::scores && inputs.difference.divergence.kind == DivergenceKind::missing;
}

bool scores_candidates(const CauseInputs& inputs) {
  if (inputs.trainer) return scores_of(inputs.trainer).own_columns > 0;
  if (!inputs.reference) return false;
  std::size_t rows = 0, among_columns = 0;
  for (const StepRecords& rank : inputs.reference->ranks) {
    const Record *scores = find_record(rank, Phase::scores, "energies"), *ids = find_record(rank, Phase::scores, "columns");
    const auto columns = ids ? values_of(*ids) : std::nullopt;
    if (!scores || !columns) return false;
    rows += scores->ids.size();
    among_columns += static_cast<std::size_t>(std::ranges::count_if(
        scores->ids, [&](int64_t id) { return std::ranges::find(*columns, static_cast<double>(id)) != columns->end(); }));
  }
  return 2 * among_columns > rows;
}

std::string_view score_name(const CauseInputs& inputs) { return scores_of(inputs.trainer).record; }

}  // namespace lockstep::causes
