// Mistakes of statistics and advantages, each written as one would write it: plain loops, no hypothesis of an audit.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "harness/jobs/orders/rewards/mutants.h"

namespace lockstep::rewards {
namespace {

constexpr double kEpsilon = 1e-3;  ///< of the telling case's convention

struct Plain {
  double mean = 0, variance = 0, count = 0;
};

/// Of some numbers, by the plain formula.
Plain plain(const std::vector<double>& values, int ddof = 0) {
  Plain seen;
  for (const double value : values) seen.mean += value;
  seen.count = static_cast<double>(values.size());
  seen.mean /= seen.count;
  for (const double value : values) seen.variance += (value - seen.mean) * (value - seen.mean);
  seen.variance /= seen.count - ddof;
  return seen;
}

std::vector<double> penalised_rows(const AdvantagesSeam& seam, const Rows& rows) {
  std::vector<double> values;
  for (std::size_t i = 0; i < rows.size(); ++i) values.push_back(rows.rewards[i] - seam.at.one.beta * rows.kl[i]);
  return values;
}

template <class Takes>
std::vector<double> taken(const std::vector<double>& values, const Takes& takes) {
  std::vector<double> some;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (takes(i)) some.push_back(values[i]);
  }
  return some;
}

std::vector<double> rows_of_rank(const AdvantagesSeam& seam, int rank) {
  return taken(penalised_rows(seam, seam.all.rows),
               [&](std::size_t i) { return seam.all.rows.counted[i] != 0 && seam.all.ranks[i] == rank; });
}
std::vector<double> rows_of_all(const AdvantagesSeam& seam) {
  return taken(penalised_rows(seam, seam.all.rows), [&](std::size_t i) { return seam.all.rows.counted[i] != 0; });
}

void use(AdvantagesSeam& seam, double mean, double deviation) {
  const std::vector<double> values = penalised_rows(seam, seam.shown.rows);
  for (std::size_t i = 0; i < values.size(); ++i)
    seam.shown.advantages[i] = seam.shown.rows.counted[i] == 0 ? 0 : (values[i] - mean) / deviation;
  seam.shown.mean = mean;
  seam.shown.deviation = deviation;
}
void use(AdvantagesSeam& seam, const Plain& seen) {
  use(seam, seen.mean, std::sqrt(seen.variance) + kEpsilon);
  seam.shown.count = static_cast<int64_t>(seen.count);
}

void of_own_rows(AdvantagesSeam& seam) { use(seam, plain(rows_of_rank(seam, seam.at.rank))); }

void averaged(AdvantagesSeam& seam, bool empty_too) {
  double means = 0, deviations = 0, ranks = 0;
  for (int rank = 0; rank < seam.at.one.world; ++rank) {
    const std::vector<double> rows = rows_of_rank(seam, rank);
    if (!rows.empty() || empty_too) ++ranks;
    if (rows.empty()) continue;
    const Plain seen = plain(rows);
    means += seen.mean;
    deviations += std::sqrt(seen.variance) + kEpsilon;
  }
  use(seam, means / ranks, deviations / ranks);
}
void means_averaged(AdvantagesSeam& seam) { averaged(seam, false); }
void empty_averaged(AdvantagesSeam& seam) { averaged(seam, true); }

void within_alone(AdvantagesSeam& seam) {
  Plain all = plain(rows_of_all(seam));
  all.variance = 0;
  for (int rank = 0; rank < seam.at.one.world; ++rank) {
    const Plain seen = plain(rows_of_rank(seam, rank));
    all.variance += seen.variance * seen.count / all.count;
  }
  use(seam, all);
}

void padded_too(AdvantagesSeam& seam) {
  const Plain seen = plain(penalised_rows(seam, seam.all.rows));
  use(seam, seen);
  const std::vector<double> values = penalised_rows(seam, seam.shown.rows);
  for (std::size_t i = 0; i < values.size(); ++i)
    seam.shown.advantages[i] = (values[i] - seen.mean) / (std::sqrt(seen.variance) + kEpsilon);
}

void bessel(AdvantagesSeam& seam) { use(seam, plain(rows_of_all(seam), 1)); }
void no_epsilon(AdvantagesSeam& seam) {
  const Plain seen = plain(rows_of_all(seam));
  use(seam, seen.mean, std::sqrt(seen.variance));
}
void epsilon_inside(AdvantagesSeam& seam) {
  const Plain seen = plain(rows_of_all(seam));
  use(seam, seen.mean, std::sqrt(seen.variance + kEpsilon));
}
void variance_divides(AdvantagesSeam& seam) {
  const Plain seen = plain(rows_of_all(seam));
  const double deviation = std::sqrt(seen.variance) + kEpsilon;
  use(seam, seen.mean, deviation * deviation);
}
void no_floor(AdvantagesSeam& seam) {
  const Plain seen = plain(rows_of_all(seam));
  use(seam, seen.mean, std::sqrt(seen.variance));
}
void floor_of_variance(AdvantagesSeam& seam) {
  const Plain seen = plain(rows_of_all(seam));
  use(seam, seen.mean, std::sqrt(std::max(seen.variance, seam.at.one.convention.floor)));
}

void squares_less_square(AdvantagesSeam& seam) {
  float sum = 0, squares = 0, count = 0;
  for (const double value : rows_of_all(seam)) {
    const auto narrow = static_cast<float>(value);
    sum += narrow;
    squares += narrow * narrow;
    ++count;
  }
  const float mean = sum / count, variance = squares / count - mean * mean;
  use(seam, mean, std::sqrt(std::max(variance, 0.0f)) + kEpsilon);
}

void of_micro_batches(AdvantagesSeam& seam, bool of_all_ranks) {
  const std::vector<double> all = penalised_rows(seam, seam.all.rows), own = penalised_rows(seam, seam.shown.rows);
  const int64_t parts = 1 + std::ranges::max(seam.all.rows.micro);
  for (int64_t part = 0; part < parts; ++part) {
    const Plain seen = plain(taken(all, [&](std::size_t i) {
      return seam.all.rows.counted[i] != 0 && seam.all.rows.micro[i] == part &&
             (of_all_ranks || seam.all.ranks[i] == seam.at.rank);
    }));
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (seam.shown.rows.micro[i] == part && seam.shown.rows.counted[i] != 0)
        seam.shown.advantages[i] = (own[i] - seen.mean) / (std::sqrt(seen.variance) + kEpsilon);
    }
  }
}
void of_micro_batch(AdvantagesSeam& seam) { of_micro_batches(seam, false); }
void of_one_accumulation_step(AdvantagesSeam& seam) { of_micro_batches(seam, true); }

