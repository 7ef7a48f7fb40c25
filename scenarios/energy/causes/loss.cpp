// Causes of a wrong loss of the energy model whose energies are right: the recorded row losses are recomputed
// from the recorded energies under each hypothesis. Hypotheses count only where the plain formula gives the
// reference's own row losses.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "harness/verdict/causes/loss_evidence.h"
#include "harness/verdict/causes/step_gradients.h"
#include "scenarios/energy/causes/rules.h"
#include "scenarios/energy/config.h"

namespace lockstep::causes {
namespace {

/// The rows of one rank with their candidates.
struct EnergyRows {
  std::vector<const ScoreRow*> rows;
  const std::vector<int64_t>* columns = nullptr;
  std::size_t offset = 0;  ///< where this rank's own candidates begin, if all ranks' are there
  std::vector<int64_t> first_ids = {};  ///< of rank 0's rows
  const RankLoss* loss = nullptr;
};

std::vector<EnergyRows> rank_rows(const ForcedValues& values) {
  std::vector<EnergyRows> ranks;
  if (!values.scores || values.losses.size() != values.scores->columns.size()) return ranks;
  std::vector<int64_t> first_ids;
  for (const ScoreRow& row : values.scores->rows) {
    if (row.rank == 0) first_ids.push_back(row.row_id);
  }
  std::size_t offset = 0;
  for (std::size_t rank = 0; rank < values.losses.size(); ++rank) {
    EnergyRows own;
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
};

/// Of that id: the place where it is expected, if it stands there, else the first.
std::size_t column_of(const std::vector<int64_t>& columns, int64_t id, std::size_t expected) {
  if (expected < columns.size() && columns[expected] == id) return expected;
  return static_cast<std::size_t>(std::find(columns.begin(), columns.end(), id) - columns.begin());
}

/// The column of the row's own candidate.
std::size_t own_column(const EnergyRows& rank, std::size_t row) {
  return column_of(*rank.columns, rank.rows[row]->row_id, rank.offset + row);
}

/// Where candidates stand rank by rank, the column of the row's place on its rank; in another order the one that rank 0's row of
/// that place has.
std::size_t column_without_offset(const EnergyRows& rank, std::size_t row) {
  return row < rank.first_ids.size() ? column_of(*rank.columns, rank.first_ids[row], row) : row;
}

double row_loss(const EnergyRows& rank, std::size_t row, const Formula& formula) {
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
  const double tau = std::pow(rank.loss->temperature, formula.temperature_power);
  const auto counts = [&](std::size_t j) {
    if (columns[j] == -1 && !formula.padding) return false;
    return !(formula.mask_duplicates && j != target && columns[j] == columns[own]);
  };
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  const std::vector<double>& energies = rank.rows[row]->values;
  for (std::size_t j = 0; j < columns.size(); ++j) {
    if (counts(j)) most = std::max(most, -energies[j] / tau);
  }
  for (std::size_t j = 0; j < columns.size(); ++j) {
    if (counts(j)) sum += std::exp(-energies[j] / tau - most);
  }
  return most + std::log(sum) + energies[target] / tau;
}

/// What rounding explains of a row's loss.
double tolerance_of(const ForcedValues& values, double temperature) {
  const double size = 1 + largest_score(*values.scores) / std::max(temperature * temperature, 1e-6);
  return 256 * values.epsilon * size;
}

/// Do all recorded row losses follow the formula? A row that does not count may have a loss of 0.
bool follows(const ForcedValues& values, const Formula& formula) {
  const std::vector<EnergyRows> ranks = rank_rows(values);
  bool any = false;
  for (const EnergyRows& rank : ranks) {
    for (std::size_t row = 0; row < rank.rows.size(); ++row) {
      const double recorded = rank.loss->row_losses[row];
      if (recorded == 0) continue;
      any = true;
      const double gap = std::abs(row_loss(rank, row, formula) - recorded);
      if (!(gap <= tolerance_of(values, rank.loss->temperature))) return false;
    }
  }
  return any;
}

/// The formula as the configs want it, if it is the one that the reference follows.
std::optional<Formula> plain(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::loss || !inputs.forced || !inputs.forced->reference.scores ||
      !inputs.forced->cell.scores) {
    return std::nullopt;
  }
  Formula formula;
  formula.mask_duplicates = inputs.reference_config && energy(*inputs.reference_config).mask_duplicates;
  return follows(inputs.forced->reference, formula) ? std::optional(formula) : std::nullopt;
}

/// The formula changed so that the cell follows it where it does not follow the plain one.
bool follows_instead(const CauseInputs& inputs, const std::function<void(Formula&)>& change) {
  const auto formula = plain(inputs);
  if (!formula || follows(inputs.forced->cell, *formula)) return false;
  Formula changed = *formula;
  change(changed);
  return follows(inputs.forced->cell, changed);
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
  const auto formula = plain(inputs);
  if (!formula || !formula->mask_duplicates) return std::nullopt;
  if (!follows_instead(inputs, [](Formula& f) { f.mask_duplicates = false; })) return std::nullopt;
  return made("duplicates-not-masked", kExact,
              "the recorded row losses count candidates with the row's own sample id as negatives; " +
                  losses_text(inputs));
}

std::optional<Cause> temperature_applied_twice(const CauseInputs& inputs) {
  if (!follows_instead(inputs, [](Formula& f) { f.temperature_power = 2; })) return std::nullopt;
  return made("temperature-applied-twice", kExact,
              fmt::format("the recorded row losses are those of logits -E / tau^2, tau = {}; {}",
                          short_number(inputs.forced->cell.losses[0].temperature), losses_text(inputs)));
}

/// The own slice put back behind the gather, and the loss multiplied by the world size for it.
std::optional<Cause> own_slice_times_world_in_loss(const CauseInputs& inputs) {
  const double world = world_size_of(inputs);
  if (world < 2 || !loss_is(inputs, world)) return std::nullopt;
  const auto gradients = gradients_of(inputs);
  const Signatures signatures = gradients->signatures();
  const bool own_slice = signatures.fits(EnergyRole::context, 1) && signatures.fits(EnergyRole::action, 1) &&
                         signatures.fits(EnergyRole::head, world) &&
                         signatures.fits(EnergyRole::temperature, world) &&
                         signatures.tells(EnergyRole::head);
  if (!own_slice || signatures.all_fit(world)) return std::nullopt;
  return made("gather-own-slice-times-world", kExact,
              fmt::format("the loss is {} times the reference's; {}",
                          factor_text(world, world_size_of(inputs)), gradients->text()));
}

constexpr Rule kEnergyLossRules[] = {label_offset, padding_not_masked, duplicates_not_masked, temperature_applied_twice,
                           own_slice_times_world_in_loss};

}  // namespace

std::span<const Rule> energy_loss_rules() { return kEnergyLossRules; }

}  // namespace lockstep::causes
