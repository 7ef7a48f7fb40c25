
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>

#include "harness/judge/causes/gradient.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/compared.h"
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
  for (const RankLoss& rank : reference)
    for (const double row : rank.row_losses) sum += row;
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
    const double sum = std::accumulate(ranks[r].expected.begin(), ranks[r].expected.end(), 0.0);
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
  return told("the loss of {} (the last is rank {}) leaves out one row or all rows, at the weight {} of {} rows; {}",
              counted(static_cast<int64_t>(without), "rank"), wrong_rank, short_number(weight), rows,
              losses_text(inputs));
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
  return told("{} rows with padding, on rank {}, have other losses than the reference's, and the {} rows without "
              "padding there have the same",
              wrong, fmt::join(ranks, ", "), beside);
}

/// Buffers of one name and rank, and the rows of that rank.
struct RankBuffer {
  std::vector<double> values;
  double rows = 0;
};

/// A buffer that differs between ranks, and whose mean over ranks by their rows is the reference's: a mean that each rank took of its own rows. What the
/// loss has of it is not known; of BatchNorm's statistics it is.
template <bool batch_norm>
Answer statistics_in_a_buffer(const CauseInputs& inputs) {
  constexpr double kSame = 1e-4, kApart = 1e-3;
  for (const Record& record : inputs.reference->ranks[0].records) {
    const auto expected =
        record.phase == Phase::parameters && is_buffer(record.name) ? values_of(record) : std::nullopt;
    if (!expected) continue;
    std::vector<RankBuffer> ranks;
    double rows = 0;
    for (const StepRecords& rank : inputs.cell->ranks) {
      RankBuffer own{values_of(find_record(rank, Phase::parameters, record.name)).value_or(std::vector<double>{}),
                     static_cast<double>(sample_ids(rank).size())};
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
    if (of_batch_norm != batch_norm) continue;
    return told("{} differs between ranks, and its mean over them by rows is the reference's: each rank took the mean "
                "of its own rows; {}",
                record.name, losses_text(inputs));
  }
  return {};
}

/// The reference's row losses by sample id, in the order in which its ranks have them.
std::map<int64_t, std::vector<double>> losses_by_sample(const ForcedValues& values) {
  std::map<int64_t, std::vector<double>> losses;
  for (const RankLoss& rank : values.losses) {
    for (std::size_t row = 0; row < rank.row_ids.size(); ++row)
      losses[rank.row_ids[row]].push_back(rank.row_losses[row]);
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

/// The named losses, weight included, as means over ranks.
std::map<std::string, double> terms_of(const ForcedValues& values) {
  std::map<std::string, double> terms;
  std::map<std::string, std::size_t> ranks;
  for (const RankLoss& rank : values.losses) {
    for (const auto& [name, value] : rank.terms) {
      const auto weight = rank.weights.find(name);
      terms[name] +=
          value * (weight == rank.weights.end() ? 1 : weight->second) / static_cast<double>(values.losses.size());
      ++ranks[name];
    }
  }
  std::erase_if(terms, [&](const auto& each) { return ranks[each.first] != values.losses.size(); });
  return terms;
}

/// What one over a number of ranks that share a mistake may be.
std::map<double, std::string> factors_of(const CauseInputs& inputs) {
  std::map<double, std::string> factors = {{0, "0"}};
  for (const auto& [size, words] : group_sizes(inputs))
    factors.emplace(1.0 / static_cast<double>(size), fmt::format("1/{}{}", size, words));
  return factors;
}

Cause named_by(double factor, double strength, const std::string& evidence) {
  return made(factor == 0 ? "auxiliary-loss-detached" : "auxiliary-loss-over-world", strength, evidence);
}

/// The cell's loss is the reference's with one named loss times a factor.
Answer term_in_loss(const CauseInputs& inputs) {
  if (!inputs.forced->reference.loss || !inputs.forced->cell.loss) return {};
  const ForcedEvidence& forced = *inputs.forced;
  const double gap = *forced.cell.loss - *forced.reference.loss;
  std::vector<Cause> fitting;
  const std::map<std::string, double> terms = terms_of(forced.reference);
  if (terms.size() < 2) return {};
  for (const auto& [name, value] : terms) {
    for (const auto& [factor, words] : factors_of(inputs)) {
      if (std::abs(value) < 100 * forced.loss_band) continue;
      if (std::abs(gap - (factor - 1) * value) > 4 * forced.loss_band + 1e-6 * std::abs(value)) continue;
      fitting.push_back(named_by(factor, kExact,
                                 fmt::format("the loss is the reference's with the named loss \"{}\" times {}; {}",
                                             name, words, losses_text(inputs))));
    }
  }
  return fitting.size() == 1 ? std::optional(fitting.front()) : std::nullopt;
}

/// Each named loss's own gradient, over ranks; those of which every rank kept its values.
std::map<std::string, std::vector<NamedTensor>> gradients_of_terms(const ForcedValues& values) {
  const std::vector<RankParts> parts = parts_of(values, "loss ");
  std::map<std::string, std::vector<std::vector<NamedTensor>>> by_rank;
  for (const RankParts& rank : parts) {
    for (std::size_t k = 0; k < rank.names.size(); ++k) {
      std::vector<double> factors(rank.names.size(), 0);
      factors[k] = 1;
      if (auto gradient = weighed(rank, factors)) by_rank[rank.names[k]].push_back(*std::move(gradient));
    }
  }
  std::map<std::string, std::vector<NamedTensor>> all;
  for (const auto& [name, gradients] : by_rank)
    if (gradients.size() == parts.size()) all[name] = reduced_of(gradients, values.reduced_by_sum);
  return all;
}

/// By recorded parts: the reference's gradient with one of its named losses times a factor, or the cell's own part brought to what it should be.
Answer term_in_gradient(const CauseInputs& inputs) {
  const auto gradients = gradients_of(inputs);
  if (!gradients) return {};
  const ForcedEvidence& forced = *inputs.forced;
  constexpr double kRoom = 8;
  std::vector<Cause> fitting;
  for (const bool of_reference : {true, false}) {
    if (!fitting.empty()) break;
    for (const auto& [part, own] : gradients_of_terms(of_reference ? forced.reference : forced.cell)) {
      for (const auto& [factor, words] : factors_of(inputs)) {
        if (whole_norm(own) == 0 || (!of_reference && factor == 0)) continue;
        const auto expected =
            of_reference ? with_more(forced.reference.gradients, own, factor - 1) : forced.reference.gradients;
        const auto actual = of_reference ? gradients->mean : with_more(gradients->mean, own, 1 / factor - 1);
        if (agree(expected, actual, *gradients->judgement, kRoom))
          fitting.push_back(named_by(factor, kExact,
                                     fmt::format("the gradient is the reference's with that of \"{}\" times {}; {}",
                                                 part, words, gradients->text())));
      }
    }
  }
  return fitting.size() == 1 ? std::optional(fitting.front()) : std::nullopt;
}

/// Without parts: the run has named losses, and some tensors' gradients are one of these factors of the reference's, where others are not. What
/// they alone have a gradient from is one of these losses.
Answer some_tensors_by_factor(const CauseInputs& inputs) {
  const auto gradients = gradients_of(inputs);
  if (!gradients || terms_of(inputs.forced->cell).size() < 2) return {};
  if (!parts_of(inputs.forced->reference, "loss ").empty()) return {};
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
      if (apart(actual->values, factor, expected->values) <= 2 * use.use.band &&
          norm(expected->values) > kTelling * use.use.band)
        scaled.push_back(use.name);
      else ++others;
    }
    if (scaled.empty() || (right == 0 && others == 0)) continue;
    if (factor == 0 && right == 0) continue;
    return named_by(factor, kFits,
                    fmt::format("the gradient of {} is {} times the reference's, {} tensors agree and {} differ "
                                "otherwise, and the loss has several named parts",
                                fmt::join(scaled, ", "), words, right, others));
  }
  return {};
}

/// Statistics of BatchNorm that stand still in the reference, as in a frozen or evaluated model, and that every rank of
/// the run moves to values of its own: its features are normalised by its own rows.
Answer statistics_of_own_rows(const CauseInputs& inputs) {
  if (is_exact(inputs.difference.phase) || !inputs.reference_before) return {};
  const StepOfRun &a = *inputs.reference, &before_a = *inputs.reference_before, &b = *inputs.cell,
                  &before_b = *inputs.cell_before;
  if (before_a.step != a.step - 1 || before_b.step != b.step - 1 || before_b.ranks.size() != b.ranks.size()) return {};
  std::vector<std::string> names;
  for (const Record* record : records_of(a.ranks[0], Phase::parameters)) {
    if (!is_buffer(record->name) || !(record->name.ends_with("running_mean") || record->name.ends_with("running_var")))
      continue;
    const Record* old = find_record(before_a.ranks[0], Phase::parameters, record->name);
    if (!old || old->stats.hash != record->stats.hash) return {};
    for (std::size_t rank = 0; rank < b.ranks.size(); ++rank) {
      const Record *was = find_record(before_b.ranks[rank], Phase::parameters, record->name),
                   *is = find_record(b.ranks[rank], Phase::parameters, record->name);
      if (!was || !is || was->stats.hash == is->stats.hash) return {};
    }
    if (hashes_of(b, Phase::parameters, record->name).size() != b.ranks.size() ||
        hashes_of(before_b, Phase::parameters, record->name) != std::set<uint64_t>{old->stats.hash})
      return {};
    names.push_back(record->name);
  }
  if (names.empty()) return {};
  return told("{} {} in the reference and move on each of {} ranks to values of its own, from equal ones: each "
              "normalises by the statistics of its own rows",
              fmt::join(names, ", "), names.size() == 1 ? "stands still" : "stand still", b.ranks.size());
}

/// The lengths of the means that each rank normalised by; empty if a rank did not say.
std::vector<double> norm_means(const StepOfRun& step) {
  std::vector<double> means;
  for (const StepRecords& rank : step.ranks) {
    const Record* record = find_record(rank, Phase::loss, "norm_mean");
    if (!record || !record->is_scalar) return {};
    means.push_back(record->value);
  }
  return means;
}

/// Row losses differ, and ranks normalised by unequal means: each by those of its own rows.
Answer batch_norm_local(const CauseInputs& inputs) {
  if (!rows_that_agree(inputs).empty()) return {};
  std::vector<double> cell = norm_means(*inputs.cell);
  const std::vector<double> reference = norm_means(*inputs.reference);
  std::erase(cell, 0.0);  // of a rank without rows
  if (cell.size() < 2 || reference.empty()) return {};
  const auto [least, most] = std::ranges::minmax_element(cell);
  if (*least == *most) return {};  // Shared statistics are the same bits on every rank.
  return told("{} ranks normalise by means of norm {} to {}, but the reference by a mean of norm {}, so row losses "
              "differ",
              cell.size(), short_number(*least), short_number(*most), short_number(reference.front()));
}

// Averages of the weights, held-out samples that are evaluated twice or not at all, and metrics.

Answer average_of_weights_differs(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  std::string how;
  if (inputs.cell) {
    const auto own = average_step(
        {*inputs.cell, pointer_to(inputs.cell_before), inputs.forced ? inputs.forced->state.get() : nullptr});
    if (own && own->residual <= 1)
      how = fmt::format("; it is {} times the old average and {} times the parameter", short_number(own->decay),
                        short_number(1 - own->decay));
  }
  return told(kExact,
              "the average of {} does not follow the parameters as the reference's does: {}{}; the parameters "
              "themselves do not differ before it",
              it.where, expected_found(it.expected, it.actual), how);
}

Answer evaluated_samples_differ(const CauseInputs& inputs) {
  const auto rows = evaluated_rows_differ(*inputs.reference, *inputs.cell, false, 0);
  if (!rows || rows->divergence.kind != DivergenceKind::missing) return {};
  return told("{}: {} is evaluated by the reference, and {} by the run", rows->divergence.where,
              rows->divergence.expected, rows->divergence.actual);
}

bool is_metric(double found, double value) { return std::abs(found - value) <= 1e-5 * std::abs(value); }

}  // namespace

