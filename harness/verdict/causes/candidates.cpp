// Causes of wrong scores of rows against candidates, in any trainer: which rows and columns differ, and whether the reference has the values
// elsewhere.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "harness/verdict/causes/rules.h"
#include "harness/verdict/causes/score_evidence.h"

namespace lockstep::causes {
namespace {

/// [rows, columns] of a rank's scores, as recorded.
std::pair<int64_t, int64_t> shape_of(const StepRecords& rank) {
  for (const Record& record : rank.records) {
    if (record.phase == Phase::scores && record.name == "energies" && record.shape.size() == 2) return {record.shape[0], record.shape[1]};
  }
  return {-1, -1};
}

/// Ranks whose rows have, of all rows of the batch, those of their own rank alone as candidates, beside candidates that belong to no row. Nothing where
/// ids are not known, or another rank lacks candidates, too.
std::optional<std::vector<int>> ranks_with_own_alone(const CauseInputs& inputs) {
  if (!inputs.forced || !inputs.forced->reference.scores || !inputs.forced->cell.scores) return std::nullopt;
  const Scores& scores = *inputs.forced->cell.scores;
  std::set<int64_t> batch;
  std::vector<std::set<int64_t>> own(scores.columns.size());
  for (const ScoreRow& row : inputs.forced->reference.scores->rows) batch.insert(row.row_id);
  for (const ScoreRow& row : scores.rows) own[static_cast<std::size_t>(row.rank)].insert(row.row_id);
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    std::set<int64_t> candidates;
    for (const int64_t id : scores.columns[rank]) {
      if (batch.contains(id)) candidates.insert(id);
    }
    if (candidates == batch) continue;
    if (candidates != own[rank]) return std::vector<int>{};
    ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

/// By numbers alone: as many candidates as the rank has rows, where the reference has as many as all ranks.
bool are_own_alone_by_number(const CauseInputs& inputs) {
  int64_t rows = 0;
  for (const StepRecords& rank : inputs.cell->ranks) {
    const auto [own, columns] = shape_of(rank);
    if (own < 1 || own != columns) return false;
    rows += own;
  }
  return shape_of(inputs.reference->ranks[0]).second == rows;
}

std::optional<Cause> local_negatives(const CauseInputs& inputs) {
  if (!misses_scores(inputs) || !inputs.cell || !inputs.reference || inputs.cell->ranks.size() < 2) return std::nullopt;
  const auto ranks = ranks_with_own_alone(inputs);
  if (ranks ? ranks->empty() : !are_own_alone_by_number(inputs)) return std::nullopt;
  const bool on_all = !ranks || ranks->size() == inputs.cell->ranks.size();
  const std::size_t first = on_all ? 0 : static_cast<std::size_t>(ranks->front());
  const int64_t own = shape_of(inputs.cell->ranks[first]).second - 1, expected = shape_of(inputs.reference->ranks[0]).second - 1;
  return made("local-negatives", kExact,
              fmt::format("a row of {} has {} negative{} instead of {}: of the batch those of its own rank alone", on_all ? "rank 0" : fmt::format("rank {}", fmt::join(*ranks, ", ")),
                          own, own == 1 ? "" : "s", expected));
}

/// Passes whose scores the rank recorded: micro-steps, each with candidates of its own.
std::ptrdiff_t passes_of(const StepRecords& rank) {
  return std::ranges::count_if(rank.records, [](const Record& record) {
    return record.phase == Phase::scores && (record.name == "energies" || record.name.starts_with("energies."));
  });
}

std::optional<Cause> negatives_missing(const CauseInputs& inputs) {
  if (!misses_scores(inputs) || local_negatives(inputs) || !inputs.cell || !inputs.reference)
    return std::nullopt;
  // Of more micro-steps each has fewer rows, and none of them is missing.
  if (passes_of(inputs.cell->ranks[0]) != passes_of(inputs.reference->ranks[0])) return std::nullopt;
  const int64_t expected = shape_of(inputs.reference->ranks[0]).second;
  std::vector<std::size_t> ranks;
  int64_t fewest = expected;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    const int64_t columns = shape_of(inputs.cell->ranks[rank]).second;
    if (columns < 0 || columns >= expected) continue;
    ranks.push_back(rank);
    fewest = std::min(fewest, columns);
  }
  if (ranks.empty()) return std::nullopt;
  return made("negatives-missing", 0.95,
              fmt::format("rank {}: {} candidates a row where the reference has {}", fmt::join(ranks, ", "),
                          fewest, expected));
}

/// The columns of a rank's rows that carry another candidate's energies in every row; nothing if some column
/// carries no candidate's.
std::optional<std::map<int64_t, int64_t>> permutation_of(const std::vector<AlignedRow>& rows, int rank,
                                                         double band) {
  std::vector<const AlignedRow*> own;
  for (const AlignedRow& row : rows) {
    if (row.rank == rank) own.push_back(&row);
  }
  std::map<int64_t, int64_t> moved;
  if (own.empty()) return moved;
  std::set<std::size_t> taken;
  const std::size_t width = own[0]->columns.size();
  for (std::size_t j = 0; j < width; ++j) {
    const auto carries = [&](std::size_t k) {
      return std::all_of(own.begin(), own.end(), [&](const AlignedRow* row) {
        return distance(row->actual[j], row->expected[k]) <= band;
      });
    };
    std::size_t found = j;
    if (!carries(j)) {
      found = 0;
      while (found < width && !(carries(found) && taken.count(found) == 0)) ++found;
      if (found == width) return std::nullopt;
      moved[own[0]->columns[j]] = own[0]->columns[found];
    }
    taken.insert(found);
  }
  return taken.size() == width ? std::optional(moved) : std::nullopt;
}

std::optional<Cause> candidates_misordered(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.empty() || misses_scores(inputs)) return std::nullopt;
  std::size_t moved = 0;
  std::pair<int64_t, int64_t> example;
  std::set<int> ranks;
  for (const AlignedRow& row : rows) ranks.insert(row.rank);
  for (const int rank : ranks) {
    const auto permutation = permutation_of(rows, rank, inputs.forced->score_band);
    if (!permutation) return std::nullopt;
    moved += permutation->size();
    if (!permutation->empty()) example = *permutation->begin();
  }
  if (moved < 2) return std::nullopt;
  return made(
      "candidates-misordered", kExact,
      fmt::format("all {} are the reference's, in a different column: those of candidate {} are in the column of {}; {} columns moved", score_name(inputs),
                  example.second, example.first, moved));
}

/// Ids of candidates shifted by a constant number of places explain most of what differs, and no other shift
/// does. Dropout belongs to the pair of row and id, so the values themselves need not be found again.
std::optional<Cause> candidates_shifted(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.size() < 4 || misses_scores(inputs) || candidates_misordered(inputs)) return std::nullopt;
  const std::size_t width = rows.front().columns.size();
  if (width < 4) return std::nullopt;
  std::vector<double> rest(width, 0);
  for (const AlignedRow& row : rows) {
    if (row.columns != rows.front().columns) return std::nullopt;
    for (std::size_t shift = 0; shift < width; ++shift) {
      for (std::size_t j = 0; j < width; ++j) {
        const double gap = row.actual[j] - row.expected[(j + shift) % width];
        rest[shift] += gap * gap;
      }
    }
  }
  const auto best = std::min_element(rest.begin(), rest.end());
  const auto shift = best - rest.begin();
  double next = rest[0];
  for (std::size_t k = 0; k < width; ++k) {
    if (static_cast<std::ptrdiff_t>(k) != shift) next = std::min(next, rest[k]);
  }
  if (shift == 0 || *best > 0.3 * next) return std::nullopt;
  return made(
      "candidates-misordered", 0.9,
      fmt::format("{} shifted by {} places explain {:.3g} % of the squared difference, and no other order does", score_name(inputs),
                  shift, 100 * (1 - *best / rest[0])));
}

