
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/record.h"
#include "harness/plan/config/field.h"

// Causes of wrong scores that any trainer may have: another precision, a replica with other parameters.

namespace lockstep::causes {
namespace {

double unit_of(Precision precision) {
  return precision == Precision::bfloat16  ? std::ldexp(1.0, -8)
         : precision == Precision::float32 ? std::ldexp(1.0, -24)
                                           : std::ldexp(1.0, -53);
}

/// Two runs that are meant to round differently do. Where scores were kept whole, no difference may be more
/// than rounding in the coarser precision: a mistake beside it is another rule's.
Answer scores_in_other_precision(const CauseInputs& inputs) {
  const Precision expected = inputs.reference_config->precision, actual = inputs.cell_config->precision;
  if (expected == actual) return {};
  static const RunField* const precision = find_core_field("precision");
  const std::string words = fmt::format("the reference computes in {}, the cell in {}",
                                        text_of(precision->of(*inputs.reference_config)),
                                        text_of(precision->of(*inputs.cell_config)));
  if (misses_scores(inputs)) return {};
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.empty()) return told(words);
  double largest = 0, size = 0;
  for (const AlignedRow& row : rows) {
    for (std::size_t j = 0; j < row.columns.size(); ++j) {
      largest = std::max(largest, distance(row.expected[j], row.actual[j]));
      size = std::max(size, std::abs(row.expected[j]));
    }
  }
  // Roundings of some ten operations, each on terms that may be larger than what they add up to.
  constexpr double kMostUnits = 64;
  const double units = largest / (std::max(unit_of(expected), unit_of(actual)) * size);
  if (!(units <= kMostUnits)) return {};
  return told(kExact, "{}; {} differ by no more than {} units of the coarser one's rounding", words, score_name(inputs),
              short_number(units));
}

}  // namespace

