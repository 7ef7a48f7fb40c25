// Causes of a wrong loss whose energies are right: the recorded row losses are recomputed from the recorded
// energies under each hypothesis. Hypotheses count only where the plain formula gives the reference's own row
// losses.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "harness/causes/rules.h"
#include "scenarios/energy/config.h"
#include "harness/causes/signatures.h"

namespace lockstep::causes {
namespace {

/// The rows of one rank with their candidates.
struct RankRows {
  std::vector<const EnergyRow*> rows;
  const std::vector<int64_t>* columns = nullptr;
  std::size_t offset = 0;  ///< where this rank's own candidates begin, if all ranks' are there
  const RankLoss* loss = nullptr;
};

std::vector<RankRows> rank_rows(const ForcedValues& values) {
  std::vector<RankRows> ranks;
  if (!values.energies || values.losses.size() != values.energies->columns.size()) return ranks;
  std::size_t offset = 0;
  for (std::size_t rank = 0; rank < values.losses.size(); ++rank) {
    RankRows own;
    for (const EnergyRow& row : values.energies->rows) {
      if (row.rank == static_cast<int>(rank)) own.rows.push_back(&row);
    }
    own.columns = &values.energies->columns[rank];
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
  bool local_label = false;  ///< the row's place on its rank as the column
  bool padding = false;      ///< padding counts as candidates
  bool mask_duplicates = false;
  double temperature_power = 1;
};

/// The column of the row's own candidate.
std::size_t own_column(const RankRows& rank, std::size_t row) {
  const std::vector<int64_t>& columns = *rank.columns;
  const int64_t id = rank.rows[row]->row_id;
  if (rank.offset + row < columns.size() && columns[rank.offset + row] == id) return rank.offset + row;
  return static_cast<std::size_t>(std::find(columns.begin(), columns.end(), id) - columns.begin());
}

double row_loss(const RankRows& rank, std::size_t row, const Formula& formula) {
  const std::vector<int64_t>& columns = *rank.columns;
  const std::size_t own = own_column(rank, row);
  const auto count = static_cast<int64_t>(columns.size());
  if (own >= columns.size() || count == 0) return std::numeric_limits<double>::quiet_NaN();
  std::size_t target = own;
  if (formula.local_label) target = row;
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
  const double size = 1 + largest_energy(*values.energies) / std::max(temperature * temperature, 1e-6);
  return 256 * values.epsilon * size;
}

/// Do all recorded row losses follow the formula? A row that does not count may have a loss of 0.
bool follows(const ForcedValues& values, const Formula& formula) {
  const std::vector<RankRows> ranks = rank_rows(values);
  bool any = false;
  for (const RankRows& rank : ranks) {
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
  if (inputs.difference.phase != Phase::loss || !inputs.forced || !inputs.forced->reference.energies ||
      !inputs.forced->cell.energies) {
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

std::string losses_text(const CauseInputs& inputs) {
  return fmt::format("loss {} where the reference has {}", short_number(inputs.forced->cell.loss.value_or(0)),
                     short_number(inputs.forced->reference.loss.value_or(0)));
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
      return told(fmt::format("a label {} column beside the row's own", shift));
    }
  }
  for (const RankLoss& rank : inputs.forced ? inputs.forced->cell.losses : std::vector<RankLoss>{}) {
    const auto rows = static_cast<int>(rank.row_losses.size());
    for (const int shift : {rows, -rows}) {
      if (rows > 1 && follows_instead(inputs, [&](Formula& f) { f.label_shift = shift; })) {
        return told(fmt::format("a label {} columns beside the row's own, another rank's", shift));
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

/// Row losses are right, and each rank's loss is their plain mean although ranks hold unequal numbers of
/// rows.
std::optional<Cause> mean_of_means(const CauseInputs& inputs) {
  const auto formula = plain(inputs);
  if (!formula || !follows(inputs.forced->cell, *formula)) return std::nullopt;
  std::size_t fewest = std::numeric_limits<std::size_t>::max(), most = 0;
  for (const RankLoss& rank : inputs.forced->cell.losses) {
    double sum = 0;
    std::size_t counted_rows = 0;
    for (const double loss : rank.row_losses) {
      sum += loss;
      counted_rows += loss != 0;
    }
    fewest = std::min(fewest, counted_rows);
    most = std::max(most, counted_rows);
    const double mean = counted_rows > 0 ? sum / static_cast<double>(counted_rows) : 0;
    if (!(std::abs(mean - rank.loss) <= inputs.forced->loss_band + 1e-12)) return std::nullopt;
  }
  if (fewest == most) return std::nullopt;
  return made(
      "mean-of-means", kExact,
      fmt::format("each rank's loss is the mean over its own rows, and ranks have {} to {} of them that "
                  "count: {}",
                  fewest, most, losses_text(inputs)));
}

std::optional<Cause> rows_left_out(const CauseInputs& inputs) {
  const auto formula = plain(inputs);
  if (!formula || !inputs.cell_config || mean_of_means(inputs)) return std::nullopt;
  const std::vector<RankRows> ranks = rank_rows(inputs.forced->cell);
  const RankLoss& reference = inputs.forced->reference.losses[0];
  if (ranks.empty() || !follows(inputs.forced->cell, *formula)) return std::nullopt;
  const double world = static_cast<double>(ranks.size());
  const double weight =
      reference.row_weight * world / static_cast<double>(inputs.forced->reference.losses.size());
  std::size_t without = 0, rows = 0, wrong_rank = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    double sum = 0;
    for (std::size_t row = 0; row < ranks[r].rows.size(); ++row) sum += row_loss(ranks[r], row, *formula);
    rows += ranks[r].rows.size();
    const double band = world * inputs.forced->loss_band + 1e-12, gap = weight * sum - ranks[r].loss->loss;
    if (std::abs(gap) <= band) continue;
    bool explained = false;
    for (std::size_t row = 0; row < ranks[r].rows.size() && !explained; ++row) {
      explained = std::abs(gap - weight * row_loss(ranks[r], row, *formula)) <= band;
    }
    explained = explained || std::abs(ranks[r].loss->loss) <= band;
    if (!explained) return std::nullopt;
    ++without;
    wrong_rank = r;
  }
  if (without == 0 || energy(*inputs.cell_config).invalid_rows > 0) return std::nullopt;
  return made(
      "rows-left-out", 0.95,
      fmt::format("the loss of {} (rank {} last) is the sum over its rows without one or without any, at "
                  "the weight {} of {} rows; {}",
                  counted(static_cast<int64_t>(without), "rank"), wrong_rank, short_number(weight), rows,
                  losses_text(inputs)));
}

/// Loss of the cell over the reference's, if both are far enough from 0.
bool loss_is(const CauseInputs& inputs, double factor) {
  if (inputs.difference.phase != Phase::loss || !inputs.forced) return false;
  const auto &reference = inputs.forced->reference.loss, &cell = inputs.forced->cell.loss;
  if (!reference || !cell || std::abs(*reference) < 100 * inputs.forced->loss_band) return false;
  return std::abs(*cell - factor * *reference) <= (1 + std::abs(factor)) * inputs.forced->loss_band;
}

/// A factor on the loss that stands in every gradient as well.
std::optional<Cause> scaled_loss(const CauseInputs& inputs, const char* code, double factor) {
  if (!loss_is(inputs, factor) || world_size_of(inputs) < 2) return std::nullopt;
  const ForcedEvidence& forced = *inputs.forced;
  const bool local = !forced.local.tensors.empty();
  const std::vector<NamedTensor> mean = local ? mean_of_local(forced.cell) : forced.cell.gradients;
  const Signatures signatures(forced.reference.gradients, mean, local ? forced.local : forced.reduced);
  if (signatures.all_fit(factor)) {
    return made(code, kExact,
                fmt::format("loss and every gradient are {} times the reference's",
                            factor_text(factor, world_size_of(inputs))));
  }
  const bool own_slice = factor > 1 && signatures.fits(Role::context, 1) &&
                         signatures.fits(Role::action, 1) && signatures.fits(Role::head, factor) &&
                         signatures.fits(Role::temperature, factor) && signatures.tells(Role::head);
  if (!own_slice) return std::nullopt;
  return made(
      "gather-own-slice-times-world", kExact,
      fmt::format("the loss is {} times the reference's; {}", factor_text(factor, world_size_of(inputs)),
                  signature_text(local ? forced.local : forced.reduced, world_size_of(inputs))));
}

std::optional<Cause> loss_times_world(const CauseInputs& inputs) {
  return scaled_loss(inputs, "loss-times-world", world_size_of(inputs));
}

std::optional<Cause> loss_over_world(const CauseInputs& inputs) {
  return scaled_loss(inputs, "loss-over-world", 1.0 / world_size_of(inputs));
}

constexpr Rule kRules[] = {
    label_offset,  padding_not_masked, duplicates_not_masked, temperature_applied_twice,
    mean_of_means, rows_left_out,      loss_times_world,      loss_over_world};

}  // namespace

std::span<const Rule> loss_rules() { return kRules; }

}  // namespace lockstep::causes
