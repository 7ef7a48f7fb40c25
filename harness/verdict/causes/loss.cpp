// Causes of a wrong loss that any trainer may have: its rows are right, and what was made of them is not; or
// it is scaled.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/verdict/causes/loss_evidence.h"
#include "harness/verdict/causes/rules.h"
#include "harness/verdict/causes/step_gradients.h"
#include "harness/verdict/compare/step_records.h"
#include "harness/verdict/trace/record_values.h"

namespace lockstep::causes {
namespace {

/// Row losses are right, and each rank's loss is their plain mean although ranks hold unequal numbers of
/// rows.
std::optional<Cause> mean_of_means(const CauseInputs& inputs) {
  const std::vector<RankRows> ranks = rows_that_agree(inputs);
  if (ranks.empty()) return std::nullopt;
  std::size_t fewest = std::numeric_limits<std::size_t>::max(), most = 0;
  for (const RankRows& rows : ranks) {
    double sum = 0;
    std::size_t counted_rows = 0;
    for (const double loss : rows.rank.row_losses) {
      sum += loss;
      counted_rows += loss != 0;
    }
    fewest = std::min(fewest, counted_rows);
    most = std::max(most, counted_rows);
    const double mean = counted_rows > 0 ? sum / static_cast<double>(counted_rows) : 0;
    if (!(std::abs(mean - rows.rank.loss) <= inputs.forced->loss_band + 1e-12)) return std::nullopt;
  }
  if (fewest == most) return std::nullopt;
  return made(
      "mean-of-means", kExact,
      fmt::format("each rank's loss is the mean over its own rows, and the ranks have {} to {} rows that "
                  "count: {}",
                  fewest, most, losses_text(inputs)));
}

/// Each rank divides the losses of its rows by a number of its own, and these add up to what the reference divides all
/// rows by: counts of what each holds, of valid tokens for example.
std::optional<Cause> mean_of_weighted_means(const CauseInputs& inputs) {
  const std::vector<RankRows> ranks = rows_that_agree(inputs);
  if (ranks.size() < 2 || !inputs.forced->reference.loss || mean_of_means(inputs)) return std::nullopt;
  double all_rows = 0, divisors = 0, fewest = std::numeric_limits<double>::infinity(), most = 0;
  for (const RankRows& rows : ranks) {
    double sum = 0;
    for (const double loss : rows.rank.row_losses) sum += loss;
    const double divisor = sum / rows.rank.loss;
    if (!(divisor > 0) || !std::isfinite(divisor)) return std::nullopt;
    all_rows += sum;
    divisors += divisor;
    fewest = std::min(fewest, divisor);
    most = std::max(most, divisor);
  }
  constexpr double kEqual = 1e-4;
  const double whole = all_rows / *inputs.forced->reference.loss;
  if (!(std::abs(divisors - whole) <= kEqual * whole) || most - fewest <= 100 * kEqual * most) return std::nullopt;
  return made("mean-of-means", kExact,
              fmt::format("row losses are the reference's; ranks divide them by {:.6g} to {:.6g}, which sum to the reference's divisor {:.6g}: "
                          "{}",
                          fewest, most, whole, losses_text(inputs)));
}

/// What a row of the batch counts in the loss of all ranks: recorded, or else told from the reference's loss and rows.
double weight_of_a_row(const CauseInputs& inputs) {
  const std::vector<RankLoss>& reference = inputs.forced->reference.losses;
  const double recorded = reference.front().row_weight / static_cast<double>(reference.size());
  if (std::isfinite(recorded)) return recorded;
  double sum = 0;
  for (const RankLoss& rank : reference) {
    for (const double row : rank.row_losses) sum += row;
  }
  return inputs.forced->reference.loss.value_or(std::nan("")) / sum;
}

std::optional<Cause> rows_left_out(const CauseInputs& inputs) {
  const std::vector<RankRows> ranks = rows_that_agree(inputs);
  // Of a trainer that is not ours nobody knows whether rows may not count; one that leaves them out by design does so in
  // the reference, too.
  const bool known = inputs.cell_config || !inputs.trainer;
  if (ranks.empty() || !known || rows_may_not_count(inputs) || mean_of_means(inputs) ||
      mean_of_weighted_means(inputs)) {
    return std::nullopt;
  }
  const auto world = static_cast<double>(ranks.size());
  const double weight = weight_of_a_row(inputs) * world;
  if (!std::isfinite(weight)) return std::nullopt;
  std::size_t without = 0, rows = 0, wrong_rank = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const double loss = ranks[r].rank.loss;
    double sum = 0;
    for (const double row : ranks[r].expected) sum += row;
    rows += ranks[r].expected.size();
    const double band = world * inputs.forced->loss_band + 1e-12, gap = weight * sum - loss;
    if (std::abs(gap) <= band) continue;
    const bool all = std::abs(loss) <= band;
    if (!all && std::ranges::none_of(ranks[r].expected,
                                     [&](double row) { return std::abs(gap - weight * row) <= band; })) {
      return std::nullopt;
    }
    ++without;
    wrong_rank = r;
  }
  if (without == 0) return std::nullopt;
  return made(
      "rows-left-out", 0.95,
      fmt::format("the loss of {} (the last is rank {}) leaves out one row or all rows, at the weight {} of "
                  "{} rows; {}",
                  counted(static_cast<int64_t>(without), "rank"), wrong_rank, short_number(weight), rows,
                  losses_text(inputs)));
}

/// Does the factor stand in the loss and in every gradient?
bool stands_everywhere(const CauseInputs& inputs, double factor) {
  return loss_is(inputs, factor) && gradients_of(inputs)->signatures().all_fit(factor);
}

/// A factor on the loss that stands in every gradient as well.
std::optional<Cause> scaled_loss(const CauseInputs& inputs, const char* code, double factor) {
  if (world_size_of(inputs) < 2 || !stands_everywhere(inputs, factor)) return std::nullopt;
  return made(code, kExact,
              fmt::format("loss and every gradient are {} times the reference's",
                          factor_text(factor, world_size_of(inputs))));
}

std::optional<Cause> loss_times_world(const CauseInputs& inputs) {
  return scaled_loss(inputs, "loss-times-world", world_size_of(inputs));
}

std::optional<Cause> loss_over_world(const CauseInputs& inputs) {
  return scaled_loss(inputs, "loss-over-world", 1.0 / world_size_of(inputs));
}

std::optional<Cause> loss_not_scaled_by_accumulation(const CauseInputs& inputs) {
  const auto micro_steps = static_cast<double>(inputs.cell_facts.accumulation);
  if (micro_steps < 2 || !stands_everywhere(inputs, micro_steps)) return std::nullopt;
  return made("accumulation-not-scaled", kExact,
              fmt::format("loss and every gradient are {} times the reference's: the number of micro-steps", micro_steps));
}

/// Runs that declare two precisions, and losses no further apart than the coarser one rounds.
std::optional<Cause> loss_in_other_precision(const CauseInputs& inputs) {
  const double expected = inputs.reference_facts.working_epsilon, actual = inputs.cell_facts.working_epsilon;
  if (inputs.cell_config || expected == actual || inputs.difference.phase != Phase::loss) return std::nullopt;
  // What one header alone declares is not known to differ.
  const auto declared = [](const std::optional<StepOfRun>& step) { return step && step->declared ? step->declared->precision : std::string(); };
  const std::string of_reference = declared(inputs.reference), of_cell = declared(inputs.cell);
  if (of_reference.empty() || of_cell.empty() || of_reference == of_cell) return std::nullopt;
  const auto loss_of = [&](const ForcedValues* values, const std::optional<StepOfRun>& step) { return values ? values->loss : step ? mean_loss(*step) : std::nullopt; };
  const std::optional<double> reference = loss_of(inputs.forced ? &inputs.forced->reference : nullptr, inputs.reference),
                              cell = loss_of(inputs.forced ? &inputs.forced->cell : nullptr, inputs.cell);
  if (!reference || !cell) return std::nullopt;
  // Roundings of some ten operations.
  constexpr double kMostUnits = 64;
  const double units = std::abs(*cell - *reference) / (std::max(expected, actual) * std::max(1.0, std::abs(*reference)));
  if (!(units <= kMostUnits)) return std::nullopt;
  return made("precision-differs", kFits,
              fmt::format("the runs' headers declare the precisions {} and {}, and losses lie {:.2g} units of the coarser one apart", of_reference, of_cell, units));
}

/// Rows with padding lose something else, and rows without it what the reference's lose.
std::optional<Cause> mask_ignored_in_rows(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::loss || !inputs.forced) return std::nullopt;
  constexpr double kSame = 1e-5;
  struct Expected {
    double loss = 0;
    bool padded = false;
  };
  std::map<int64_t, Expected> expected;
  for (const RankLoss& rank : inputs.forced->reference.losses) {
    const std::size_t rows = rank.row_ids.size();
    if (rows == 0 || rank.row_losses.size() != rows || rank.row_counts.size() != rows || rank.row_widths.size() != rows) return std::nullopt;
    for (std::size_t i = 0; i < rows; ++i) expected[rank.row_ids[i]] = {rank.row_losses[i], rank.row_counts[i] < rank.row_widths[i]};
  }
  std::size_t wrong = 0, right_with_padding = 0;
  std::map<std::size_t, std::size_t> whole;  // by rank
  std::set<std::size_t> ranks;
  for (std::size_t r = 0; r < inputs.forced->cell.losses.size(); ++r) {
    const RankLoss& rank = inputs.forced->cell.losses[r];
    if (rank.row_ids.size() != rank.row_losses.size()) return std::nullopt;
    for (std::size_t i = 0; i < rank.row_ids.size(); ++i) {
      const auto found = expected.find(rank.row_ids[i]);
      if (found == expected.end()) return std::nullopt;
      const bool same = std::abs(rank.row_losses[i] - found->second.loss) <= kSame * std::max(1.0, std::abs(found->second.loss));
      if (!same && !found->second.padded) return std::nullopt;
      wrong += !same;
      right_with_padding += same && found->second.padded;
      whole[r] += !found->second.padded;
      if (!same) ranks.insert(r);
    }
  }
  // Of some ranks alone, one row may be as it should by chance.
  std::size_t beside = 0;
  for (const std::size_t rank : ranks) beside += whole[rank];
  if (wrong < 2 || beside == 0 || (beside == 1 && right_with_padding > 0)) return std::nullopt;
  return made("mask-ignored", 0.9,
              fmt::format("{} rows with padding, on rank {}, have other losses than the reference's, and the {} rows without padding there have the same", wrong, fmt::join(ranks, ", "), beside));
}