std::vector<AlignedRow> aligned_rows(const CauseInputs& inputs) {
  std::vector<AlignedRow> rows;
  if (!inputs.forced || !inputs.forced->reference.scores || !inputs.forced->cell.scores) return rows;
  const Scores &reference = *inputs.forced->reference.scores, &cell = *inputs.forced->cell.scores;
  for (const ScoreRow& row : cell.rows) {
    const auto same = std::ranges::find(reference.rows, row.row_id, &ScoreRow::row_id);
    if (same == reference.rows.end()) continue;
    const std::vector<int64_t>& wanted = reference.columns[static_cast<std::size_t>(same->rank)];
    const std::vector<int64_t>& own = cell.columns[static_cast<std::size_t>(row.rank)];
    AlignedRow aligned{row.row_id, row.rank, {}, {}, {}};
    for (std::size_t j = 0; j < own.size(); ++j) {
      const auto place = std::ranges::find(wanted, own[j]);
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
    const auto columns = values_of(ids);
    if (!scores || !columns) return false;
    rows += scores->ids.size();
    among_columns += static_cast<std::size_t>(std::ranges::count_if(
        scores->ids, [&](int64_t id) { return std::ranges::find(*columns, static_cast<double>(id)) != columns->end(); }));
  }
  return 2 * among_columns > rows;
}

std::string_view score_name(const CauseInputs& inputs) { return scores_of(inputs.trainer).record; }

// Causes of a wrong loss over candidates whose scores are right, in any trainer: the recorded row losses are recomputed from the recorded
// scores under each hypothesis. Hypotheses count only where the plain formula gives the reference's own row losses, alone or beside a rest that
// a row has at any layout.
namespace {

/// The rows of one rank with their candidates.
struct CandidateRows {
  std::vector<const ScoreRow*> rows;
  const std::vector<int64_t>* columns = nullptr;
  std::size_t offset = 0;  ///< where this rank's own candidates begin, if all ranks' are there
  std::vector<int64_t> first_ids = {};  ///< of rank 0's rows
  const RankLoss* loss = nullptr;
};

std::vector<CandidateRows> rank_rows(const ForcedValues& values) {
  if (!values.scores || values.losses.size() != values.scores->columns.size()) return {};
  std::vector<CandidateRows> ranks(values.losses.size());
  for (const ScoreRow& row : values.scores->rows) ranks[static_cast<std::size_t>(row.rank)].rows.push_back(&row);
  std::size_t offset = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    CandidateRows& own = ranks[rank];
    own.columns = &values.scores->columns[rank];
    own.loss = &values.losses[rank];
    own.offset = std::exchange(offset, offset + own.rows.size());
    for (const ScoreRow* row : ranks[0].rows) own.first_ids.push_back(row->row_id);
    if (own.loss->row_losses.size() != own.rows.size()) return {};
  }
  return ranks;
}

/// How a row's loss is made from its energies. The plain one is as it should be.
struct Formula {
  int64_t label_shift = 0;   ///< columns beside the row's own
  bool local_label = false;  ///< the row's place on its rank as the column: the label of rank 0's row of that place
  bool padding = false;      ///< padding counts as candidates
  bool mask_duplicates = false;
  double temperature_power = 1;
  double sign = -1;  ///< of logits: scores are energies, and lower is better, or the other way round
};

/// Of that id: the place where it is expected, if it stands there, else the first.
std::size_t column_of(const std::vector<int64_t>& columns, int64_t id, std::size_t expected) {
  if (expected < columns.size() && columns[expected] == id) return expected;
  return static_cast<std::size_t>(std::ranges::find(columns, id) - columns.begin());
}

/// The column of the row's own candidate.
std::size_t own_column(const CandidateRows& rank, std::size_t row) {
  return column_of(*rank.columns, rank.rows[row]->row_id, rank.offset + row);
}

/// Where candidates stand rank by rank, the column of the row's place on its rank; in another order the one that rank 0's row of
/// that place has.
std::size_t column_without_offset(const CandidateRows& rank, std::size_t row) {
  return row < rank.first_ids.size() ? column_of(*rank.columns, rank.first_ids[row], row) : row;
}

/// 1 where none was recorded.
double temperature_of(const RankLoss& rank) { return std::isfinite(rank.temperature) ? rank.temperature : 1; }

double row_loss(const CandidateRows& rank, std::size_t row, const Formula& formula) {
  const std::vector<int64_t>& columns = *rank.columns;
  const std::size_t own = own_column(rank, row);
  const auto count = std::ssize(columns);
  if (own >= columns.size() || count == 0) return std::numeric_limits<double>::quiet_NaN();
  std::size_t target = own;
  if (formula.local_label) target = column_without_offset(rank, row);
  if (formula.label_shift != 0) {
    target =
        static_cast<std::size_t>(((static_cast<int64_t>(own) + formula.label_shift) % count + count) % count);
  }
  if (target >= columns.size()) return std::numeric_limits<double>::quiet_NaN();
  const double tau = std::pow(temperature_of(*rank.loss), formula.temperature_power);
  const auto counts = [&](std::size_t j) {
    if (columns[j] == -1 && !formula.padding) return false;
    return !(formula.mask_duplicates && j != target && columns[j] == columns[own]);
  };
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  const std::vector<double>& scores = rank.rows[row]->values;
  for (std::size_t j = 0; j < columns.size(); ++j)
    if (counts(j)) most = std::max(most, formula.sign * scores[j] / tau);
  for (std::size_t j = 0; j < columns.size(); ++j)
    if (counts(j)) sum += std::exp(formula.sign * scores[j] / tau - most);
  return most + std::log(sum) - formula.sign * scores[target] / tau;
}

/// What rounding explains of a row's loss.
double tolerance_of(const ForcedValues& values, double temperature) {
  const double size = 1 + largest_score(*values.scores) / std::max(temperature * temperature, 1e-6);
  return 256 * values.epsilon * size;
}

/// What rows lose beside the formula, by sample: a second loss, for example over columns.
using Rest = std::map<int64_t, double>;

Rest rest_beside(const ForcedValues& values, const Formula& formula) {
  Rest rest;
  for (const CandidateRows& rank : rank_rows(values)) {
    for (std::size_t row = 0; row < rank.rows.size(); ++row)
      rest[rank.rows[row]->row_id] = rank.loss->row_losses[row] - row_loss(rank, row, formula);
  }
  return rest;
}

bool rank_follows(const ForcedValues& values, const CandidateRows& rank, const Formula& formula, const Rest& rest) {
  bool any = false;
  for (std::size_t row = 0; row < rank.rows.size(); ++row) {
    const double recorded = rank.loss->row_losses[row];
    if (recorded == 0) continue;
    any = true;
    const auto beside = rest.find(rank.rows[row]->row_id);
    const double gap = std::abs(row_loss(rank, row, formula) + (beside == rest.end() ? 0 : beside->second) - recorded);
    if (!(gap <= tolerance_of(values, temperature_of(*rank.loss)))) return false;
  }
  return any;
}

/// Do all recorded row losses follow the formula, with the rest of their samples? A row that does not count may have a loss of 0.
bool follows(const ForcedValues& values, const Formula& formula, const Rest& rest = {}) {
  const std::vector<CandidateRows> ranks = rank_rows(values);
  return !ranks.empty() && std::ranges::all_of(ranks, [&](const CandidateRows& rank) { return rank_follows(values, rank, formula, rest); });
}

/// How the reference makes row losses of its scores.
struct Plain {
  Formula formula;
  Rest rest;  ///< empty: they are the formula's
};

/// The formula that the reference follows; where it follows none, the plain one beside what else its rows lose.
std::optional<Plain> plain(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::loss || !inputs.forced || !inputs.forced->reference.scores || !inputs.forced->cell.scores) return std::nullopt;
  const ForcedValues& reference = inputs.forced->reference;
  for (const double sign : {-1.0, 1.0}) {
    for (const bool mask : {false, true}) {
      const Formula formula{.mask_duplicates = mask, .sign = sign};
      if (follows(reference, formula)) return Plain{formula, {}};
    }
  }
  // A loss of energies and one of similarities leave different rests; only the reference's words could tell which it is.
  if (inputs.trainer) return std::nullopt;
  const Formula formula{.sign = 1};
  Rest rest = rest_beside(reference, formula);
  const bool finite = std::ranges::all_of(rest, [](const auto& each) { return std::isfinite(each.second); });
  return finite && !rest.empty() ? std::optional(Plain{formula, std::move(rest)}) : std::nullopt;
}