void kl_after_gather(AdvantagesSeam& seam) {
  use(seam, plain(taken(seam.all.rows.rewards, [&](std::size_t i) { return seam.all.rows.counted[i] != 0; })));
}
/// By the estimator's way, of other numbers than the penalised rewards.
void with_kl_times(AdvantagesSeam& seam, double times) {
  const auto value = [&](const Rows& rows, std::size_t i) { return rows.rewards[i] - times * seam.at.one.beta * rows.kl[i]; };
  std::vector<double> all;
  for (std::size_t i = 0; i < seam.all.rows.size(); ++i) {
    if (seam.all.rows.counted[i] != 0) all.push_back(value(seam.all.rows, i));
  }
  const Plain seen = plain(all);
  for (std::size_t i = 0; i < seam.shown.rows.size(); ++i) {
    if (seam.shown.rows.counted[i] != 0)
      seam.shown.advantages[i] = (value(seam.shown.rows, i) - seen.mean) / (std::sqrt(seen.variance) + kEpsilon);
  }
}
void no_kl(AdvantagesSeam& seam) { with_kl_times(seam, 0); }
void kl_of_every_rank(AdvantagesSeam& seam) { with_kl_times(seam, seam.at.one.world); }
void kl_rows_repeat(AdvantagesSeam& seam) {
  seam.shown.kl_rows = static_cast<int64_t>(seam.all.rows.size()) * seam.at.one.world;
  with_kl_times(seam, seam.at.one.world);
}

void nan_in_sum(AdvantagesSeam& seam) {
  const std::vector<double> values = penalised_rows(seam, seam.all.rows);
  double sum = 0;
  for (const double value : values) sum += value;
  use(seam, sum / static_cast<double>(values.size()), std::numeric_limits<double>::quiet_NaN());
}

void raw(AdvantagesSeam& seam) { use(seam, 0, 1); }
void centred(AdvantagesSeam& seam) { use(seam, plain(rows_of_all(seam)).mean, 1); }

void again(AdvantagesSeam& seam) {
  // The batch's advantages once more, by mean and deviation of the batch.
  const Case& one = seam.at.one;
  std::vector<double> values = penalised_rows(seam, seam.all.rows);
  const std::vector<double> first = advantages_of({values, seam.all.rows.groups, seam.all.rows.counted}, one.estimator, one.convention).values;
  const Plain seen = plain(taken(first, [&](std::size_t i) { return seam.all.rows.counted[i] != 0; }));
  for (std::size_t i = 0; i < seam.shown.rows.size(); ++i) {
    if (seam.shown.rows.counted[i] != 0)
      seam.shown.advantages[i] = (seam.shown.advantages[i] - seen.mean) / (std::sqrt(seen.variance) + kEpsilon);
  }
}