Answer mean_of_own_rows_in_a_buffer(const CauseInputs& inputs) { return statistics_in_a_buffer<false>(inputs); }

Answer metric_of_own_part(const CauseInputs& inputs) {
  const std::string& name = inputs.difference.divergence.where;
  const auto found = other_metric(*inputs.reference, *inputs.cell, name);
  if (!found || metric_is_norm_of_own_shard(inputs)) return {};
  double means = 0;
  std::size_t ranks = 0;
  for (const StepRecords& rank : inputs.cell->ranks) {
    const Record* rows = found->rows.empty() ? nullptr : find_record(rank, Phase::evaluation, found->rows);
    const auto values = values_of(rows);
    if (values && !values->empty())
      means += std::accumulate(values->begin(), values->end(), 0.0) / static_cast<double>(values->size()), ++ranks;
  }
  if (ranks > 1 && is_metric(found->of_ranks[0], means / static_cast<double>(ranks)))
    return made("mean-of-means", kExact,
                "{} is the mean of the ranks' means of {}, {}; the mean over all samples is {}", name, found->rows,
                short_number(found->of_ranks[0]), short_number(found->mean));
  if (!found->rows.empty()) return {};
  return made("local-statistics", kFits,
              "{} is another one on each rank, {:.6g}, and neither a mean of these nor their sum is the reference's: "
              "each takes its own samples",
              name, fmt::join(found->of_ranks, ", "));
}

