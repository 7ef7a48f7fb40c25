#include "harness/lib/rewards/audit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "harness/base/numbers.h"

namespace lockstep::rewards {

bool AuditedStep::differ(double a, double b) const { return !(std::abs(a - b) <= band) && !same_bits(a, b); }

std::vector<double> AuditedStep::all(double AuditedRow::* member) const {
  std::vector<double> values;
  for (const AuditedRow& row : rows) values.push_back(row.*member);
  return values;
}

std::vector<int64_t> AuditedStep::groups() const {
  std::vector<int64_t> groups;
  for (const AuditedRow& row : rows) groups.push_back(row.group);
  return groups;
}

namespace {

using Values = std::vector<double>;

constexpr double kExact = 0.98, kFits = 0.8;  // confidence, as causes have it

std::string ranks_words(const std::set<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// "first at sample 7: 0.5 instead of 0.25".
std::string first_in(const AuditedStep& step, double AuditedRow::* expected, double AuditedRow::* found) {
  for (const AuditedRow& row : step.rows) {
    if (step.differ(row.*expected, row.*found)) {
      return fmt::format("first at sample {}: {} instead of {}", row.id, short_number(row.*found), short_number(row.*expected));
    }
  }
  return "";
}

/// Values for every row as `rank` would have them; nothing where the mistake cannot be, or would be none.
struct Hypothesis {
  const char* code;
  std::optional<Values> (*predict)(const AuditedStep& step, int rank);
  const char* words;
};

/// The hypothesis that gives what the wrong ranks recorded, as its cause. The nearest counts, of equally near ones the first.
std::optional<Finding> best_fit(const AuditedStep& step, std::span<const Hypothesis> all, const char* what,
                              double AuditedRow::* expected, double AuditedRow::* found) {
  std::set<int> wrong;
  double largest = 0;
  for (const AuditedRow& row : step.rows) {
    if (step.differ(row.*expected, row.*found)) wrong.insert(row.rank);
    largest = std::max(largest, std::abs(row.*found));
  }
  constexpr double kNear = 2e-5, kSame = 1e-9;
  const Hypothesis* best = nullptr;
  double nearest = kNear;
  for (const Hypothesis& each : all) {
    double apart = 0;
    for (const int rank : wrong) {
      const auto predicted = each.predict(step, rank);
      if (!predicted) apart = kInfinity;
      for (std::size_t i = 0; predicted && i < step.rows.size(); ++i) {
        const double gap = std::abs((*predicted)[i] - step.rows[i].*found) / largest;
        if (step.rows[i].rank == rank && !(gap <= apart)) apart = std::isnan(gap) ? kInfinity : gap;
      }
    }
    apart = std::max(apart, kSame);
    if (apart < nearest && !wrong.empty()) {
      best = &each;
      nearest = apart / 4;  // a later one must be clearly nearer
    }
  }
  if (!best) return std::nullopt;
  std::size_t flipped = 0;
  for (const AuditedRow& row : step.rows) flipped += row.*found * (row.*expected) < 0 ? 1 : 0;
  return Finding{best->code, kExact,
                 fmt::format("{} of {} {}: {}; {} of {} have the opposite sign", what, ranks_words(wrong), best->words,
                             first_in(step, expected, found), flipped, step.rows.size()), wrong};
}

// Rewards.

std::optional<Values> stale(const AuditedStep& step, int) {
  if (step.before.size() != step.rows.size()) return {};
  return step.before;
}
std::optional<Values> expanded(const AuditedStep& step, int) {
  return Values(step.rows.size(), step.rows.front().expected_reward);
}
/// To the nearest, ties to even.
double as_bfloat16(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>((bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U);
}
Values each_of(Values values, double (*change)(double)) {
  for (double& value : values) value = change(value);
  return values;
}
std::optional<Values> narrowed(const AuditedStep& step, int) {
  return each_of(step.all(&AuditedRow::expected_reward), as_bfloat16);
}
std::optional<Values> sign_lost(const AuditedStep& step, int) {
  return each_of(step.all(&AuditedRow::expected_reward), [](double value) { return -value; });
}
template <bool kMissing>
std::optional<Values> penalised(const AuditedStep& step, int) {
  if (step.penalty == 0 || (!kMissing && step.ranks < 2)) return {};
  const double more = kMissing ? -1 : step.ranks - 1;
  Values values;
  for (const AuditedRow& row : step.rows) values.push_back(row.expected_reward - more * step.penalty * row.cost);
  return values;
}

constexpr Hypothesis kRewardHypotheses[] = {
    {"stale-rewards", stale, "those of the step before, by place"},
    {"reward-expanded", expanded, "the first row's, of every row"},
    {"rewards-narrowed", narrowed, "the reference's, rounded to bfloat16"},
    {"reward-sign-lost", sign_lost, "the reference's with the opposite sign"},
    {"penalty-missing", penalised<true>, "the reference's without the penalty"},
    {"penalty-repeated", penalised<false>, "the reference's with the penalty of every rank"},
};

std::optional<Finding> reward_of_known_mistake(const AuditedStep& step) {
  return best_fit(step, kRewardHypotheses, "rewards", &AuditedRow::expected_reward, &AuditedRow::reward);
}

bool is_zero(const AuditedRow& row) { return row.reward == 0 && row.found_cost == 0; }

std::optional<Finding> reward_not_there(const AuditedStep& step) {
  std::set<int> without, with;
  for (const AuditedRow& row : step.rows) {
    if (is_zero(row) && !step.reward_right(row)) {
      without.insert(row.rank);
    } else if (step.reward_right(row)) {
      with.insert(row.rank);
    } else {
      return std::nullopt;
    }
  }
  if (with.empty()) {
    return Finding{"reward-wrong-root", kExact,
                "every reward and cost is 0 on every rank: the broadcast came from a rank that computes none", {}};
  }
  if (std::ranges::any_of(without, [&](int rank) { return with.contains(rank); })) return std::nullopt;
  return Finding{"reward-not-broadcast", kExact,
              fmt::format("{} {} 0 as reward and cost of every row, {} the reference's", ranks_words(without),
                          without.size() == 1 ? "has" : "have", ranks_words(with)), {}};
}

/// Of the ranks that lack some, the first rows of the batch are right, and all others are 0 or those of the step before.
std::optional<Finding> rewards_partial(const AuditedStep& step) {
  std::set<int> wrong;
  for (const AuditedRow& row : step.rows) {
    if (!step.reward_right(row)) wrong.insert(row.rank);
  }
  std::size_t arrived = 0, stale = 0, missing = 0;
  for (std::size_t i = 0; i < step.rows.size(); ++i) {
    const AuditedRow& row = step.rows[i];
    if (!wrong.contains(row.rank)) continue;
    const bool is_stale = step.before.size() == step.rows.size() && !step.differ(row.reward, step.before[i]);
    if (step.reward_right(row)) {
      if (missing + stale > 0) return std::nullopt;
      ++arrived;
    } else if (is_zero(row)) {
      ++missing;
    } else if (is_stale) {
      ++stale;
    } else {
      return std::nullopt;
    }
  }
  if (arrived == 0 || (missing > 0 && stale > 0)) return std::nullopt;
  return Finding{"rewards-partial", kExact,
                      fmt::format("{}: the first {} rewards are the reference's, and the other {} are {}", ranks_words(wrong), arrived,
                                  missing + stale, stale > 0 ? "those of the step before" : "0"), wrong};
}

/// All others right.
std::optional<Finding> rewards_not_finite(const AuditedStep& step) {
  std::set<int> wrong;
  std::string first;
  for (const AuditedRow& row : step.rows) {
    if (step.reward_right(row)) continue;
    if (std::isfinite(row.reward)) return std::nullopt;
    if (first.empty()) first = fmt::format("the reward of sample {} is {}", row.id, row.reward);
    wrong.insert(row.rank);
  }
  return Finding{"reward-not-finite", kExact, fmt::format("{}: {}, and all others are the reference's", ranks_words(wrong), first), wrong};
}

/// Are they the expected values, in other rows?
bool same_in_other_rows(const AuditedStep& step, double AuditedRow::* expected, double AuditedRow::* found) {
  Values a = step.all(expected), b = step.all(found);
  std::ranges::sort(a);
  std::ranges::sort(b);
  return std::ranges::equal(a, b, [&](double x, double y) { return !step.differ(x, y); });
}

std::optional<Finding> rewards_misordered(const AuditedStep& step) {
  if (!same_in_other_rows(step, &AuditedRow::expected_reward, &AuditedRow::reward) ||
      !same_in_other_rows(step, &AuditedRow::cost, &AuditedRow::found_cost)) {
    return std::nullopt;
  }
  const auto moved = std::ranges::count_if(step.rows, [&](const AuditedRow& row) { return !step.reward_right(row); });
  return Finding{"rewards-misordered", kExact,
              fmt::format("rewards and costs are the reference's, but in other rows: {} of {} rows have another row's", moved,
                          step.rows.size()), {}};
}

/// Rank 0 has the reference's, and nearly all other rows something else.
std::optional<Finding> rewards_not_from_root(const AuditedStep& step) {
  std::size_t wrong = 0, others = 0;
  bool has_root = false;
  for (const AuditedRow& row : step.rows) {
    const bool right = step.reward_right(row);
    if (row.rank == 0 && !right) return std::nullopt;
    has_root = has_root || row.rank == 0;
    others += row.rank == 0 ? 0 : 1;
    wrong += right ? 0 : 1;
  }
  if (!has_root || 10 * wrong < 9 * others) return std::nullopt;
  return Finding{"rewards-not-from-root", kFits,
              fmt::format("rank 0 has the reference's rewards, and {} of the {} rows of the other ranks have others, so these ranks compute "
                          "their own; {}",
                          wrong, others, first_in(step, &AuditedRow::expected_reward, &AuditedRow::reward)), {}};
}

// Advantages.

bool by_batch(const AuditedStep& step) {
  return step.way->estimator == Estimator::global || step.way->estimator == Estimator::group_mean;
}

Moments moments_where(const AuditedStep& step, const auto& takes) {
  Values taken;
  for (const AuditedRow& row : step.rows) {
    if (takes(row)) taken.push_back(row.reward);
  }
  return moments_of(taken);
}
Statistics statistics(const AuditedStep& step, const Moments& moments) {
  return statistics_of(moments, step.way->convention);
}
Moments batch_of(const AuditedStep& step) {
  return moments_where(step, [](const AuditedRow&) { return true; });
}
std::vector<Moments> by_rank(const AuditedStep& step) {
  std::vector<Moments> all;
  for (int rank = 0; rank < step.ranks; ++rank) {
    all.push_back(moments_where(step, [&](const AuditedRow& row) { return row.rank == rank; }));
  }
  return all;
}

Values computed(const Values& values, const std::vector<int64_t>& groups, const AdvantageWay& way) {
  Convention convention = way.convention;
  convention.non_finite = NonFinite::mask;
  return advantages_of({values, groups, {}}, way.estimator, convention).values;
}
std::optional<Values> by_way(const AuditedStep& step, const AdvantageWay& way) {
  return computed(step.all(&AuditedRow::reward), step.groups(), way);
}
std::optional<Values> by_groups(const AuditedStep& step, const auto& group_of) {
  if (step.way->estimator == Estimator::global) return {};
  std::vector<int64_t> groups;
  for (std::size_t i = 0; i < step.rows.size(); ++i) groups.push_back(static_cast<int64_t>(group_of(i)));
  return computed(step.all(&AuditedRow::reward), groups, *step.way);
}

/// The mean of the row's group where the estimator takes it, else the given one; and that deviation.
Values scaled(const AuditedStep& step, double mean, double deviation) {
  std::map<int64_t, Values> groups;
  for (const AuditedRow& row : step.rows) groups[row.group].push_back(row.reward);
  Values values;
  for (const AuditedRow& row : step.rows) {
    const double base = step.way->estimator == Estimator::global ? mean : moments_of(groups[row.group]).mean;
    values.push_back((row.reward - base) / deviation);
  }
  return values;
}
std::optional<Values> of_batch(const AuditedStep& step, const Moments& moments) {
  if (!by_batch(step)) return {};
  const Statistics seen = statistics(step, moments);
  return scaled(step, seen.mean, seen.deviation);
}

/// Which advantage a group of one has, a reference without any does not show.
template <GroupOfOne kOfOne>
std::optional<Values> local_statistics(const AuditedStep& step, int rank) {
  AdvantageWay way = *step.way;
  way.convention.group_of_one = kOfOne;
  Values values;
  std::vector<int64_t> groups;
  for (const AuditedRow& row : step.rows) {
    if (row.rank != rank) continue;
    values.push_back(row.reward);
    groups.push_back(row.group);
  }
  const Values own = computed(values, groups, way);
  Values all(step.rows.size(), 0);
  for (std::size_t i = 0, next = 0; i < all.size(); ++i) {
    if (step.rows[i].rank == rank) all[i] = own[next++];
  }
  return all;
}

template <bool kEmptyToo>
std::optional<Values> mean_of_means(const AuditedStep& step, int) {
  double mean = 0, deviation = 0, ranks = 0;
  bool has_empty = false;
  for (const Moments& each : by_rank(step)) {
    has_empty = has_empty || each.count == 0;
    if (each.count > 0 || kEmptyToo) ++ranks;
    if (each.count == 0) continue;
    mean += each.mean;
    deviation += statistics(step, each).deviation;
  }
  if (!by_batch(step) || (kEmptyToo && !has_empty)) return {};
  return scaled(step, mean / ranks, deviation / ranks);
}

std::optional<Values> between_ranks_missing(const AuditedStep& step, int) {
  Moments within = batch_of(step);
  within.m2 = 0;
  for (const Moments& each : by_rank(step)) within.m2 += each.m2;
  return of_batch(step, within);
}

/// Every rank's rows are filled up with zeros to the most that one has.
std::optional<Values> padding_counted(const AuditedStep& step, int) {
  Values values = step.all(&AuditedRow::reward);
  int64_t most = 0;
  for (const Moments& each : by_rank(step)) most = std::max(most, each.count);
  if (most * step.ranks == static_cast<int64_t>(values.size())) return {};
  values.resize(static_cast<std::size_t>(most * step.ranks));
  return of_batch(step, moments_of(values));
}

std::optional<Values> by_changed(const AuditedStep& step, void (*change)(Convention&)) {
  AdvantageWay way = *step.way;
  change(way.convention);
  return by_way(step, way);
}
std::optional<Values> other_ddof(const AuditedStep& step, int) {
  return by_changed(step, [](Convention& of) { of.ddof = 1 - of.ddof; });
}
std::optional<Values> epsilon_missing(const AuditedStep& step, int) {
  return by_changed(step, [](Convention& of) { of.epsilon = 0; });
}
std::optional<Values> epsilon_misplaced(const AuditedStep& step, int) {
  using enum EpsilonPlace;
  return by_changed(step, [](Convention& of) { of.epsilon_place = of.epsilon_place == inside ? outside : inside; });
}
std::optional<Values> floor_missing(const AuditedStep& step, int) {
  return by_changed(step, [](Convention& of) { of.floor = 0; });
}
std::optional<Values> floor_misplaced(const AuditedStep& step, int) {
  using enum FloorPlace;
  return by_changed(step, [](Convention& of) { of.floor_place = of.floor_place == variance ? deviation : variance; });
}

template <bool kOfAllRanks>
std::optional<Values> of_micro_steps(const AuditedStep& step, int rank) {
  if (!by_batch(step)) return {};
  Values all;
  std::map<int64_t, Values> known;
  for (std::size_t i = 0; i < step.rows.size(); ++i) {
    const int64_t at = step.rows[i].micro_step;
    if (!known.contains(at)) {
      known[at] = *of_batch(step, moments_where(step, [&](const AuditedRow& row) {
        return row.micro_step == at && (kOfAllRanks || row.rank == rank);
      }));
    }
    all.push_back(known[at][i]);
  }
  return all;
}

std::optional<Values> penalty_after_statistics(const AuditedStep& step, int) {
  if (step.penalty == 0) return {};
  Values raw;
  for (const AuditedRow& row : step.rows) raw.push_back(row.reward + step.penalty * row.cost);
  return of_batch(step, moments_of(raw));
}

std::optional<Values> not_normalised(const AuditedStep& step, int) { return step.all(&AuditedRow::reward); }
std::optional<Values> not_divided(const AuditedStep& step, int) {
  if (step.way->estimator == Estimator::leave_one_out) return {};
  return scaled(step, batch_of(step).mean, 1);
}
std::optional<Values> normalised_twice(const AuditedStep& step, int) {
  return computed(step.all(&AuditedRow::expected_advantage), step.groups(), {Estimator::global, step.way->convention});
}
std::optional<Values> over_variance(const AuditedStep& step, int) {
  const Moments all = batch_of(step);
  if (!by_batch(step)) return {};
  return scaled(step, all.mean, std::pow(statistics(step, all).deviation, 2));
}
std::optional<Values> stale_statistics(const AuditedStep& step, int) {
  if (step.before.empty()) return {};
  return of_batch(step, moments_of(step.before));
}
std::optional<Values> advantages_narrowed(const AuditedStep& step, int) {
  return each_of(step.all(&AuditedRow::expected_advantage), as_bfloat16);
}
std::optional<Values> advantages_negated(const AuditedStep& step, int) {
  return each_of(step.all(&AuditedRow::expected_advantage), [](double value) { return -value; });
}
std::optional<Values> baseline_includes_itself(const AuditedStep& step, int) {
  if (step.way->estimator != Estimator::leave_one_out) return {};
  return scaled(step, 0, 1);
}

int64_t group_count(const AuditedStep& step) {
  const std::vector<int64_t> groups = step.groups();
  return static_cast<int64_t>(std::set<int64_t>(groups.begin(), groups.end()).size());
}
std::optional<Values> groups_interleaved(const AuditedStep& step, int) {
  return by_groups(step, [count = group_count(step)](std::size_t i) { return static_cast<int64_t>(i) % count; });
}
std::optional<Values> groups_shifted(const AuditedStep& step, int) {
  const auto size = static_cast<std::size_t>(std::ranges::count(step.rows, step.rows.front().group, &AuditedRow::group));
  return by_groups(step, [size](std::size_t i) { return (i + 1) / size; });
}
std::optional<Values> groups_local(const AuditedStep& step, int) {
  return by_groups(step, [&](std::size_t i) { return step.rows[i].group * 65536 + step.rows[i].rank; });
}
std::optional<Values> one_baseline(const AuditedStep& step, int) {
  if (step.way->estimator != Estimator::leave_one_out) return {};
  return by_groups(step, [](std::size_t) { return 0; });
}
template <int kWhich>
std::optional<Values> other_estimator(const AuditedStep& step, int) {
  const auto estimator = static_cast<Estimator>(kWhich);
  if (estimator == step.way->estimator) return {};
  return by_way(step, {estimator, step.way->convention});
}

constexpr Hypothesis kAdvantageHypotheses[] = {
    {"local-advantage-statistics", local_statistics<GroupOfOne::zero>, "computed only from the rewards of the own rank"},
    {"local-advantage-statistics", local_statistics<GroupOfOne::raw>, "computed only from the rewards of the own rank"},
    {"advantage-mean-of-means", mean_of_means<false>, "of the plain mean of the ranks' means and deviations"},
    {"advantage-empty-rank-counted", mean_of_means<true>, "of the mean of the ranks' means, with 0 of a rank without rows"},
    {"advantage-between-ranks-missing", between_ranks_missing, "of a variance without the part between the ranks"},
    {"advantage-padding-counted", padding_counted, "of statistics that count padded rows as 0"},
    {"advantage-other-ddof", other_ddof, "of a variance by count where count - 1 is meant, or the other way round"},
    {"advantage-epsilon-missing", epsilon_missing, "of a deviation without the epsilon"},
    {"advantage-epsilon-misplaced", epsilon_misplaced, "of a deviation with the epsilon on the other side of the root"},
    {"advantage-floor-missing", floor_missing, "of a deviation without the floor"},
    {"advantage-floor-misplaced", floor_misplaced, "of a floor under the variance where the deviation is meant, or the other way round"},
    {"advantage-of-micro-batch", of_micro_steps<false>, "of the rank's micro-batch alone"},
    {"advantage-of-accumulation-step", of_micro_steps<true>, "of one micro-step of all ranks alone"},
    {"penalty-after-statistics", penalty_after_statistics, "of statistics of rewards from which the penalty is not taken"},
    {"advantages-not-normalised", not_normalised, "the rewards themselves"},
    {"advantages-not-divided", not_divided, "the rewards less their mean, undivided"},
    {"advantages-normalised-twice", normalised_twice, "the reference's, normalised by the batch again"},
    {"variance-for-deviation", over_variance, "divided by the variance"},
    {"stale-advantage-statistics", stale_statistics, "of mean and deviation of the step before"},
    {"advantages-narrowed", advantages_narrowed, "the reference's, rounded to bfloat16"},
    {"reward-sign-lost", advantages_negated, "the reference's with the opposite sign"},
    {"baseline-includes-itself", baseline_includes_itself, "less a mean that includes the row itself"},
    {"groups-interleaved", groups_interleaved, "of groups to which rows are assigned in turn"},
    {"groups-shifted", groups_shifted, "of groups that are cut by place, one row late"},
    {"groups-local", groups_local, "of groups that end at a rank's border"},
    {"one-baseline", one_baseline, "of one baseline for all groups"},
    {"other-estimator", other_estimator<0>, "those of leave one out"},
    {"other-estimator", other_estimator<1>, "those of mean and deviation of the batch"},
    {"other-estimator", other_estimator<2>, "those of mean and deviation of the group"},
    {"other-estimator", other_estimator<3>, "those of the mean of the group and the deviation of the batch"},
};

std::optional<Finding> advantage_of_known_mistake(const AuditedStep& step) {
  return best_fit(step, kAdvantageHypotheses, "rewards are the reference's; advantages", &AuditedRow::expected_advantage,
                  &AuditedRow::advantage);
}

std::optional<Finding> advantages_misordered(const AuditedStep& step) {
  if (!same_in_other_rows(step, &AuditedRow::expected_advantage, &AuditedRow::advantage)) return std::nullopt;
  return Finding{"advantages-misordered", kExact,
              "rewards are the reference's, and advantages are the reference's in other rows: " +
                  first_in(step, &AuditedRow::expected_advantage, &AuditedRow::advantage), {}};
}

/// Rewards and advantages are right, the reference's ratio is 1 in every row, and the cell's is not.
std::optional<Finding> first_ratio_not_one(const AuditedStep& step) {
  std::set<int> wrong;
  double most = 0;
  for (const AuditedRow& row : step.rows) {
    if (std::isnan(row.expected_ratio) || step.differ(row.expected_ratio, 1)) return std::nullopt;
    if (step.differ(row.ratio, 1)) wrong.insert(row.rank);
    most = std::max(most, std::abs(row.ratio - 1));
  }
  if (wrong.empty()) return std::nullopt;
  return Finding{"first-ratio-not-1", kExact,
                 fmt::format("the reference's ratio of new to old probability is 1 in every row, and that of {} is off by up to {}",
                             ranks_words(wrong), short_number(most)), wrong};
}

constexpr std::string_view kOfAll = "r = all_gather(r)\nadvantages = (r - r.mean()) / r.std()";
constexpr std::string_view kGatherFirst = "Gather the rewards before computing their mean and deviation.";
constexpr std::string_view kBroadcastRewards = "dist.broadcast(rewards, src=0)";
constexpr std::string_view kOneConvention = "Use the same function for the deviation on every layout, with the reference's divisor, epsilon and floor.";
constexpr std::string_view kGroupIds = "advantages = r - mean_of_others(r, group_ids)";
constexpr std::string_view kKeepGroupIds = "Gather group ids with the rewards, and group rows by them, not by their place.";

constexpr MistakePage kPages[] = {
    {"reward-not-broadcast", "Rewards stay on the rank that computes them.", "on all ranks except rank 0 every reward and cost is 0",
         "if rank == 0:\n    rewards = score(rollouts)", "if rank == 0:\n    rewards = score(rollouts)\ndist.broadcast(rewards, src=0)",
         "Broadcast rewards from the rank that computes them, before the advantages are computed."},
    {"reward-wrong-root", "Rewards are broadcast from a rank that computes none.", "on every rank every reward and cost is 0",
         "dist.broadcast(rewards, src=1)", kBroadcastRewards, "Broadcast from the rank that computes the rewards."},
    {"rewards-misordered", "Rewards are assigned to the wrong rows.", "rewards are the reference's, but in other rows",
         "rewards = torch.cat(parts)  # not in the rollouts' order", "rewards = torch.cat(parts)[order]",
         "Gather ids with the rewards in the same call, and sort by them."},
    {"stale-rewards", "A rank's rewards are those of the step before.", "they are those that the step before had, by place",
         "dist.broadcast(rewards, src=0, async_op=True)\nuse(rewards)", kBroadcastRewards, "Wait for the broadcast before the buffer is read."},
    {"rewards-partial", "Only the first rewards of the batch arrive.",
         "the first rewards are the reference's, and the others are 0 or those of the step before",
         "dist.broadcast(rewards[: n // 2], src=0)", kBroadcastRewards, "Send as many rewards as the batch has rows."},
    {"reward-expanded", "One reward is used for every row.", "every reward is that of the first row", "rewards = score(rollouts[:1])",
         "rewards = score(rollouts)", "Compare the number of rewards with the number of rows before they are used."},
    {"rewards-narrowed", "Rewards were rounded to 16 bits.", "they are the reference's rounded to bfloat16",
         "dist.broadcast(rewards.bfloat16(), src=0)", kBroadcastRewards, "Send rewards in float32 or float64."},
    {"reward-not-finite", "The reward function gave NaN or infinity.", "rewards of some rows are no numbers, and all others are the reference's",
         "rewards = score(rollouts)", "rewards = score(rollouts)\nassert rewards.isfinite().all()",
         "Check rewards where they are computed, and refuse the step on all ranks or mask the row."},
    {"reward-sign-lost", "A cost is used as a reward.", "rewards or advantages are the reference's with the opposite sign",
         "rewards = cost", "rewards = -cost", "Negate a cost where it becomes a reward, at one place."},
    {"rewards-not-from-root", "Ranks compute rewards of their own instead of using the root's.",
         "rank 0 has the reference's rewards, and nearly all rows of the others have other ones", "rewards = score(rollouts)  # on every rank",
         "if rank == 0:\n    rewards = score(rollouts)\ndist.broadcast(rewards, src=0)",
         "Compute rewards on one rank and broadcast them, or make the reward function the same on every rank."},
    {"penalty-missing", "The penalty is not subtracted from the rewards.", "rewards are the reference's plus the penalty of each row", "r = scores",
         "r = scores - beta * kl", "Subtract the penalty on every layout, before the rewards are gathered."},
    {"penalty-repeated", "The penalty is subtracted once for each rank.", "rewards are the reference's less W - 1 times the penalty of each row",
         "dist.all_reduce(kl)\nr = scores - beta * kl", "r = scores - beta * kl  # of the row's own rank",
         "Gather penalties with the rewards of the same rows; do not sum them over ranks."},
    {"local-advantage-statistics", "Each rank computes advantages from its own rewards only.",
         "rewards are the reference's, but each advantage follows from its own rank's rewards only",
         "advantages = (r - r.mean()) / r.std()", "all = all_gather(r)\nadvantages = (r - all.mean()) / all.std()", kGatherFirst},
    {"advantage-mean-of-means", "Means and deviations of the ranks are averaged.", "advantages follow from the plain mean of the ranks' means and deviations",
         "dist.all_reduce(mean)\nmean /= world_size  # and so the deviation", kOfAll, kGatherFirst},
    {"advantage-empty-rank-counted", "A rank without rows counts as a mean of 0.", "advantages follow from the ranks' means with 0 for a rank without rows",
         "mean = r.mean() if len(r) else 0.0\ndist.all_reduce(mean)", kOfAll, kGatherFirst},
    {"advantage-between-ranks-missing", "The variance lacks the variance between the ranks.",
         "advantages follow from the mean of the ranks' variances", "var = r.var()\ndist.all_reduce(var)\nvar /= world_size", kOfAll, kGatherFirst},
    {"advantage-padding-counted", "Padded rows count in mean and deviation.", "advantages follow from statistics with zeros for padded rows",
         "all = all_gather(pad(r))\nmean = all.mean()", "mean = all[valid].mean()", "Leave padded rows out of mean and deviation."},
    {"advantage-other-ddof", "The variance divides by count where count - 1 is meant, or the other way round.",
         "advantages follow from the other divisor", "std = r.std(unbiased=True)", "std = r.std(unbiased=False)  # as the reference", kOneConvention},
    {"advantage-epsilon-missing", "The epsilon is missing from the deviation.", "advantages follow from a deviation without the epsilon",
         "advantages = (r - mean) / std", "advantages = (r - mean) / (std + eps)", kOneConvention},
    {"advantage-epsilon-misplaced", "The epsilon is on the wrong side of the root.", "advantages follow from the epsilon on the other side",
         "advantages = (r - mean) / (var + eps).sqrt()", "advantages = (r - mean) / (std + eps)", kOneConvention},
    {"advantage-floor-missing", "The least deviation is not applied.", "advantages follow from a deviation without the floor",
         "advantages = (r - mean) / std", "advantages = (r - mean) / std.clamp(min=floor)", kOneConvention},
    {"advantage-floor-misplaced", "The floor is applied to the variance instead of the deviation, or the other way round.",
         "advantages follow from the floor at the other place", "std = var.clamp(min=floor).sqrt()", "std = var.sqrt().clamp(min=floor)", kOneConvention},
    {"advantage-of-micro-batch", "Each micro-batch of a rank is normalised by itself.", "advantages follow from the rank's micro-batch",
         "for part in parts:\n    advantages = normalise(part.r)", kOfAll, "Compute advantages of the whole step before it is cut into micro-batches."},
    {"advantage-of-accumulation-step", "Each micro-step of all ranks is normalised by itself.",
         "advantages follow from one micro-step's rows of all ranks", "for part in parts:\n    advantages = normalise(all_gather(part.r))", kOfAll,
         "Compute advantages of the whole step before it is cut into micro-batches."},
    {"penalty-after-statistics", "Mean and deviation are computed before the penalty is subtracted.",
         "advantages follow from mean and deviation of rewards without the penalty", "mean = scores.mean()\nr = scores - beta * kl",
         "r = scores - beta * kl\nmean = r.mean()", "Subtract the penalty before the rewards are gathered."},
    {"advantages-not-normalised", "Rewards are used as advantages.", "advantages are the rewards", "advantages = r", kOfAll,
         "Normalise the rewards on every rank."},
    {"advantages-not-divided", "Rewards are centred and not divided.", "advantages are the rewards less their mean", "advantages = r - r.mean()", kOfAll,
         kOneConvention},
    {"advantages-normalised-twice", "Advantages are normalised twice.", "they are the reference's, normalised by the batch again",
         "advantages = whiten(group_norm(r))", "advantages = group_norm(r)", "Normalise once: by group or by batch."},
    {"variance-for-deviation", "Advantages are divided by the variance.", "they follow from the variance as the divisor", "advantages = (r - mean) / var",
         "advantages = (r - mean) / var.sqrt()", kOneConvention},
    {"stale-advantage-statistics", "Mean and deviation are those of the step before.", "advantages follow from the rewards of the step before",
         "advantages = (r - kept_mean) / kept_std", kOfAll, "Compute mean and deviation of the step's own rewards."},
    {"advantages-narrowed", "Advantages were rounded to 16 bits.", "they are the reference's rounded to bfloat16", "advantages = advantages.bfloat16()",
         "advantages = advantages.float()", "Keep advantages in float32 at least."},
    {"advantages-misordered", "Advantages are assigned to the wrong rows.", "they are the reference's, but in other rows",
         "advantages = all_advantages[start:end]", "advantages = all_advantages[rows_of(rank)]", "Index gathered advantages by the ids of the rank's rows."},
    {"baseline-includes-itself", "A row's baseline includes the row.", "advantages are rewards less the mean of the whole group", "baseline = r.mean(group)",
         "baseline = (r.sum(group) - r) / (n - 1)", "Leave the row out of its baseline."},
    {"groups-interleaved", "Rows are assigned to groups in turn.", "advantages follow from groups of rows that are one number of groups apart",
         "groups = arange(n) % n_groups", kGroupIds, kKeepGroupIds},
    {"groups-shifted", "Rows are cut into groups at the wrong places.", "advantages follow from groups that begin one row late",
         "groups = r.view(-1, group_size)", kGroupIds, kKeepGroupIds},
    {"groups-local", "Groups are cut at the ranks' borders.", "advantages follow from the part of a group that the row's rank has",
         "advantages = group_norm(own_rows)", kGroupIds, kKeepGroupIds},
    {"one-baseline", "All groups have one baseline.", "advantages follow from the other rows of the whole batch", "advantages = r - mean_of_others(r)",
         kGroupIds, kKeepGroupIds},
    {"other-estimator", "Advantages are computed by another estimator.", "they are those of leave one out, of the batch or of the group",
         "advantages = whiten(r)", "advantages = group_norm(r)", "Use the estimator of the reference."},
    {"first-ratio-not-1", "The ratio of the first update after a rollout is not 1.",
         "the reference's ratio of new to old probability is 1 in every row, and the cell's is not", "old = engine.logprobs",
         "with torch.no_grad():\n    old = model.log_prob(rollouts)", "Compute the old log-probabilities with the trained model, before its first update."},
};

}  // namespace

std::optional<Finding> audit(const AuditedStep& step) {
  const auto right = [&](const AuditedRow& row) { return step.reward_right(row); };
  if (!std::ranges::all_of(step.rows, right)) {
    for (const auto rule : {rewards_not_finite, reward_not_there, rewards_partial, rewards_misordered, reward_of_known_mistake, rewards_not_from_root}) {
      if (auto found = rule(step)) return found;
    }
    return std::nullopt;
  }
  const auto fits = [&](const AuditedRow& row) { return !step.differ(row.expected_advantage, row.advantage); };
  if (std::ranges::all_of(step.rows, fits)) return first_ratio_not_one(step);
  if (!step.way) return std::nullopt;
  if (auto found = advantage_of_known_mistake(step)) return found;
  return advantages_misordered(step);
}

std::span<const MistakePage> mistake_pages() { return kPages; }

}  // namespace lockstep::rewards