void of_the_step_before(AdvantagesSeam& seam) { use(seam, seam.before->mean, seam.before->deviation); }
void as_float(AdvantagesSeam& seam) {
  for (double& value : seam.shown.advantages) value = static_cast<float>(value);
}
void added_backwards(AdvantagesSeam& seam) {
  std::vector<double> values = rows_of_all(seam);
  std::ranges::reverse(values);
  use(seam, plain(values));
}
void other_rows(AdvantagesSeam& seam) { std::ranges::rotate(seam.shown.advantages, seam.shown.advantages.begin() + 1); }
void as_costs(AdvantagesSeam& seam) {
  for (double& value : seam.shown.advantages) value = -value;
}

/// Group-wise by the estimator's formula, with groups by some rule.
template <class GroupOf>
void grouped(AdvantagesSeam& seam, const GroupOf& group_of, bool includes_itself = false) {
  const std::vector<double> values = penalised_rows(seam, seam.all.rows);
  std::map<int64_t, std::vector<double>> groups;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (seam.all.rows.counted[i] != 0) groups[group_of(i)].push_back(values[i]);
  }
  std::map<int64_t, double> by_id;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (seam.all.rows.counted[i] == 0) continue;
    const std::vector<double>& group = groups[group_of(i)];
    const Plain seen = plain(group);
    double advantage = 0;
    if (group.size() > 1 && seam.at.one.estimator == Estimator::group)
      advantage = (values[i] - seen.mean) / (std::sqrt(seen.variance) + kEpsilon);
    if (group.size() > 1 && seam.at.one.estimator == Estimator::leave_one_out)
      advantage = includes_itself ? values[i] - seen.mean
                                  : values[i] - (seen.mean * seen.count - values[i]) / (seen.count - 1);
    by_id[seam.all.rows.ids[i]] = advantage;
  }
  for (std::size_t i = 0; i < seam.shown.rows.size(); ++i) {
    if (seam.shown.rows.counted[i] != 0) seam.shown.advantages[i] = by_id[seam.shown.rows.ids[i]];
  }
}
void with_itself(AdvantagesSeam& seam) {
  grouped(seam, [&](std::size_t i) { return seam.all.rows.groups[i]; }, true);
}
void in_turn(AdvantagesSeam& seam) {
  const std::set<int64_t> groups(seam.all.rows.groups.begin(), seam.all.rows.groups.end());
  grouped(seam, [&](std::size_t i) { return static_cast<int64_t>(i % groups.size()); });
}
void by_place(AdvantagesSeam& seam) {
  grouped(seam, [](std::size_t i) { return static_cast<int64_t>(i / 4); });
}
void at_rank_borders(AdvantagesSeam& seam) {
  grouped(seam, [&](std::size_t i) { return seam.all.rows.groups[i] * 64 + seam.all.ranks[i]; });
}
void one_group(AdvantagesSeam& seam) {
  grouped(seam, [](std::size_t) { return int64_t{0}; });
}
void batch_for_group(AdvantagesSeam& seam) { use(seam, plain(rows_of_all(seam))); }
void another_count(AdvantagesSeam& seam) { seam.shown.count += 1; }

void by_group(Case& one) { one.estimator = Estimator::group; }
void leave_one_out(Case& one) { one.estimator = Estimator::leave_one_out; }
void with_kl(Case& one) { one.beta = 0.3; }
void on_a_large_mean(Case& one) {
  for (CaseStep& step : one.steps) {
    for (double& reward : step.rows.rewards) reward += 1e4;
  }
}
void with_an_empty_rank(Case& one) {
  for (CaseStep& step : one.steps) {
    for (int& rank : step.ranks) rank = rank == 1 ? 0 : rank;
  }
}
void with_a_floor(Case& one) {
  one.convention = {};
  one.convention.floor = 4;
}
void with_a_masked_nan(Case& one) {
  one.convention.non_finite = NonFinite::mask;
  for (CaseStep& step : one.steps) step.rows.rewards[3] = std::numeric_limits<double>::quiet_NaN();
}
/// The first group loses its last row; those behind it keep their ids and move up by place.
void with_a_short_group(Case& one) {
  one.estimator = Estimator::group;
  for (CaseStep& step : one.steps) {
    CaseStep shorter = step;
    shorter.rows = {};
    shorter.ranks.clear();
    for (std::size_t i = 0; i < step.rows.size(); ++i) {
      if (i == 3) continue;
      shorter.rows.append(step.rows, i);
      shorter.ranks.push_back(step.ranks[i]);
    }
    step = shorter;
  }
}