/// The formula changed so that ranks of the cell follow it where they do not follow the plain one; the others follow that.
bool follows_instead(const CauseInputs& inputs, const std::function<void(Formula&)>& change) {
  const auto as_is = plain(inputs);
  if (!as_is) return false;
  Formula changed = as_is->formula;
  change(changed);
  const ForcedValues& cell = inputs.forced->cell;
  bool any = false;
  for (const CandidateRows& rank : rank_rows(cell)) {
    if (rank_follows(cell, rank, as_is->formula, as_is->rest)) continue;
    if (!rank_follows(cell, rank, changed, as_is->rest)) return false;
    any = true;
  }
  return any;
}

Answer label_offset(const CauseInputs& inputs) {
  const auto of = [&](const std::string& which) {
    return told(kExact, "the recorded row losses are those of {}; {}", which, losses_text(inputs));
  };
  if (follows_instead(inputs, [](Formula& f) { f.local_label = true; }))
    return of("the row's place on its rank as the column of its label, without the rank's offset");
  std::set<int> shifts = {1, -1};
  for (const RankLoss& rank : inputs.forced->cell.losses)
    if (const auto rows = static_cast<int>(rank.row_losses.size()); rows > 1) shifts.insert({rows, -rows});
  for (const int shift : shifts)
    if (follows_instead(inputs, [&](Formula& f) { f.label_shift = shift; }))
      return of(fmt::format("a label {} from the row's own{}", counted(shift, "column"), std::abs(shift) == 1 ? "" : ", another rank's"));
  return {};
}

Answer padding_not_masked(const CauseInputs& inputs) {
  if (!follows_instead(inputs, [](Formula& f) { f.padding = true; })) return {};
  return told("the recorded row losses count padded columns as candidates; " + losses_text(inputs));
}