/// Buffers of one name and rank, and the rows of that rank.
struct RankBuffer {
  std::vector<double> values;
  double rows = 0;
};

/// A buffer that differs between ranks, and whose mean over ranks by their rows is the reference's: a mean that each rank took of its own rows. What the
/// loss has of it is not known; of BatchNorm's statistics it is.
std::optional<Cause> statistics_in_a_buffer(const CauseInputs& inputs) {
  const Phase phase = inputs.difference.phase;
  if ((phase != Phase::loss && phase != Phase::local_gradients && phase != Phase::scores) || !inputs.reference || !inputs.cell || inputs.cell->ranks.size() < 2) return std::nullopt;
  constexpr double kSame = 1e-4, kApart = 1e-3;
  for (const Record& record : inputs.reference->ranks[0].records) {
    const auto expected = record.phase == Phase::parameters && record.name.starts_with("buffer/") ? values_of(record) : std::nullopt;
    if (!expected) continue;
    std::vector<RankBuffer> ranks;
    double rows = 0;
    for (const StepRecords& rank : inputs.cell->ranks) {
      RankBuffer own;
      for (const Record& each : rank.records) {
        if (each.phase == Phase::samples) own.rows = static_cast<double>(each.ids.size());
        if (each.phase == Phase::parameters && each.name == record.name) own.values = values_of(each).value_or(std::vector<double>{});
      }
      rows += own.rows;
      ranks.push_back(std::move(own));
    }
    std::vector<double> mean(expected->size(), 0);
    bool known = rows > 0, apart = false;
    for (const RankBuffer& own : ranks) {
      known = known && own.values.size() == mean.size();
      for (std::size_t i = 0; known && i < mean.size(); ++i) mean[i] += own.values[i] * own.rows / rows;
    }
    if (!known) continue;
    const double size = norm(*expected);
    for (const RankBuffer& own : ranks) apart = apart || distance(own.values, *expected) > kApart * size;
    if (!apart || !(distance(mean, *expected) <= kSame * size)) continue;
    const bool of_batch_norm = record.name.ends_with("running_mean") || record.name.ends_with("running_var");
    return made(of_batch_norm ? "batch-norm-local" : "local-statistics", of_batch_norm ? 0.9 : kFits, fmt::format("{} differs between ranks, and its mean over them by rows is the reference's: each rank took the mean of its own rows; {}",
                                                     record.name, losses_text(inputs)));
  }
  return std::nullopt;
}

constexpr Rule kLossRules[] = {mask_ignored_in_rows, statistics_in_a_buffer, mean_of_means,    mean_of_weighted_means,  rows_left_out,    loss_times_world,
                           loss_over_world,  loss_not_scaled_by_accumulation, loss_in_other_precision};

}  // namespace

std::span<const Rule> loss_rules() { return kLossRules; }

}  // namespace lockstep::causes
