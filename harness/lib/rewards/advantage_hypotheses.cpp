// What advantages may be instead of what they should be.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/lib/rewards/advantage_audit.h"

namespace lockstep::rewards {
namespace {

using Prediction = std::optional<std::vector<double>>;

bool uses_batch(const AuditedBatch& batch) {
  return batch.options.estimator == Estimator::global || batch.options.estimator == Estimator::group_mean;
}
bool uses_groups(const AuditedBatch& batch) { return batch.options.estimator != Estimator::global; }

Prediction computed(const AuditedBatch& batch, std::span<const double> values, std::span<const int64_t> groups,
                    std::span<const uint8_t> counted, Estimator estimator, const Convention& convention) {
  Convention lenient = convention;
  lenient.non_finite = NonFinite::mask;
  std::vector<double> done = advantages_of({values, groups, counted}, estimator, lenient).values;
  if (done.size() != batch.values.size()) return {};
  return done;
}

Prediction by_convention(const AuditedBatch& batch, const Convention& convention) {
  if (convention == batch.options.convention) return {};
  return computed(batch, batch.values, batch.rows.groups, batch.counted, batch.options.estimator, convention);
}

Prediction by_groups(const AuditedBatch& batch, const std::vector<int64_t>& groups) {
  if (!uses_groups(batch)) return {};
  return computed(batch, batch.values, groups, batch.counted, batch.options.estimator, batch.options.convention);
}

/// Mean of the rows' groups, where the estimator has them, else the one that is given; and that deviation.
Prediction scaled(const AuditedBatch& batch, double mean, double deviation) {
  std::map<int64_t, double> means;
  for (std::size_t i = 0; i < batch.expected.group_ids.size(); ++i)
    means[batch.expected.group_ids[i]] = batch.expected.by_group[i].mean;
  std::vector<double> values(batch.values.size(), 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (batch.counted[i] == 0) continue;
    const double base = batch.options.estimator == Estimator::global ? mean : means[batch.rows.groups[i]];
    values[i] = (batch.values[i] - base) / deviation;
  }
  return values;
}

Moments moments_where(const AuditedBatch& batch, std::span<const double> values, const auto& takes) {
  std::vector<double> taken;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (batch.counted[i] != 0 && takes(i)) taken.push_back(values[i]);
  }
  return moments_of(taken);
}

std::vector<Moments> by_rank(const AuditedBatch& batch) {
  std::vector<Moments> all;
  for (std::size_t rank = 0; rank < batch.own.size(); ++rank)
    all.push_back(moments_where(batch, batch.values, [&](std::size_t i) { return batch.ranks[i] == static_cast<int>(rank); }));
  return all;
}

Prediction local_statistics(const AuditedBatch& batch, int rank, const Statistics*) {
  if (!uses_batch(batch)) return {};
  const Statistics own = statistics_of(by_rank(batch)[static_cast<std::size_t>(rank)], batch.options.convention);
  return scaled(batch, own.mean, own.deviation);
}

Prediction mean_of(const AuditedBatch& batch, bool empty_too) {
  double means = 0, deviations = 0, ranks = 0;
  for (const Moments& each : by_rank(batch)) {
    if (each.count == 0 && !empty_too) continue;
    ++ranks;
    if (each.count == 0) continue;
    const Statistics own = statistics_of(each, batch.options.convention);
    means += own.mean;
    deviations += own.deviation;
  }
  return ranks == 0 ? Prediction{} : scaled(batch, means / ranks, deviations / ranks);
}

Prediction mean_of_means(const AuditedBatch& batch, int, const Statistics*) {
  return uses_batch(batch) ? mean_of(batch, false) : Prediction{};
}
Prediction empty_rank_counted(const AuditedBatch& batch, int, const Statistics*) {
  const auto ranks = by_rank(batch);
  const bool empty = std::ranges::any_of(ranks, [](const Moments& each) { return each.count == 0; });
  return uses_batch(batch) && empty ? mean_of(batch, true) : Prediction{};
}

Prediction between_rank_missing(const AuditedBatch& batch, int, const Statistics*) {
  if (!uses_batch(batch)) return {};
  Moments within{0, batch.expected.batch.mean, 0};
  for (const Moments& each : by_rank(batch)) {
    within.count += each.count;
    within.m2 += each.m2;
  }
  const Statistics seen = statistics_of(within, batch.options.convention);
  return scaled(batch, seen.mean, seen.deviation);
}

Prediction padded_rows(const AuditedBatch& batch, int, const Statistics*) {
  const std::vector<uint8_t> all(batch.values.size(), 1);
  return computed(batch, batch.values, batch.rows.groups, all, batch.options.estimator, batch.options.convention);
}

Prediction other_ddof(const AuditedBatch& batch, int, const Statistics*) {
  Convention other = batch.options.convention;
  other.ddof = 1 - other.ddof;
  return by_convention(batch, other);
}
Prediction epsilon_missing(const AuditedBatch& batch, int, const Statistics*) {
  Convention other = batch.options.convention;
  other.epsilon = 0;
  return by_convention(batch, other);
}
Prediction epsilon_misplaced(const AuditedBatch& batch, int, const Statistics*) {
  Convention other = batch.options.convention;
  if (other.epsilon == 0) return {};
  other.epsilon_place = other.epsilon_place == EpsilonPlace::inside ? EpsilonPlace::outside : EpsilonPlace::inside;
  return by_convention(batch, other);
}
Prediction floor_missing(const AuditedBatch& batch, int, const Statistics*) {
  Convention other = batch.options.convention;
  other.floor = 0;
  return by_convention(batch, other);
}
Prediction floor_misplaced(const AuditedBatch& batch, int, const Statistics*) {
  Convention other = batch.options.convention;
  if (other.floor == 0) return {};
  other.floor_place = other.floor_place == FloorPlace::variance ? FloorPlace::deviation : FloorPlace::variance;
  return by_convention(batch, other);
}

Prediction micro(const AuditedBatch& batch, bool of_all_ranks, int rank) {
  const std::set<int64_t> parts(batch.rows.micro.begin(), batch.rows.micro.end());
  if (!uses_batch(batch) || parts.size() < 2) return {};
  std::vector<double> done(batch.values.size(), 0);
  for (const int64_t part : parts) {
    const Moments seen = moments_where(batch, batch.values, [&](std::size_t i) {
      return batch.rows.micro[i] == part && (of_all_ranks || batch.ranks[i] == rank);
    });
    const Statistics own = statistics_of(seen, batch.options.convention);
    const Prediction of_part = scaled(batch, own.mean, own.deviation);
    for (std::size_t i = 0; i < done.size(); ++i) {
      if (batch.rows.micro[i] == part) done[i] = (*of_part)[i];
    }
  }
  return done;
}
Prediction micro_statistics(const AuditedBatch& batch, int rank, const Statistics*) { return micro(batch, false, rank); }
Prediction accumulation_statistics(const AuditedBatch& batch, int rank, const Statistics*) {
  return batch.own.size() < 2 ? Prediction{} : micro(batch, true, rank);
}

Prediction kl_left_out(const AuditedBatch& batch, int, const Statistics*) {
  if (batch.options.beta == 0 || !uses_batch(batch)) return {};
  const Statistics raw =
      statistics_of(moments_where(batch, batch.rows.rewards, [](std::size_t) { return true; }), batch.options.convention);
  return scaled(batch, raw.mean, raw.deviation);
}
Prediction with_kl(const AuditedBatch& batch, double beta) {
  return computed(batch, penalised(batch.rows, beta), batch.rows.groups, batch.counted, batch.options.estimator,
                  batch.options.convention);
}
Prediction kl_missing(const AuditedBatch& batch, int, const Statistics*) {
  return batch.options.beta == 0 ? Prediction{} : with_kl(batch, 0);
}
Prediction kl_gathered_twice(const AuditedBatch& batch, int, const Statistics*) {
  if (batch.options.beta == 0 || batch.own.size() < 2) return {};
  return with_kl(batch, batch.options.beta * static_cast<double>(batch.own.size()));
}

Prediction not_normalised(const AuditedBatch& batch, int, const Statistics*) {
  std::vector<double> raw(batch.values.size(), 0);
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = batch.counted[i] == 0 ? 0 : batch.values[i];
  return raw;
}
Prediction not_divided(const AuditedBatch& batch, int, const Statistics*) {
  if (batch.options.estimator == Estimator::leave_one_out) return {};
  const Estimator centred = batch.options.estimator == Estimator::global ? Estimator::global : Estimator::group;
  Prediction done = computed(batch, batch.values, batch.rows.groups, batch.counted, centred, batch.options.convention);
  if (!done) return {};
  std::map<int64_t, double> means;
  for (std::size_t i = 0; i < batch.expected.group_ids.size(); ++i)
    means[batch.expected.group_ids[i]] = batch.expected.by_group[i].mean;
  for (std::size_t i = 0; i < done->size(); ++i) {
    const double mean = centred == Estimator::global ? batch.expected.batch.mean : means[batch.rows.groups[i]];
    (*done)[i] = batch.counted[i] == 0 ? 0 : batch.values[i] - mean;
  }
  return done;
}

Prediction normalised_twice(const AuditedBatch& batch, int, const Statistics*) {
  return computed(batch, batch.expected.values, batch.rows.groups, batch.counted, Estimator::global,
                  batch.options.convention);
}

Prediction variance_for_deviation(const AuditedBatch& batch, int, const Statistics*) {
  if (!uses_batch(batch)) return {};
  return scaled(batch, batch.expected.batch.mean, batch.expected.batch.deviation * batch.expected.batch.deviation);
}

Prediction stale_statistics(const AuditedBatch& batch, int, const Statistics* before) {
  if (before == nullptr || !uses_batch(batch)) return {};
  return scaled(batch, before->mean, before->deviation);
}

Prediction narrowed(const AuditedBatch& batch, int, const Statistics*) {
  std::vector<double> done = batch.expected.values;
  for (double& value : done) value = static_cast<double>(static_cast<float>(value));
  return done;
}

Prediction sign_lost(const AuditedBatch& batch, int, const Statistics*) {
  std::vector<double> done = batch.expected.values;
  for (double& value : done) value = -value;
  return done;
}

Prediction baseline_includes_itself(const AuditedBatch& batch, int, const Statistics*) {
  if (batch.options.estimator != Estimator::leave_one_out) return {};
  std::map<int64_t, double> sizes;
  for (std::size_t i = 0; i < batch.expected.group_ids.size(); ++i)
    sizes[batch.expected.group_ids[i]] = static_cast<double>(batch.expected.by_group[i].count);
  std::vector<double> done = batch.expected.values;
  for (std::size_t i = 0; i < done.size(); ++i) {
    const double n = sizes[batch.rows.groups[i]];
    if (n > 1) done[i] *= (n - 1) / n;
  }
  return done;
}

Prediction groups_interleaved(const AuditedBatch& batch, int, const Statistics*) {
  const std::set<int64_t> ids(batch.rows.groups.begin(), batch.rows.groups.end());
  if (ids.size() < 2) return {};
  std::vector<int64_t> groups;
  for (std::size_t i = 0; i < batch.values.size(); ++i) groups.push_back(static_cast<int64_t>(i % ids.size()));
  return by_groups(batch, groups);
}

Prediction groups_shifted(const AuditedBatch& batch, int, const Statistics*) {
  std::map<int64_t, int64_t> sizes;
  for (const int64_t group : batch.rows.groups) ++sizes[group];
  int64_t most = 1;
  for (const auto& [group, size] : sizes) most = std::max(most, size);
  std::vector<int64_t> groups;
  for (std::size_t i = 0; i < batch.values.size(); ++i) groups.push_back(static_cast<int64_t>(i) / most);
  return by_groups(batch, groups);
}

Prediction groups_local(const AuditedBatch& batch, int, const Statistics*) {
  if (batch.own.size() < 2) return {};
  std::vector<int64_t> groups;
  std::map<std::pair<int64_t, int>, int64_t> parts;
  for (std::size_t i = 0; i < batch.values.size(); ++i) {
    const auto next = static_cast<int64_t>(parts.size());
    groups.push_back(parts.try_emplace({batch.rows.groups[i], batch.ranks[i]}, next).first->second);
  }
  return by_groups(batch, groups);
}

Prediction one_baseline(const AuditedBatch& batch, int, const Statistics*) {
  const std::set<int64_t> ids(batch.rows.groups.begin(), batch.rows.groups.end());
  // Of group-wise normalisation that is another estimator's way.
  if (batch.options.estimator != Estimator::leave_one_out || ids.size() < 2) return {};
  return by_groups(batch, std::vector<int64_t>(batch.values.size(), 0));
}

template <int which>
Prediction other_estimator(const AuditedBatch& batch, int, const Statistics*) {
  const auto estimator = static_cast<Estimator>(which);
  if (estimator == batch.options.estimator) return {};
  return computed(batch, batch.values, batch.rows.groups, batch.counted, estimator, batch.options.convention);
}

}  // namespace