Answer duplicates_not_masked(const CauseInputs& inputs) {
  const auto as_is = plain(inputs);
  if (!as_is || !as_is->formula.mask_duplicates) return {};
  if (!follows_instead(inputs, [](Formula& f) { f.mask_duplicates = false; })) return {};
  return told("the recorded row losses count candidates with the row's own sample id as negatives; " +
              losses_text(inputs));
}

Answer temperature_applied_twice(const CauseInputs& inputs) {
  if (inputs.forced->cell.losses.empty() || temperature_of(inputs.forced->cell.losses[0]) == 1) return {};
  if (!follows_instead(inputs, [](Formula& f) { f.temperature_power = 2; })) return {};
  return told("the recorded row losses are those of scores divided by tau^2, tau = {}; {}",
              short_number(inputs.forced->cell.losses[0].temperature), losses_text(inputs));
}

// Causes of wrong scores of rows against candidates, in any trainer: which rows and columns differ, and whether the
// reference has the values elsewhere.

/// [rows, columns] of a rank's scores, as recorded.
std::pair<int64_t, int64_t> shape_of(const StepRecords& rank) {
  const Record* scores = find_record(rank, Phase::scores, "energies");
  return scores && scores->shape.size() == 2 ? std::pair(scores->shape[0], scores->shape[1])
                                             : std::pair(int64_t{-1}, int64_t{-1});
}

/// Ranks whose rows have, of all rows of the batch, those of their own rank alone as candidates, beside candidates that
/// belong to no row. Nothing where ids are not known, or another rank lacks candidates, too.
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
    for (const int64_t id : scores.columns[rank])
      if (batch.contains(id)) candidates.insert(id);
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

Answer local_negatives(const CauseInputs& inputs) {
  if (!misses_scores(inputs)) return {};
  const auto ranks = ranks_with_own_alone(inputs);
  if (ranks ? ranks->empty() : !are_own_alone_by_number(inputs)) return {};
  const bool on_all = !ranks || ranks->size() == inputs.cell->ranks.size();
  const std::size_t first = on_all ? 0 : static_cast<std::size_t>(ranks->front());
  const int64_t own = shape_of(inputs.cell->ranks[first]).second - 1,
                expected = shape_of(inputs.reference->ranks[0]).second - 1;
  return told("a row of {} has {} negative{} instead of {}: of the batch those of its own rank alone",
              on_all ? "rank 0" : fmt::format("rank {}", fmt::join(*ranks, ", ")), own, own == 1 ? "" : "s", expected);
}

/// Passes whose scores the rank recorded: micro-steps, each with candidates of its own.
std::ptrdiff_t passes_of(const StepRecords& rank) {
  return std::ranges::count_if(rank.records, [](const Record& record) {
    return record.phase == Phase::scores && (record.name == "energies" || record.name.starts_with("energies."));
  });
}

Answer negatives_missing(const CauseInputs& inputs) {
  if (!misses_scores(inputs) || local_negatives(inputs)) return {};
  // Of more micro-steps each has fewer rows, and none of them is missing.
  if (passes_of(inputs.cell->ranks[0]) != passes_of(inputs.reference->ranks[0])) return {};
  const int64_t expected = shape_of(inputs.reference->ranks[0]).second;
  std::vector<std::size_t> ranks;
  int64_t fewest = expected;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    const int64_t columns = shape_of(inputs.cell->ranks[rank]).second;
    if (columns < 0 || columns >= expected) continue;
    ranks.push_back(rank);
    fewest = std::min(fewest, columns);
  }
  if (ranks.empty()) return {};
  return told("rank {}: {} candidates a row where the reference has {}", fmt::join(ranks, ", "), fewest, expected);
}

