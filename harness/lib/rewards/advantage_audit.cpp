#include "harness/lib/rewards/advantage_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace lockstep::rewards {
namespace {

constexpr double kFloat32 = 0x1p-24;

/// Predictions are made in another order of additions than what they are compared with: how far that alone may carry them
/// apart, as a share of the largest value. The mean's rounding counts against the deviation.
double close_enough(const AuditedBatch& batch) {
  return std::min(1e-6, 1e-13 * (10 + batch.expected.batch.condition));
}

bool fits(const AuditedBatch& batch, const ShownAdvantages& shown, int rank, const std::vector<double>& predicted,
          bool exactly) {
  const auto& own = batch.own[static_cast<std::size_t>(rank)];
  double scale = 0;
  for (const std::size_t place : own) scale = std::max(scale, std::abs(predicted[place]));
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double found = shown.advantages[i], said = predicted[own[i]];
    if (exactly ? !same_bits(found, said) : !(std::abs(found - said) <= close_enough(batch) * scale) && !same_bits(found, said)) return false;
  }
  return true;
}

/// Does the hypothesis say anything else of the rank's rows than what is expected? Else it explains nothing.
bool explains(const AuditedBatch& batch, int rank, const std::vector<double>& predicted) {
  const auto& own = batch.own[static_cast<std::size_t>(rank)];
  double scale = 0;
  for (const std::size_t place : own) scale = std::max(scale, std::abs(batch.expected.values[place]));
  return std::ranges::any_of(own, [&](std::size_t place) {
    return !(std::abs(predicted[place] - batch.expected.values[place]) <= 4 * close_enough(batch) * scale);
  });
}

/// Do the advantages differ from the right ones by more than rounding?
bool more_than_rounding(const AuditedBatch& batch, const ShownAdvantages& shown, int rank) {
  std::vector<double> whole = batch.expected.values;
  const auto& own = batch.own[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < own.size(); ++i) whole[own[i]] = shown.advantages[i];
  return explains(batch, rank, whole);
}

/// E[x^2] - E[x]^2 in float32: the mean is right to float32, and the deviation off by up to condition^2 * 2^-24.
bool cancelled(const AuditedBatch& batch, const ShownAdvantages& shown) {
  const Statistics& right = batch.expected.batch;
  if (batch.options.estimator != Estimator::global || !std::isfinite(right.condition)) return false;
  const double off_mean = std::abs(shown.mean - right.mean), size = std::abs(right.mean) + right.deviation;
  const double off = std::abs(shown.deviation / right.deviation - 1);
  const double rows = static_cast<double>(right.count);
  return right.condition > 8 && !(off <= 1e-12) && off_mean <= rows * kFloat32 * size &&
         (off <= rows * kFloat32 * right.condition * right.condition || std::isnan(shown.deviation));
}

bool in_another_order(const AuditedBatch& batch, const ShownAdvantages& shown, int rank) {
  std::vector<double> found = shown.advantages, expected;
  for (const std::size_t place : batch.own[static_cast<std::size_t>(rank)]) expected.push_back(batch.expected.values[place]);
  std::ranges::sort(found, {}, [](double value) { return std::bit_cast<uint64_t>(value); });
  std::ranges::sort(expected, {}, [](double value) { return std::bit_cast<uint64_t>(value); });
  return same_bits(found, expected);
}

void fit(Finding& finding, const std::string& code) {
  if (finding.code.empty())
    finding.code = code;
  else if (finding.code != code && std::ranges::find(finding.also, code) == finding.also.end())
    finding.also.push_back(code);
}

/// Rows that the convention masks, and NaN where a number should be.
bool poisoned(const AuditedBatch& batch, const ShownAdvantages& shown, int rank) {
  const auto& own = batch.own[static_cast<std::size_t>(rank)];
  const bool masked = std::ranges::any_of(batch.values, [](double value) { return !(std::abs(value) <= kLargestReward); });
  for (std::size_t i = 0; masked && i < own.size(); ++i) {
    if (batch.counted[own[i]] != 0 && !std::isfinite(shown.advantages[i])) return true;
  }
  return false;
}

