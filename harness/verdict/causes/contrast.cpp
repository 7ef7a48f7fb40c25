// Causes of a wrong loss over candidates whose scores are right, in any trainer: the recorded row losses are recomputed from the recorded
// scores under each hypothesis. Hypotheses count only where the plain formula gives the reference's own row losses, alone or beside a rest that
// a row has at any layout.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "harness/verdict/causes/loss_evidence.h"
#include "harness/verdict/causes/rules.h"
#include "harness/verdict/causes/score_evidence.h"

namespace lockstep::causes {
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
  std::vector<CandidateRows> ranks;
  if (!values.scores || values.losses.size() != values.scores->columns.size()) return ranks;
  std::vector<int64_t> first_ids;
  for (const ScoreRow& row : values.scores->rows) {
    if (row.rank == 0) first_ids.push_back(row.row_id);
  }
  std::size_t offset = 0;
  for (std::size_t rank = 0; rank < values.losses.size(); ++rank) {
    CandidateRows own;
    for (const ScoreRow& row : values.scores->rows) {
      if (row.rank == static_cast<int>(rank)) own.rows.push_back(&row);
    }
    own.columns = &values.scores->columns[rank];
    own.first_ids = first_ids;
    own.loss = &values.losses[rank];
    own.offset = offset;
    offset += own.rows.size();
    if (own.loss->row_losses.size() != own.rows.size()) return {};
    ranks.push_back(std::move(own));
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
  return static_cast<std::size_t>(std::find(columns.begin(), columns.end(), id) - columns.begin());
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
  const auto count = static_cast<int64_t>(columns.size());
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
  for (std::size_t j = 0; j < columns.size(); ++j) {
    if (counts(j)) most = std::max(most, formula.sign * scores[j] / tau);
  }
  for (std::size_t j = 0; j < columns.size(); ++j) {
    if (counts(j)) sum += std::exp(formula.sign * scores[j] / tau - most);
  }
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

/// Do all recorded row losses follow the formula, with the rest of their samples? A row that does not count may have a loss of 0.
bool follows(const ForcedValues& values, const Formula& formula, const Rest& rest = {}) {
  bool any = false;
  for (const CandidateRows& rank : rank_rows(values)) {
    for (std::size_t row = 0; row < rank.rows.size(); ++row) {
      const double recorded = rank.loss->row_losses[row];
      if (recorded == 0) continue;
      any = true;
      const auto beside = rest.find(rank.rows[row]->row_id);
      const double gap = std::abs(row_loss(rank, row, formula) + (beside == rest.end() ? 0 : beside->second) - recorded);
      if (!(gap <= tolerance_of(values, temperature_of(*rank.loss)))) return false;
    }
  }
  return any;
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

/// The formula changed so that the cell follows it where it does not follow the plain one.
bool follows_instead(const CauseInputs& inputs, const std::function<void(Formula&)>& change) {
  const auto as_is = plain(inputs);
  if (!as_is || follows(inputs.forced->cell, as_is->formula, as_is->rest)) return false;
  Formula changed = as_is->formula;
  change(changed);
  return follows(inputs.forced->cell, changed, as_is->rest);
}

std::optional<Cause> label_offset(const CauseInputs& inputs) {
  const auto told = [&](const std::string& which) {
    return made("label-offset", kExact,
                fmt::format("the recorded row losses are those of {}; {}", which, losses_text(inputs)));
  };
  if (follows_instead(inputs, [](Formula& f) { f.local_label = true; })) {
    return told("the row's place on its rank as the column of its label, without the rank's offset");
  }
  for (const int shift : {1, -1}) {
    if (follows_instead(inputs, [&](Formula& f) { f.label_shift = shift; })) {
      return told(fmt::format("a label {} column from the row's own", shift));
    }
  }
  for (const RankLoss& rank : inputs.forced ? inputs.forced->cell.losses : std::vector<RankLoss>{}) {
    const auto rows = static_cast<int>(rank.row_losses.size());
    for (const int shift : {rows, -rows}) {
      if (rows > 1 && follows_instead(inputs, [&](Formula& f) { f.label_shift = shift; })) {
        return told(fmt::format("a label {} columns from the row's own, another rank's", shift));
      }
    }
  }
  return std::nullopt;
}

std::optional<Cause> padding_not_masked(const CauseInputs& inputs) {
  if (!follows_instead(inputs, [](Formula& f) { f.padding = true; })) return std::nullopt;
  return made("padding-not-masked", kExact,
              "the recorded row losses count padded columns as candidates; " + losses_text(inputs));
}

std::optional<Cause> duplicates_not_masked(const CauseInputs& inputs) {
  const auto as_is = plain(inputs);
  if (!as_is || !as_is->formula.mask_duplicates) return std::nullopt;
  if (!follows_instead(inputs, [](Formula& f) { f.mask_duplicates = false; })) return std::nullopt;
  return made("duplicates-not-masked", kExact,
              "the recorded row losses count candidates with the row's own sample id as negatives; " +
                  losses_text(inputs));
}

std::optional<Cause> temperature_applied_twice(const CauseInputs& inputs) {
  if (!inputs.forced || inputs.forced->cell.losses.empty() || temperature_of(inputs.forced->cell.losses[0]) == 1) return std::nullopt;
  if (!follows_instead(inputs, [](Formula& f) { f.temperature_power = 2; })) return std::nullopt;
  return made("temperature-applied-twice", kExact,
              fmt::format("the recorded row losses are those of scores divided by tau^2, tau = {}; {}",
                          short_number(inputs.forced->cell.losses[0].temperature), losses_text(inputs)));
}

constexpr Rule kContrastRules[] = {label_offset, padding_not_masked, duplicates_not_masked, temperature_applied_twice};

}  // namespace

std::span<const Rule> contrast_rules() { return kContrastRules; }

}  // namespace lockstep::causes