/// The columns of a rank's rows that carry another candidate's energies in every row; nothing if some column
/// carries no candidate's.
std::optional<std::map<int64_t, int64_t>> permutation_of(const std::vector<AlignedRow>& rows, int rank, double band) {
  std::vector<const AlignedRow*> own;
  for (const AlignedRow& row : rows)
    if (row.rank == rank) own.push_back(&row);
  std::map<int64_t, int64_t> moved;
  if (own.empty()) return moved;
  std::set<std::size_t> taken;
  const std::size_t width = own[0]->columns.size();
  for (std::size_t j = 0; j < width; ++j) {
    const auto carries = [&](std::size_t k) {
      return std::ranges::all_of(own,
                         [&](const AlignedRow* row) { return distance(row->actual[j], row->expected[k]) <= band; });
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

Answer candidates_misordered(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.empty()) return {};
  std::size_t moved = 0;
  std::pair<int64_t, int64_t> example;
  std::set<int> ranks;
  for (const AlignedRow& row : rows) ranks.insert(row.rank);
  for (const int rank : ranks) {
    const auto permutation = permutation_of(rows, rank, inputs.forced->score_band);
    if (!permutation) return {};
    moved += permutation->size();
    if (!permutation->empty()) example = *permutation->begin();
  }
  if (moved < 2) return {};
  return told("all {} are the reference's, in a different column: those of candidate {} are in the column of {}; {} "
              "columns moved",
              score_name(inputs), example.second, example.first, moved);
}

/// Ids of candidates shifted by a constant number of places explain most of what differs, and no other shift
/// does. Dropout belongs to the pair of row and id, so the values themselves need not be found again.
Answer candidates_shifted(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.size() < 4 || candidates_misordered(inputs)) return {};
  const std::size_t width = rows.front().columns.size();
  if (width < 4) return {};
  std::vector<double> rest(width, 0);
  for (const AlignedRow& row : rows) {
    if (row.columns != rows.front().columns) return {};
    for (std::size_t shift = 0; shift < width; ++shift) {
      for (std::size_t j = 0; j < width; ++j) {
        const double gap = row.actual[j] - row.expected[(j + shift) % width];
        rest[shift] += gap * gap;
      }
    }
  }
  const auto best = std::ranges::min_element(rest);
  const auto shift = best - rest.begin();
  std::vector<double> ordered = rest;
  std::ranges::nth_element(ordered, ordered.begin() + 1);
  if (shift == 0 || *best > 0.3 * ordered[1]) return {};
  return told("{} shifted by {} places explain {:.3g} % of the squared difference, and no other order does",
              score_name(inputs), shift, 100 * (1 - *best / rest[0]));
}

Answer padding_is_candidate(const CauseInputs& inputs) {
  if (!misses_scores(inputs) || !inputs.forced->cell.scores || !inputs.forced->reference.scores) return {};
  const Scores &reference = *inputs.forced->reference.scores, &cell = *inputs.forced->cell.scores;
  std::vector<int64_t> wanted = reference.columns.front();
  std::ranges::sort(wanted);
  std::size_t padded = 0;
  for (std::vector<int64_t> own : cell.columns) {
    padded += static_cast<std::size_t>(std::ranges::count(own, -1));
    std::erase(own, -1);
    std::ranges::sort(own);
    if (!own.empty() && own != wanted) return {};
  }
  if (padded == 0) return {};
  return told("in addition to the reference's {} candidates there are {} padded columns, on all ranks together",
              wanted.size(), padded);
}

Answer sample_content(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.size() < 2) return {};
  const WrongScores wrong = wrong_in(rows, inputs.forced->score_band);
  if (wrong.count == 0) return {};
  std::vector<int64_t> explains;
  for (const auto& [id, width] : wrong.row_width) {
    const auto of = [id = id](const std::map<int64_t, std::size_t>& counts) {
      return counts.contains(id) ? counts.at(id) : 0;
    };
    const std::size_t in_row = of(wrong.by_row), in_column = of(wrong.by_column), height = of(wrong.column_height);
    bool crossing = false;
    for (const AlignedRow& row : rows) {
      for (std::size_t j = 0; row.id == id && j < row.columns.size(); ++j) {
        crossing =
            crossing || (row.columns[j] == id && distance(row.expected[j], row.actual[j]) > inputs.forced->score_band);
      }
    }
    if (in_row + in_column - (crossing ? 1 : 0) != wrong.count) continue;
    // A whole row, or a whole column: content that is wrong shows against nearly every other.
    if (10 * in_row >= 9 * width || 10 * in_column >= 9 * height) explains.push_back(id);
  }
  if (explains.size() != 1) return {};
  const int64_t id = explains.front();
  const bool column = wrong.by_column.count(id) && wrong.by_column.at(id) > 1;
  return told(column ? 0.95 : 0.75, "sample {}: {} of {} {} differ, all in its row or its column", id, wrong.count,
              wrong.total, score_name(inputs));
}