std::optional<Cause> padding_is_candidate(const CauseInputs& inputs) {
  if (!misses_scores(inputs) || !inputs.forced || !inputs.forced->cell.scores ||
      !inputs.forced->reference.scores) {
    return std::nullopt;
  }
  const Scores &reference = *inputs.forced->reference.scores, &cell = *inputs.forced->cell.scores;
  std::vector<int64_t> wanted = reference.columns.front();
  std::sort(wanted.begin(), wanted.end());
  std::size_t padded = 0;
  for (std::vector<int64_t> own : cell.columns) {
    padded += static_cast<std::size_t>(std::count(own.begin(), own.end(), -1));
    std::erase(own, -1);
    std::sort(own.begin(), own.end());
    if (!own.empty() && own != wanted) return std::nullopt;
  }
  if (padded == 0) return std::nullopt;
  return made(
      "padding-not-masked", kExact,
      fmt::format("in addition to the reference's {} candidates there are {} padded columns, on all ranks together",
                  wanted.size(), padded));
}

std::optional<Cause> sample_content(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.size() < 2 || misses_scores(inputs)) return std::nullopt;
  const WrongScores wrong = wrong_in(rows, inputs.forced->score_band);
  if (wrong.count == 0) return std::nullopt;
  std::vector<int64_t> explains;
  for (const auto& [id, width] : wrong.row_width) {
    const auto in_row = wrong.by_row.count(id) ? wrong.by_row.at(id) : 0;
    const auto in_column = wrong.by_column.count(id) ? wrong.by_column.at(id) : 0;
    bool crossing = false;
    for (const AlignedRow& row : rows) {
      for (std::size_t j = 0; row.id == id && j < row.columns.size(); ++j) {
        crossing = crossing || (row.columns[j] == id &&
                                distance(row.expected[j], row.actual[j]) > inputs.forced->score_band);
      }
    }
    if (in_row + in_column - (crossing ? 1 : 0) != wrong.count) continue;
    // A whole row, or a whole column: content that is wrong shows against nearly every other.
    const auto height = wrong.column_height.count(id) ? wrong.column_height.at(id) : 0;
    if (10 * in_row >= 9 * width || 10 * in_column >= 9 * height) explains.push_back(id);
  }
  if (explains.size() != 1) return std::nullopt;
  const int64_t id = explains.front();
  const bool column = wrong.by_column.count(id) && wrong.by_column.at(id) > 1;
  return made("sample-content", column ? 0.95 : 0.75,
              fmt::format("sample {}: {} of {} {} differ, all in its row or its column", id, wrong.count, wrong.total, score_name(inputs)));
}