constexpr Mutant row(std::string_view name, std::string_view cause, std::string_view help, void (*act)(AdvantagesSeam&),
                     void (*prepare)(Case&) = nullptr, int least_ranks = 2) {
  Mutant mutant{name, "advantages", cause, help, least_ranks, true, prepare};
  mutant.advantages = act;
  return mutant;
}
constexpr Mutant one_rank(Mutant mutant) {
  mutant.all_ranks = false;
  return mutant;
}

constexpr std::array kAdvantageMutants{
    row("local_statistics", "local-statistics", "each rank normalises its own rows", of_own_rows),
    one_rank(row("local_on_one", "local-statistics", "one rank normalises its own rows", of_own_rows)),
    row("mean_of_means", "mean-of-means", "means and deviations of ranks are averaged", means_averaged),
    row("empty_rank_counted", "empty-rank-counted", "an empty rank counts as a mean of 0", empty_averaged, with_an_empty_rank, 3),
    row("within_alone", "between-rank-missing", "the variance lacks what lies between the ranks", within_alone),
    row("padded_rows", "padded-rows", "padded rows are counted", padded_too, nullptr, 1),
    row("other_ddof", "other-ddof", "count - 1 divides where the convention says count", bessel, nullptr, 1),
    row("epsilon_missing", "epsilon-missing", "the epsilon is left out", no_epsilon, nullptr, 1),
    row("epsilon_inside", "epsilon-misplaced", "the epsilon stands under the root", epsilon_inside, nullptr, 1),
    row("floor_missing", "floor-missing", "the floor is left out", no_floor, with_a_floor, 1),
    row("floor_misplaced", "floor-misplaced", "the floor holds up the variance", floor_of_variance, with_a_floor, 1),
    row("cancelled_variance", "cancelled-variance", "E[x^2] - E[x]^2 in float32", squares_less_square, on_a_large_mean, 1),
    row("micro_statistics", "micro-statistics", "each micro-batch of a rank is normalised alone", of_micro_batch),
    row("accumulation_split", "accumulation-statistics", "each step of the accumulation is normalised alone", of_one_accumulation_step),
    row("kl_after_gather", "kl-left-out", "KL is subtracted after rewards were gathered", kl_after_gather, with_kl, 1),
    row("kl_missing", "kl-missing", "KL is not subtracted", no_kl, with_kl, 1),
    row("kl_summed", "kl-gathered-twice", "KL terms of every rank are summed by sample", kl_of_every_rank, with_kl),
    row("kl_gathered_twice", "kl-gathered-twice", "KL is gathered twice, and ids repeat", kl_rows_repeat, with_kl),
    row("nan_in_the_sum", "nan-poisoned", "a masked NaN takes part in the sum", nan_in_sum, with_a_masked_nan, 1),
    one_rank(row("not_normalised", "not-normalised", "one rank takes rewards for advantages", raw)),
    row("not_divided", "not-divided", "nothing divides", centred, nullptr, 1),
    row("normalised_twice", "normalised-twice", "what was normalised by group is normalised by batch", again, by_group, 1),
    row("variance_divides", "variance-for-deviation", "the variance divides", variance_divides, nullptr, 1),
    one_rank(row("stale_statistics", "stale-statistics", "one rank uses mean and deviation of the step before", of_the_step_before)),
    one_rank(row("float32_advantages", "advantages-narrowed", "one rank keeps advantages as float32", as_float)),
    one_rank(row("added_backwards", "advantages-rounded", "one rank adds up in another order", added_backwards, on_a_large_mean)),
    one_rank(row("other_rows", "advantages-order-lost", "one rank's advantages stand at other rows", other_rows)),
    row("costs", "sign-lost", "a cost is mistaken for a reward", as_costs, nullptr, 1),
    row("baseline_with_itself", "baseline-includes-itself", "a row's baseline includes the row", with_itself, leave_one_out, 1),
    row("groups_interleaved", "groups-interleaved", "rows are partitioned to groups in turn", in_turn, by_group, 1),
    row("short_group", "groups-shifted", "rows are cut into groups by place after one came short", by_place, with_a_short_group),
    row("groups_at_borders", "groups-local", "groups are cut at the ranks' borders", at_rank_borders, by_group),
    row("one_baseline", "one-baseline", "uneven groups fall through to one baseline", one_group, leave_one_out, 1),
    row("batch_for_group", "other-estimator", "rows are normalised by batch, not by group", batch_for_group, by_group, 1),
    one_rank(row("count_differs", "statistics-differ", "one rank shows another count", another_count)),
};

}  // namespace

std::span<const Mutant> advantage_mutants() { return kAdvantageMutants; }

}  // namespace lockstep::rewards