Finding named(const AuditedBatch& batch, const ShownAdvantages& shown, int rank, const Statistics* before) {
  Finding finding{"", {}, shown.step, {rank}, ""};
  const auto& own = batch.own[static_cast<std::size_t>(rank)];
  if (poisoned(batch, shown, rank)) fit(finding, "nan-poisoned");
  for (const AdvantageHypothesis& hypothesis : advantage_hypotheses()) {
    const auto predicted = hypothesis.predict(batch, rank, before);
    const bool exactly = std::string_view(hypothesis.code) == "advantages-narrowed";
    if (predicted && explains(batch, rank, *predicted) && fits(batch, shown, rank, *predicted, exactly))
      fit(finding, hypothesis.code);
  }
  if (finding.code.empty() && !more_than_rounding(batch, shown, rank)) fit(finding, "advantages-rounded");
  if (finding.code.empty() && in_another_order(batch, shown, rank)) fit(finding, "advantages-order-lost");
  if (finding.code.empty() && cancelled(batch, shown)) fit(finding, "cancelled-variance");
  if (finding.code.empty()) fit(finding, "advantage-differs");
  std::size_t first = 0;
  while (same_bits(shown.advantages[first], batch.expected.values[own[first]])) ++first;
  finding.sentence = fmt::format(
      "step {}: rank {}: {}; sample {} (element {}): expected {}, found {}; mean and deviation {} and {} of {} rows, where "
      "the batch has {} and {} of {}",
      shown.step, rank, help_of(finding.code), shown.rows.ids[first], first,
      number_in_words(batch.expected.values[own[first]]), number_in_words(shown.advantages[first]), shown.mean,
      shown.deviation, shown.count, batch.expected.batch.mean, batch.expected.batch.deviation, batch.expected.batch.count);
  return finding;
}

}  // namespace

static AuditedBatch audited_batch(std::span<const ShownAdvantages> by_rank, const AdvantageOptions& options) {
  AuditedBatch batch;
  batch.options = options;
  std::vector<std::tuple<int64_t, int, std::size_t>> order;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (std::size_t i = 0; i < by_rank[rank].rows.size(); ++i)
      order.emplace_back(by_rank[rank].rows.ids[i], static_cast<int>(rank), i);
    batch.own.emplace_back(by_rank[rank].rows.size());
  }
  std::ranges::sort(order);
  for (const auto& [id, rank, i] : order) {
    batch.own[static_cast<std::size_t>(rank)][i] = batch.ranks.size();
    batch.rows.append(by_rank[static_cast<std::size_t>(rank)].rows, i);
    batch.ranks.push_back(rank);
  }
  batch.values = penalised(batch.rows, options.beta);
  Screened screened = screen(batch.values, batch.rows.counted, options.convention);
  batch.counted = std::move(screened.counted);
  batch.problem = std::move(screened.problem);
  batch.expected = advantages_of({batch.values, batch.rows.groups, batch.rows.counted}, options.estimator, options.convention);
  return batch;
}

std::vector<Finding> AdvantageAudit::step(std::span<const ShownAdvantages> by_rank) {
  std::vector<Finding> findings;
  const AuditedBatch batch = audited_batch(by_rank, options_);
  for (std::size_t at = 0; at < by_rank.size(); ++at) {
    const int rank = static_cast<int>(at);
    const ShownAdvantages& shown = by_rank[at];
    const auto tell = [&](const char* code, const std::string& text) {
      add(findings, {code, {}, shown.step, {rank}, fmt::format("step {}: rank {} {}", shown.step, rank, text)});
    };
    if (shown.kl_rows > 0 && shown.kl_rows != static_cast<int64_t>(batch.rows.size())) {
      tell("kl-gathered-twice", fmt::format("brought {} KL terms together with {} rewards: ids repeat", shown.kl_rows,
                                            batch.rows.size()));
      continue;
    }
    if (!batch.problem.empty()) {
      if (!shown.advantages.empty() || shown.problem.empty())
        tell("not-refused", fmt::format("has advantages, where the convention refuses: {}", batch.problem));
      continue;
    }
    if (shown.advantages.size() != shown.rows.size()) {
      tell("advantage-differs", fmt::format("has {} advantages for {} rows{}", shown.advantages.size(), shown.rows.size(),
                                            shown.problem.empty() ? "" : ": " + shown.problem));
      continue;
    }
    std::vector<double> expected;
    for (const std::size_t place : batch.own[at]) expected.push_back(batch.expected.values[place]);
    const Statistics& right = batch.expected.batch;
    if (!same_bits(shown.advantages, expected)) {
      add(findings, named(batch, shown, rank, before_ ? &*before_ : nullptr));
    } else if (shown.count != right.count || !same_bits(shown.mean, right.mean) ||
               !same_bits(shown.deviation, right.deviation)) {
      tell("statistics-differ", fmt::format("shows mean {} and deviation {} of {} rows; expected {} and {} of {}", shown.mean,
                                            shown.deviation, shown.count, right.mean, right.deviation, right.count));
    }
  }
  if (batch.problem.empty()) before_ = batch.expected.batch;
  return findings;
}

}  // namespace lockstep::rewards