Answer candidates_in_low_precision(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.empty()) return {};
  const WrongScores wrong = wrong_in(rows, inputs.forced->score_band);
  double squares = 0, difference = 0, largest = 0, mean = 0;
  for (const AlignedRow& row : rows)
    for (const double value : row.expected) mean += value / static_cast<double>(wrong.total);
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
  if (!everywhere || !(typical > 0) || typical > 0.02 * spread || typical < 1e-5 * spread || largest > 8 * typical)
    return {};
  return told("{} of {} {} differ, by {} of their spread on average and by no more than {} times that anywhere",
              wrong.count, wrong.total, score_name(inputs), short_number(typical / spread),
              short_number(largest / typical));
}

/// Runs that declare two precisions, and losses no further apart than the coarser one rounds.
Answer loss_in_other_precision(const CauseInputs& inputs) {
  const double expected = inputs.reference_facts.working_epsilon, actual = inputs.cell_facts.working_epsilon;
  if (inputs.cell_config || expected == actual) return {};
  // What one header alone declares is not known to differ.
  const auto declared = [](const std::optional<StepOfRun>& step) {
    return step && step->declared ? step->declared->precision : std::string();
  };
  const std::string of_reference = declared(inputs.reference), of_cell = declared(inputs.cell);
  if (of_reference.empty() || of_cell.empty() || of_reference == of_cell) return {};
  const auto loss_of = [&](const ForcedValues* values, const std::optional<StepOfRun>& step) {
    return values ? values->loss : step ? mean_loss(*step) : std::nullopt;
  };
  const std::optional<double> reference =
                                  loss_of(inputs.forced ? &inputs.forced->reference : nullptr, inputs.reference),
                              cell = loss_of(inputs.forced ? &inputs.forced->cell : nullptr, inputs.cell);
  if (!reference || !cell) return {};
  // Roundings of some ten operations.
  constexpr double kMostUnits = 64;
  const double units =
      std::abs(*cell - *reference) / (std::max(expected, actual) * std::max(1.0, std::abs(*reference)));
  if (!(units <= kMostUnits)) return {};
  return told("the runs' headers declare the precisions {} and {}, and losses lie {:.2g} units of the coarser one "
              "apart",
              of_reference, of_cell, units);
}

/// One sample's labels in both runs.
struct LabelRow {
  int64_t id = 0;
  int rank = 0;
  std::size_t place = 0;  ///< among its rank's rows
  std::vector<double> expected, actual;
};

std::vector<LabelRow> label_rows(const CauseInputs& inputs) {
  std::vector<LabelRow> rows;
  if (inputs.difference.divergence.where != "labels") return rows;
  const auto expected = rows_by_sample(*inputs.reference, Phase::inputs, "labels");
  for (SampleRow& row : sample_rows(*inputs.cell, Phase::inputs, "labels")) {
    const auto found = expected.find(row.id);
    if (found != expected.end() && found->second.values.size() == row.values.size())
      rows.push_back({row.id, row.rank, row.place, found->second.values, std::move(row.values)});
  }
  return rows;
}

