#include "harness/judge/causes/loss.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "harness/judge/causes/gradient.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/exact_runs.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/record.h"

// Causes of a wrong loss that any trainer may have: its rows are right, and what was made of them is not; or
// it is scaled.

namespace lockstep::causes {
namespace {

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

Answer rows_left_out(const CauseInputs& inputs) {
  const std::vector<RankRows> ranks = rows_that_agree(inputs);
  // Of a trainer that is not ours nobody knows whether rows may not count; one that leaves them out by design does so in
  // the reference, too.
  const bool known = inputs.cell_config || !inputs.trainer;
  if (ranks.empty() || !known || rows_may_not_count(inputs)) return {};
  const auto world = static_cast<double>(ranks.size());
  const double weight = weight_of_a_row(inputs) * world;
  if (!std::isfinite(weight)) return {};
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
      return {};
    }
    ++without;
    wrong_rank = r;
  }
  if (without == 0) return {};
  return told(
      "the loss of {} (the last is rank {}) leaves out one row or all rows, at the weight {} of "
      "{} rows; {}",
      counted(static_cast<int64_t>(without), "rank"), wrong_rank, short_number(weight), rows, losses_text(inputs));
}

/// Runs that declare two precisions, and losses no further apart than the coarser one rounds.
Answer loss_in_other_precision(const CauseInputs& inputs) {
  const double expected = inputs.reference_facts.working_epsilon, actual = inputs.cell_facts.working_epsilon;
  if (inputs.cell_config || expected == actual) return {};
  // What one header alone declares is not known to differ.
  const auto declared = [](const std::optional<StepOfRun>& step) { return step && step->declared ? step->declared->precision : std::string(); };
  const std::string of_reference = declared(inputs.reference), of_cell = declared(inputs.cell);
  if (of_reference.empty() || of_cell.empty() || of_reference == of_cell) return {};
  const auto loss_of = [&](const ForcedValues* values, const std::optional<StepOfRun>& step) { return values ? values->loss : step ? mean_loss(*step) : std::nullopt; };
  const std::optional<double> reference = loss_of(inputs.forced ? &inputs.forced->reference : nullptr, inputs.reference),
                              cell = loss_of(inputs.forced ? &inputs.forced->cell : nullptr, inputs.cell);
  if (!reference || !cell) return {};
  // Roundings of some ten operations.
  constexpr double kMostUnits = 64;
  const double units = std::abs(*cell - *reference) / (std::max(expected, actual) * std::max(1.0, std::abs(*reference)));
  if (!(units <= kMostUnits)) return {};
  return told(
      "the runs' headers declare the precisions {} and {}, and losses lie {:.2g} units of the coarser one apart",
      of_reference, of_cell, units);
}

/// Rows with padding lose something else, and rows without it what the reference's lose.
Answer mask_ignored_in_rows(const CauseInputs& inputs) {
  constexpr double kSame = 1e-5;
  struct Expected {
    double loss = 0;
    bool padded = false;
  };
  std::map<int64_t, Expected> expected;
  for (const RankLoss& rank : inputs.forced->reference.losses) {
    const std::size_t rows = rank.row_ids.size();
    if (rows == 0 || rank.row_losses.size() != rows || rank.row_counts.size() != rows || rank.row_widths.size() != rows)
      return {};
    for (std::size_t i = 0; i < rows; ++i) expected[rank.row_ids[i]] = {rank.row_losses[i], rank.row_counts[i] < rank.row_widths[i]};
  }
  std::size_t wrong = 0, right_with_padding = 0;
  std::map<std::size_t, std::size_t> whole;  // by rank
  std::set<std::size_t> ranks;
  for (std::size_t r = 0; r < inputs.forced->cell.losses.size(); ++r) {
    const RankLoss& rank = inputs.forced->cell.losses[r];
    if (rank.row_ids.size() != rank.row_losses.size()) return {};
    for (std::size_t i = 0; i < rank.row_ids.size(); ++i) {
      const auto found = expected.find(rank.row_ids[i]);
      if (found == expected.end()) return {};
      const bool same = std::abs(rank.row_losses[i] - found->second.loss) <= kSame * std::max(1.0, std::abs(found->second.loss));
      if (!same && !found->second.padded) return {};
      wrong += !same;
      right_with_padding += same && found->second.padded;
      whole[r] += !found->second.padded;
      if (!same) ranks.insert(r);
    }
  }
  // Of some ranks alone, one row may be as it should by chance.
  std::size_t beside = 0;
  for (const std::size_t rank : ranks) beside += whole[rank];
  if (wrong < 2 || beside == 0 || (beside == 1 && right_with_padding > 0)) return {};
  return told(
      "{} rows with padding, on rank {}, have other losses than the reference's, and the {} rows without padding there "
      "have the same",
      wrong, fmt::join(ranks, ", "), beside);
}