Answer metric_is_norm_of_own_shard(const CauseInputs& inputs) {
  const std::string& name = inputs.difference.divergence.where;
  const auto found = other_metric(*inputs.reference, *inputs.cell, name);
  std::vector<double> norms;
  for (const auto& parts : inputs.cell->parts) {
    double squares = 0;
    for (const Record& part : parts)
      if (part.phase == Phase::reduced_gradients && part.has_stats) squares += part.stats.norm * part.stats.norm;
    if (squares > 0) norms.push_back(std::sqrt(squares));
  }
  if (!found || norms.empty() || !std::ranges::equal(found->of_ranks, norms, is_metric)) return {};
  return told("{} is on each rank the norm of its own parts of the gradient: {:.4g}", name, fmt::join(norms, ", "));
}

std::span<const Hypothesis> loss_hypotheses() {
  static constexpr Hypothesis kTable[] = {
      {"mask-ignored", kInLoss, kValues, kStrong, mask_ignored_in_rows},
      {"batch-norm-local", kInScores | kInLoss | kInLocal, kRanks, kStrong, statistics_in_a_buffer<true>},
      {"rows-left-out", kInLoss, kValues, 0.95, rows_left_out},
      {"auxiliary-loss-detached auxiliary-loss-over-world", kInLoss, kValues, kExact, term_in_loss},
      {"auxiliary-loss-detached auxiliary-loss-over-world", kInGradients, kValues, kExact, term_in_gradient},
      {"auxiliary-loss-detached auxiliary-loss-over-world", kInGradients, kValues, kFits, some_tensors_by_factor},
      {"batch-norm-local", kInexactPhases, kRanks | kBefore, kFits, statistics_of_own_rows},
      {"batch-norm-local", kInLoss, kRuns | kValues, kFits, batch_norm_local},
      {"average-of-weights-differs", in(Phase::averaged_weights), kNothing, kExact, average_of_weights_differs},
      {"evaluated-samples-differ", kInEvaluation, kRuns, kExact, evaluated_samples_differ},
  };
  return kTable;
}

}  // namespace lockstep::causes