/// Places behind which a rank's part of the sequences ends, but for the last: as placements tell, or else as equal
/// parts would.
std::vector<std::set<std::size_t>> edges_of(const CauseInputs& inputs, std::size_t width) {
  std::set<std::size_t> placed;
  for (const auto& rank : inputs.cell->parts) {
    for (const Record& part : rank) {
      if (part.phase == Phase::inputs && part.name == "labels" && part.shape.size() > 1)
        placed.insert(static_cast<std::size_t>(part.placement->offset[1] + part.shape[1]) - 1);
    }
  }
  if (!placed.empty()) return {placed};
  std::vector<std::set<std::size_t>> guesses;
  for (std::size_t parts = 2; parts <= std::min(width / 2, inputs.cell->ranks.size()); ++parts) {
    if (width % parts != 0) continue;
    guesses.emplace_back();
    for (std::size_t part = 1; part <= parts; ++part) guesses.back().insert(part * (width / parts) - 1);
  }
  return guesses;
}

Answer labels_shifted_at_shard_edge(const CauseInputs& inputs) {
  const std::vector<LabelRow> rows = label_rows(inputs);
  if (rows.empty() || rows[0].expected.size() < 2) return {};
  std::set<std::size_t> wrong;
  for (const LabelRow& row : rows) {
    for (std::size_t i = 0; i < row.expected.size(); ++i)
      if (row.expected[i] != row.actual[i]) wrong.insert(i);
  }
  for (const std::set<std::size_t>& edges : edges_of(inputs, rows[0].expected.size())) {
    std::set<std::size_t> inner = edges;
    inner.erase(rows[0].expected.size() - 1);
    if (!std::ranges::includes(edges, wrong) || !std::ranges::includes(wrong, inner) || inner.empty()) continue;
    return told("labels differ at places {} alone, the last of each rank's part of the sequence of {}",
                fmt::join(wrong, ", "), rows[0].expected.size());
  }
  return {};
}

/// Of scores over gathered columns: the label of rank 0's row of the same place.
Answer labels_without_offset(const CauseInputs& inputs) {
  const std::vector<LabelRow> rows = label_rows(inputs);
  std::map<std::size_t, double> of_rank_0;
  for (const LabelRow& row : rows) {
    if (row.expected.size() != 1) return {};
    if (row.rank == 0) of_rank_0[row.place] = row.expected[0];
  }
  std::size_t wrong = 0;
  for (const LabelRow& row : rows) {
    const auto found = of_rank_0.find(row.place);
    if (row.rank == 0 ? row.actual[0] != row.expected[0] : found == of_rank_0.end() || row.actual[0] != found->second)
      return {};
    wrong += row.actual[0] != row.expected[0];
  }
  if (rows.empty() || wrong < 2) return {};
  // Labels that repeat, as classes do, are those of rank 0 by chance.
  std::set<double> values;
  for (const LabelRow& row : rows) values.insert(row.expected[0]);
  if (values.size() != rows.size()) return {};
  return told("on every rank but 0 the labels are those of rank 0's rows, {} in all", wrong);
}

/// Do rows that hold the same agree in their scores and losses? Else it is not what some rows hold that makes the
/// difference. Nothing where no row tells.
std::optional<bool> others_agree(const CauseInputs& inputs) {
  constexpr double kBeyondRounding = 1e-3;
  const std::string& where = inputs.difference.divergence.where;
  bool told = false;
  const auto held_a = rows_by_sample(*inputs.reference, Phase::inputs, where),
             held_b = rows_by_sample(*inputs.cell, Phase::inputs, where);
  for (const auto& [phase, name] : {std::pair(Phase::loss, "row_losses"), {Phase::scores, "energies"}}) {
    const auto made_a = rows_by_sample(*inputs.reference, phase, name),
               made_b = rows_by_sample(*inputs.cell, phase, name);
    for (const auto& [id, made] : made_b) {
      const std::vector<double>& row = made.values;
      const auto expected = made_a.find(id), same_a = held_a.find(id), same_b = held_b.find(id);
      if (expected == made_a.end() || same_a == held_a.end() || same_b == held_b.end() ||
          same_a->second.values != same_b->second.values)
        continue;
      const std::vector<double>& wanted = expected->second.values;
      if (wanted.size() != row.size()) continue;
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (std::abs(row[i] - wanted[i]) > kBeyondRounding * std::max(1.0, std::abs(wanted[i]))) return false;
        told = true;
      }
    }
  }
  return told ? std::optional(true) : std::nullopt;
}