/// Buffers of one name and rank, and the rows of that rank.
struct RankBuffer {
  std::vector<double> values;
  double rows = 0;
};

/// A buffer that differs between ranks, and whose mean over ranks by their rows is the reference's: a mean that each rank took of its own rows. What the
/// loss has of it is not known; of BatchNorm's statistics it is.
Answer statistics_in_a_buffer(const CauseInputs& inputs) {
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
    return made(of_batch_norm ? "batch-norm-local" : "local-statistics", of_batch_norm ? 0.9 : kFits,
                "{} differs between ranks, and its mean over them by rows is the reference's: each rank took the mean "
                "of its own rows; {}",
                record.name, losses_text(inputs));
  }
  return {};
}

/// The reference's row losses by sample id, in the order in which its ranks have them.
std::map<int64_t, std::vector<double>> losses_by_sample(const ForcedValues& values) {
  std::map<int64_t, std::vector<double>> losses;
  for (const RankLoss& rank : values.losses) {
    for (std::size_t row = 0; row < rank.row_ids.size(); ++row) {
      losses[rank.row_ids[row]].push_back(rank.row_losses[row]);
    }
  }
  return losses;
}

/// What rounding explains of a row's loss, whose scores may differ by their band.
double tolerance_of(const ForcedEvidence& forced, const RankLoss& rank) {
  const double temperature = std::isfinite(rank.temperature) ? std::max(std::abs(rank.temperature), 1e-3) : 1;
  const double score = forced.reference.scores ? largest_score(*forced.reference.scores) : 0;
  double size = 1 + score / (temperature * temperature);
  for (const double loss : rank.row_losses) size = std::max(size, std::abs(loss));
  return 256 * forced.reference.epsilon * size + 2 * forced.score_band / temperature;
}

}  // namespace

bool loss_is(const CauseInputs& inputs, double factor) {
  if (inputs.difference.phase != Phase::loss || !inputs.forced) return false;
  const auto &reference = inputs.forced->reference.loss, &cell = inputs.forced->cell.loss;
  if (!reference || !cell || std::abs(*reference) < 100 * inputs.forced->loss_band) return false;
  // A factor so near to 1 that rounding leaves it open explains nothing.
  constexpr double kTelling = 16;
  if (std::abs(factor - 1) * std::abs(*reference) <= kTelling * inputs.forced->loss_band) return false;
  return std::abs(*cell - factor * *reference) <= (1 + std::abs(factor)) * inputs.forced->loss_band;
}

std::string losses_text(const CauseInputs& inputs) {
  return fmt::format("loss {} where the reference has {}", short_number(inputs.forced->cell.loss.value_or(0)),
                     short_number(inputs.forced->reference.loss.value_or(0)));
}

std::vector<RankRows> rows_that_agree(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::loss || !inputs.forced) return {};
  const std::map<int64_t, std::vector<double>> known = losses_by_sample(inputs.forced->reference);
  std::map<int64_t, std::size_t> seen;
  std::vector<RankRows> ranks;
  bool any = false;
  const bool as_differentiated = both_exact(inputs.reference_config, inputs.cell_config);
  for (const RankLoss& rank : inputs.forced->cell.losses) {
    if (rank.row_ids.size() != rank.row_losses.size()) return {};
    const double tolerance = tolerance_of(*inputs.forced, rank);
    RankRows own{rank, {}};
    for (std::size_t row = 0; row < rank.row_ids.size(); ++row) {
      const auto found = known.find(rank.row_ids[row]);
      const std::size_t occurrence = seen[rank.row_ids[row]]++;
      if (found == known.end() || occurrence >= found->second.size()) return {};
      own.expected.push_back(found->second[occurrence]);
      if (as_differentiated || rank.row_losses[row] == 0) continue;
      any = true;
      if (!(std::abs(rank.row_losses[row] - own.expected.back()) <= tolerance)) return {};
    }
    if (as_differentiated) {
      const double sum = std::accumulate(rank.row_losses.begin(), rank.row_losses.end(), 0.0);
      own.rank.loss = sum * rank.row_weight * static_cast<double>(inputs.forced->cell.losses.size());
      own.rank.row_losses = own.expected;
      any = true;
    }
    ranks.push_back(std::move(own));
  }
  return any ? ranks : std::vector<RankRows>{};
}