std::optional<Cause> candidates_in_low_precision(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.empty() || misses_scores(inputs)) return std::nullopt;
  const WrongScores wrong = wrong_in(rows, inputs.forced->score_band);
  double squares = 0, difference = 0, largest = 0, mean = 0;
  for (const AlignedRow& row : rows) {
    for (const double value : row.expected) mean += value / static_cast<double>(wrong.total);
  }
  for (const AlignedRow& row : rows) {
    for (std::size_t j = 0; j < row.columns.size(); ++j) {
      const double gap = distance(row.expected[j], row.actual[j]);
      squares += (row.expected[j] - mean) * (row.expected[j] - mean);
      difference += gap * gap;
      largest = std::max(largest, gap);
    }
  }
  const auto total = static_cast<double>(wrong.total);
  const double spread = std::sqrt(squares / total), typical = std::sqrt(difference / total);
  // Small, everywhere and even: as 8 or 11 bits of mantissa in the candidates would do it.
  const bool everywhere = 10 * wrong.count >= 8 * wrong.total;
  if (!everywhere || !(typical > 0) || typical > 0.02 * spread || typical < 1e-5 * spread ||
      largest > 8 * typical) {
    return std::nullopt;
  }
  return made(
      "candidates-in-low-precision", kFits,
      fmt::format("{} of {} {} differ, by {} of their spread on average and by no more than {} times that anywhere",
                  wrong.count, wrong.total, score_name(inputs), short_number(typical / spread), short_number(largest / typical)));
}

constexpr Rule kCandidateRules[] = {local_negatives,      negatives_missing, candidates_misordered,      candidates_shifted,
                                    padding_is_candidate, sample_content,    candidates_in_low_precision};

}  // namespace

std::span<const Rule> candidate_rules() { return kCandidateRules; }

}  // namespace lockstep::causes