/// Some rows beside others that are right, in themselves and in what was made of them.
Answer row_content(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  const auto expected = rows_by_sample(*inputs.reference, Phase::inputs, it.where);
  std::size_t wrong = 0, all = 0;
  for (const auto& [id, row] : rows_by_sample(*inputs.cell, Phase::inputs, it.where)) {
    const auto found = expected.find(id);
    all += found != expected.end();
    wrong += found != expected.end() && found->second.values != row.values;
  }
  if (wrong == 0 || wrong == all || others_agree(inputs) != std::optional(true)) return {};
  return told(kFits, "{} of sample {} are not the reference's: {}", it.where, it.sample.value_or(-1),
              expected_found(it.expected, it.actual));
}

/// Rows of one rank alone hold something else than the reference's rows of the same samples, where other ranks' rows
/// agree.
Answer content_of_one_rank(const CauseInputs& inputs) {
  if (others_agree(inputs) == std::optional(false)) return {};
  const std::string& where = inputs.difference.divergence.where;
  const auto expected = rows_by_sample(*inputs.reference, Phase::inputs, where);
  struct Rows {
    std::size_t wrong = 0, all = 0;
  };
  std::map<int, Rows> by_rank;
  for (const SampleRow& row : sample_rows(*inputs.cell, Phase::inputs, where)) {
    const auto found = expected.find(row.id);
    if (found == expected.end()) return {};
    ++by_rank[row.rank].all;
    by_rank[row.rank].wrong += found->second.values != row.values;
  }
  std::vector<int> wrong_ranks;
  std::size_t right_elsewhere = 0;
  for (const auto& [rank, rows] : by_rank) {
    if (rows.wrong > 0)
      wrong_ranks.push_back(rank);
    else
      right_elsewhere += rows.all;
  }
  if (wrong_ranks.size() != 1 || right_elsewhere == 0) return {};
  const auto& [wrong, of_wrong] = by_rank.at(wrong_ranks.front());
  return of_rank(told("{} of {} of the rows of rank {} are not the reference's {} of the same samples; all {} rows of "
                      "the other ranks are",
                      wrong, of_wrong, wrong_ranks.front(), where, right_elsewhere),
                 wrong_ranks);
}

}  // namespace

std::span<const Hypothesis> score_hypotheses() {
  static constexpr Hypothesis kTable[] = {
      {"precision-differs", kInScores, kConfigs, kStrong, scores_in_other_precision},
      {"local-negatives", kInScores, kCandidates | kRanks, kExact, local_negatives, "negatives"},
      {"negatives-missing", kInScores, kCandidates | kRuns, 0.95, negatives_missing, "negatives"},
      {"candidates-misordered", kInScores, kCandidates | kScores, kExact, candidates_misordered},
      {"candidates-misordered", kInScores, kCandidates | kScores, kStrong, candidates_shifted},
      {"padding-not-masked", kInScores, kCandidates | kValues, kExact, padding_is_candidate},
      {"sample-content", kInScores, kCandidates | kScores, 0.95, sample_content},
      {"candidates-in-low-precision", kInScores, kCandidates | kScores, kFits, candidates_in_low_precision},
      {"label-offset", kInLoss, kCandidates | kScores, kExact, label_offset},
      {"padding-not-masked", kInLoss, kCandidates | kScores, kExact, padding_not_masked},
      {"duplicates-not-masked", kInLoss, kCandidates | kScores, kExact, duplicates_not_masked, "mask_duplicates"},
      {"temperature-applied-twice", kInLoss, kCandidates | kScores, kExact, temperature_applied_twice},
      {"precision-differs", kInLoss, kNothing, kFits, loss_in_other_precision},
      {"labels-shifted-at-shard-edge", kInInputs, kRuns, kExact, labels_shifted_at_shard_edge},
      {"label-offset", kInInputs, kRuns, kExact, labels_without_offset},
      {"sample-content", kInInputs, kRuns, kFits, row_content},
      {"sample-content", kInInputs, kRanks, kFits, content_of_one_rank},
  };
  return kTable;
}

}  // namespace lockstep::causes