// Causes in one named part of the loss, an auxiliary one: its factor, its gradient.
namespace {

/// A named loss as one of the runs has it.
struct Term {
  std::string name;
  double value = 0;  ///< mean over ranks, weight included
};

std::vector<Term> terms_of(const ForcedValues& values) {
  std::map<std::string, std::pair<double, std::size_t>> sums;
  for (const RankLoss& rank : values.losses) {
    for (const auto& [name, value] : rank.terms) {
      const auto weight = rank.weights.find(name);
      sums[name].first += value * (weight == rank.weights.end() ? 1 : weight->second);
      ++sums[name].second;
    }
  }
  std::vector<Term> terms;
  for (const auto& [name, sum] : sums) {
    if (sum.second == values.losses.size()) terms.push_back({name, sum.first / static_cast<double>(sum.second)});
  }
  return terms;
}

/// What one over a number of ranks that share a mistake may be: of the world, or of a declared group.
std::map<double, std::string> factors_of(const CauseInputs& inputs) {
  std::map<double, std::string> factors = {{0, "0"}};
  const int world = world_size_of(inputs);
  if (world > 1) factors.emplace(1.0 / world, fmt::format("1/{}", world));
  const auto whole = inputs.cell ? inputs.cell->ranks.size() : 0;
  if (whole > 1) factors.emplace(1.0 / static_cast<double>(whole), fmt::format("1/{}", whole));
  if (!inputs.cell || !inputs.cell->declared) return factors;
  for (const auto& [name, ranks] : inputs.cell->declared->groups) {
    if (ranks.size() > 1) factors.emplace(1.0 / static_cast<double>(ranks.size()), fmt::format("1/{}, the ranks of group \"{}\"", ranks.size(), name));
  }
  return factors;
}

Cause named_by(double factor, const std::string& evidence, double confidence) {
  return made(factor == 0 ? "auxiliary-loss-detached" : "auxiliary-loss-over-world", confidence, "{}", evidence);
}

/// The cell's loss is the reference's with one named loss times a factor.
Answer term_in_loss(const CauseInputs& inputs) {
  if (!inputs.forced->reference.loss || !inputs.forced->cell.loss) return {};
  const ForcedEvidence& forced = *inputs.forced;
  const double gap = *forced.cell.loss - *forced.reference.loss;
  std::vector<Cause> fitting;
  std::vector<Term> terms = terms_of(forced.reference);
  if (terms.size() < 2) return {};
  for (const Term& term : terms) {
    for (const auto& [factor, words] : factors_of(inputs)) {
      if (std::abs(term.value) < 100 * forced.loss_band) continue;
      if (std::abs(gap - (factor - 1) * term.value) > 4 * forced.loss_band + 1e-6 * std::abs(term.value)) continue;
      fitting.push_back(named_by(factor, fmt::format("the loss is the reference's with the named loss \"{}\" times {}; {}", term.name, words, losses_text(inputs)), kExact));
    }
  }
  return fitting.size() == 1 ? std::optional(fitting.front()) : std::nullopt;
}

/// A named loss's own gradient, over ranks.
std::optional<std::vector<NamedTensor>> gradient_of_term(const ForcedValues& values, const std::string& part) {
  std::vector<std::vector<NamedTensor>> by_rank;
  for (const RankParts& rank : parts_of(values, "loss ")) {
    std::vector<double> factors(rank.names.size(), 0);
    const auto at = std::ranges::find(rank.names, part) - rank.names.begin();
    if (at == std::ssize(rank.names)) return std::nullopt;
    factors[static_cast<std::size_t>(at)] = 1;
    auto gradient = weighed(rank, factors);
    if (!gradient) return std::nullopt;
    by_rank.push_back(std::move(*gradient));
  }
  return by_rank.empty() ? std::nullopt : std::optional(reduced_of(by_rank, values.reduced_by_sum));
}

std::set<std::string> part_names(const ForcedValues& values) {
  std::set<std::string> names;
  for (const RankParts& rank : parts_of(values, "loss ")) names.insert(rank.names.begin(), rank.names.end());
  return names;
}

/// By recorded parts: the reference's gradient with one of its named losses times a factor, or the cell's own part brought to what it should be.
Answer term_in_gradient(const CauseInputs& inputs) {
  const auto gradients = gradients_of(inputs);
  if (!gradients) return {};
  const ForcedEvidence& forced = *inputs.forced;
  constexpr double kRoom = 8;
  std::vector<Cause> fitting;
  const auto try_part = [&](const std::string& part, bool of_reference) {
    const auto own = gradient_of_term(of_reference ? forced.reference : forced.cell, part);
    if (!own || whole_norm(*own) == 0) return;
    for (const auto& [factor, words] : factors_of(inputs)) {
      if (!of_reference && factor == 0) continue;
      const bool fits = of_reference ? agree(with_more(forced.reference.gradients, *own, factor - 1), gradients->mean, *gradients->judgement, kRoom)
                                     : agree(forced.reference.gradients, with_more(gradients->mean, *own, 1 / factor - 1), *gradients->judgement, kRoom);
      if (!fits) continue;
      fitting.push_back(named_by(factor, fmt::format("the gradient is the reference's with that of \"{}\" times {}; {}", part, words, gradients->text()), kExact));
    }
  };
  for (const std::string& part : part_names(forced.reference)) try_part(part, true);
  if (fitting.empty()) {
    for (const std::string& part : part_names(forced.cell)) try_part(part, false);
  }
  return fitting.size() == 1 ? std::optional(fitting.front()) : std::nullopt;
}

/// Without parts: the run has named losses, and some tensors' gradients are one of these factors of the reference's, where others are not. What
/// they alone have a gradient from is one of these losses.
Answer some_tensors_by_factor(const CauseInputs& inputs) {
  const auto gradients = gradients_of(inputs);
  if (!gradients || terms_of(inputs.forced->cell).size() < 2) return {};
  if (!part_names(inputs.forced->reference).empty()) return {};
  constexpr double kTelling = 64;
  for (const auto& [factor, words] : factors_of(inputs)) {
    std::vector<std::string> scaled;
    std::size_t others = 0, right = 0;
    for (const TensorUse& use : gradients->judgement->tensors) {
      const NamedTensor *expected = find_tensor(inputs.forced->reference.gradients, use.name), *actual = find_tensor(gradients->mean, use.name);
      if (!expected || !actual || expected->values.size() != actual->values.size()) return {};
      if (use.use.used() <= 1) {
        right += norm(expected->values) > kTelling * use.use.band;
        continue;
      }
      double rest = 0;
      for (std::size_t i = 0; i < expected->values.size(); ++i) rest = std::hypot(rest, actual->values[i] - factor * expected->values[i]);
      if (rest <= 2 * use.use.band && norm(expected->values) > kTelling * use.use.band) scaled.push_back(use.name);
      else ++others;
    }
    if (scaled.empty() || (right == 0 && others == 0)) continue;
    if (factor == 0 && right == 0) continue;
    return named_by(factor, fmt::format("the gradient of {} is {} times the reference's, {} tensors agree and {} differ otherwise, and the loss has several named parts",
                                     fmt::join(scaled, ", "), words, right, others), kFits);
  }
  return {};
}

}  // namespace

std::span<const Hypothesis> loss_hypotheses() {
  static constexpr Hypothesis kTable[] = {
      {"mask-ignored", kInLoss, kValues, kStrong, mask_ignored_in_rows},
      {"batch-norm-local local-statistics", kInScores | kInLoss | kInLocal, kRanks, kFits, statistics_in_a_buffer},
      {"rows-left-out", kInLoss, kValues, 0.95, rows_left_out},
      {"precision-differs", kInLoss, kNothing, kFits, loss_in_other_precision},
      {"auxiliary-loss-detached auxiliary-loss-over-world", kInLoss, kValues, kExact, term_in_loss},
      {"auxiliary-loss-detached auxiliary-loss-over-world", kInGradients, kValues, kExact, term_in_gradient},
      {"auxiliary-loss-detached auxiliary-loss-over-world", kInGradients, kValues, kFits, some_tensors_by_factor},
  };
  return kTable;
}

}  // namespace lockstep::causes