std::span<const AdvantageHypothesis> advantage_hypotheses() {
  static constexpr AdvantageHypothesis kAll[] = {
      {"local-statistics", local_statistics},
      {"mean-of-means", mean_of_means},
      {"empty-rank-counted", empty_rank_counted},
      {"between-rank-missing", between_rank_missing},
      {"padded-rows", padded_rows},
      {"other-ddof", other_ddof},
      {"epsilon-missing", epsilon_missing},
      {"epsilon-misplaced", epsilon_misplaced},
      {"floor-missing", floor_missing},
      {"floor-misplaced", floor_misplaced},
      {"micro-statistics", micro_statistics},
      {"accumulation-statistics", accumulation_statistics},
      {"kl-left-out", kl_left_out},
      {"kl-missing", kl_missing},
      {"kl-gathered-twice", kl_gathered_twice},
      {"not-normalised", not_normalised},
      {"not-divided", not_divided},
      {"normalised-twice", normalised_twice},
      {"variance-for-deviation", variance_for_deviation},
      {"stale-statistics", stale_statistics},
      {"advantages-narrowed", narrowed},
      {"sign-lost", sign_lost},
      {"baseline-includes-itself", baseline_includes_itself},
      {"groups-interleaved", groups_interleaved},
      {"groups-shifted", groups_shifted},
      {"groups-local", groups_local},
      {"one-baseline", one_baseline},
      {"other-estimator", other_estimator<0>},
      {"other-estimator", other_estimator<1>},
      {"other-estimator", other_estimator<2>},
      {"other-estimator", other_estimator<3>},
  };
  return kAll;
}

}  // namespace lockstep::rewards
