// Planted bugs in the trainer flow_rl: in its rollouts, its rewards and its log-probabilities.

#include "scenarios/mutants/table.h"

#ifndef LOCKSTEP_MUTANT_DATA_ALONE
#include "scenarios/flow_rl/config.h"
#endif

// One row is one bug; it is easier to read packed than with a line for each of its fields.
// clang-format off

namespace lockstep {
namespace {

#ifndef LOCKSTEP_MUTANT_DATA_ALONE

using Values = std::vector<double>;

struct Plain {
  double mean = 0, variance = 0, count = 0;
};

/// Of some numbers, by the plain formula.
Plain plain(const Values& values, int ddof = 0) {
  Plain seen;
  seen.count = static_cast<double>(values.size());
  for (const double value : values) seen.mean += value / seen.count;
  for (const double value : values) seen.variance += (value - seen.mean) * (value - seen.mean) / (seen.count - ddof);
  return seen;
}
double root_of(double variance) { return std::max(std::sqrt(variance), 1e-4); }

Values scaled(const Values& values, double mean, double deviation) {
  Values all;
  for (const double value : values) all.push_back((value - mean) / deviation);
  return all;
}
Values scaled(const Values& values, const Plain& seen) { return scaled(values, seen.mean, root_of(seen.variance)); }

Values rewards_where(const AdvantageRows& rows, const auto& takes) {
  Values some;
  for (std::size_t i = 0; i < rows.rewards.size(); ++i) {
    if (takes(i)) some.push_back(rows.rewards[i]);
  }
  return some;
}
Values of_owner(const AdvantageRows& rows, int rank) {
  return rewards_where(rows, [&](std::size_t i) { return rows.owners[i] == rank; });
}

/// Mean and deviation of ranks, averaged.
Values averaged(const AdvantageRows& rows, double ranks, bool empty_too) {
  double mean = 0, deviation = 0, count = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Plain seen = plain(of_owner(rows, rank));
    if (seen.count > 0 || empty_too) ++count;
    if (seen.count == 0) continue;
    mean += seen.mean;
    deviation += root_of(seen.variance);
  }
  return scaled(rows.rewards, mean / count, deviation / count);
}

Values within_ranks(const AdvantageRows& rows, double ranks) {
  Plain all = plain(rows.rewards);
  all.variance = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Plain seen = plain(of_owner(rows, rank));
    all.variance += seen.variance * seen.count / static_cast<double>(rows.rewards.size());
  }
  return scaled(rows.rewards, all);
}

Values of_micro_steps(const AdvantageRows& rows, int rank, bool of_all_ranks) {
  Values all(rows.rewards.size());
  for (std::size_t row = 0; row < all.size(); ++row) {
    const auto same = [&](std::size_t i) {
      return rows.micro_steps[i] == rows.micro_steps[row] && (of_all_ranks || rows.owners[i] == rank);
    };
    all[row] = scaled({rows.rewards[row]}, plain(rewards_where(rows, same))).front();
  }
  return all;
}

/// Each row's reward less the mean of the others of its group; `itself`: of all of it.
Values left_out(const AdvantageRows& rows, const auto& group_of, bool itself = false) {
  Values all(rows.rewards.size());
  for (std::size_t row = 0; row < all.size(); ++row) {
    const auto takes = [&](std::size_t i) { return group_of(i) == group_of(row) && (itself || i != row); };
    const Values others = rewards_where(rows, takes);
    if (!others.empty()) all[row] = rows.rewards[row] - plain(others).mean;
  }
  return all;
}
std::size_t first_group(const AdvantageRows& rows) {
  return static_cast<std::size_t>(std::ranges::count(rows.groups, rows.groups.front()));
}

#endif

constexpr const char* kExactWeight = "exact arithmetic weighs a row once, when the losses of all ranks are added up";

constexpr MutantRow kFlowRlRows[] = {
  {{.name = "rollout_policy_stale", .trainer = "flow_rl",
    .help = "rollouts of a rank are made by the policy that training began with: it is never synchronised",
    .draws = {.rank = true},
    .phase = "energies", .where = "terms|inputs", .causes = "stale-rollout-policy", .first_step = 1},
   LOCKSTEP_BUG(PlantedInFlowRl,
     bool never_synchronised(int64_t step) override { return acts(step); })},
  {{.name = "reward_not_broadcast", .trainer = "flow_rl",
    .help = "rewards are computed on rank 0 and not broadcast: the others have zeros",
    .settings = "reward_source=root", .phase = "energies", .where = "terms", .causes = "reward-not-broadcast"},
   LOCKSTEP_FROM_STEP(PlantedInFlowRl, int, reward_root, -1)},
  {{.name = "reward_wrong_root", .trainer = "flow_rl",
    .help = "rewards are computed on rank 0 and broadcast from rank 1, which has none",
    .settings = "reward_source=root", .phase = "collective|energies", .where = "broadcast rl.rewards|terms",
    .causes = "wrong-root reward-wrong-root"},
   LOCKSTEP_FROM_STEP(PlantedInFlowRl, int, reward_root, 1)},
  {{.name = "rewards_misordered", .trainer = "flow_rl",
    .help = "rewards come back one row off: groups get those of other rollouts",
    .phase = "energies", .where = "terms", .causes = "rewards-misordered"},
   LOCKSTEP_SCORES(scores = at::roll(scores, 1, 0);)},
  {{.name = "advantages_local", .trainer = "flow_rl",
    .help = "advantages are made of each rank's own rewards, where those of all ranks were asked for",
    .phase = "energies", .where = "terms", .causes = "local-advantage-statistics"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     bool local_statistics(int64_t step) override { return acts(step); })},
  {{.name = "old_log_pi_low_precision", .trainer = "flow_rl",
    .help = "log-probabilities of the rollout pass through bfloat16",
    .phase = "energies", .where = "terms", .causes = "old-log-pi-in-low-precision", .arithmetic = true},
   LOCKSTEP_FROM_STEP(PlantedInFlowRl, at::Tensor, old_log_pi, right.to(at::kBFloat16).to(right.scalar_type()))},
  {{.name = "chain_noise_redrawn", .trainer = "flow_rl",
    .help = "the update computes log pi of a chain whose noise was drawn again",
    .phase = "energies", .where = "terms", .causes = "chain-drawn-again"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     at::Tensor trained_chains(int64_t step, at::Tensor chains) override {
       if (!acts(step)) return chains;
       // A fixed wave of unit deviation stands for other draws, times the middle deviation.
       const at::Tensor wave = at::arange(chains.numel(), chains.options()).mul(1.7).sin().mul(1.414 * 0.15);
       return chains + wave.reshape(chains.sizes());
     })},
  {{.name = "schedule_of_other_points", .trainer = "flow_rl",
    .help = "the trained policy's deviations are those of a schedule with one point more",
    .report = "verl-project/verl-omni#279", .min_world = 1, .phase = "control", .where = "schedule/deviations",
    .causes = "schedules-differ"},
   // As many points as before are read of a schedule that is stretched over one more.
   LOCKSTEP_BUG(PlantedInFlowRl,
     std::vector<double> schedule(int64_t step, std::vector<double> points) override {
       if (!acts(step)) {
         return points;
       }
       std::vector<double> stretched = points;
       for (std::size_t k = 1; k < points.size(); ++k) {
         const double place = static_cast<double>(k * (points.size() - 1)) / static_cast<double>(points.size());
         const auto below = static_cast<std::size_t>(place);
         stretched[k] = points[below] + (place - static_cast<double>(below)) * (points[below + 1] - points[below]);
       }
       return stretched;
     })},
  {{.name = "sigma_of_next_transition", .trainer = "flow_rl",
    .help = "log pi takes each transition's deviation from the next one",
    .phase = "energies", .where = "terms", .causes = "sigma-of-another-step"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     std::vector<double> trained_sigmas(int64_t step, std::vector<double> sigmas) override {
       if (acts(step)) std::rotate(sigmas.begin(), sigmas.begin() + 1, sigmas.end());
       return sigmas;
     })},
  {{.name = "sigma_terms_missing", .trainer = "flow_rl",
    .help = "log pi of the update goes without the deviations' terms, that of the rollout has them",
    .phase = "energies", .where = "terms", .causes = "sigma-terms-missing"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     bool without_sigma(int64_t step) override { return acts(step); })},
  {{.name = "kl_left_out", .trainer = "flow_rl",
    .help = "a rank's loss goes without the divergence from the cloned policy",
    .settings = "kl=2", .draws = {.rank = true},
    .phase = "loss|local gradients", .causes = "kl-left-out", .first_step = 1},
   LOCKSTEP_FROM_STEP(PlantedInFlowRl, double, kl_weight, 0)},
  {{.name = "log_pi_detached", .trainer = "flow_rl",
    .help = "the ratio is of log pi with itself detached: the loss is right and has no gradient",
    .settings = "kl=0", .phase = "local gradients", .causes = "log-pi-detached"},
   LOCKSTEP_FROM_STEP(PlantedInFlowRl, at::Tensor, log_pi, without_gradient(right))},
  {{.name = "reward_kept_zero", .trainer = "flow_rl",
    .help = "a rank takes part in the broadcast of rewards and reads the zeros of another buffer",
    .settings = "reward_source=root", .draws = {.rank = true},
    .phase = "energies", .where = "terms", .causes = "reward-not-broadcast"},
   LOCKSTEP_SCORES(scores = at::zeros_like(scores);)},
  {{.name = "rewards_of_step_before", .trainer = "flow_rl",
    .help = "a rank reads its rewards before the new ones are in the buffer",
    .draws = {.rank = true}, .phase = "energies", .where = "terms", .causes = "stale-rewards", .first_step = 1},
   LOCKSTEP_BUG(PlantedInFlowRl,
     at::Tensor scores(int64_t step, at::Tensor scores) override {
       const at::Tensor before = std::exchange(before_, scores.clone());
       return acts(step) && before.defined() ? before : scores;
     }
     at::Tensor before_;)},
  {{.name = "rewards_half_received", .trainer = "flow_rl",
    .help = "ranks but the root receive half of the rewards; the rest of their buffer is 0",
    .settings = "reward_source=root", .phase = "energies", .where = "terms", .causes = "rewards-partial"},
   LOCKSTEP_SCORES(if (rank() > 0) scores.narrow(0, scores.size(0) / 2, scores.size(0) - scores.size(0) / 2).zero_();)},
  {{.name = "rewards_half_stale", .trainer = "flow_rl",
    .help = "ranks but the root receive half of the rewards; the rest of their buffer is of the step before",
    .settings = "reward_source=root",
    .phase = "energies", .where = "terms", .causes = "rewards-partial", .first_step = 1},
   LOCKSTEP_BUG(PlantedInFlowRl,
     at::Tensor scores(int64_t step, at::Tensor scores) override {
       const at::Tensor before = std::exchange(before_, scores.clone());
       if (!acts(step) || rank() == 0 || !before.defined()) return scores;
       const int64_t half = scores.size(0) / 2;
       return at::cat({scores.narrow(0, 0, half), before.narrow(0, half, scores.size(0) - half)});
     }
     at::Tensor before_;)},
  {{.name = "reward_buffer_short", .trainer = "flow_rl",
    .help = "the buffer of rewards is one element too short: the last row has 0",
    .phase = "energies", .where = "terms", .causes = "rewards-partial"},
   LOCKSTEP_SCORES(scores.select(0, scores.size(0) - 1).zero_();)},
  {{.name = "rewards_reversed", .trainer = "flow_rl",
    .help = "rewards come back in the opposite order",
    .phase = "energies", .where = "terms", .causes = "rewards-misordered"},
   LOCKSTEP_SCORES(scores = scores.flip(0);)},
  {{.name = "rewards_scored_on_every_rank", .trainer = "flow_rl",
    .help = "every rank computes rewards, by a function with noise of its own",
    .settings = "reward_source=root", .phase = "energies", .where = "terms", .causes = "rewards-not-from-root"},
   LOCKSTEP_SCORES(
     if (rank() == 0) return scores;
     const at::Tensor wave = at::arange(scores.numel(), scores.options()).add(100 * rank()).sin().mul(0.05);
     scores = scores + wave.reshape(scores.sizes());)},
  {{.name = "reward_expanded", .trainer = "flow_rl",
    .help = "one reward is expanded to all rows",
    .phase = "energies", .where = "terms", .causes = "reward-expanded"},
   LOCKSTEP_SCORES(scores = scores.narrow(0, 0, 1).expand_as(scores).clone();)},
  {{.name = "rewards_low_precision", .trainer = "flow_rl",
    .help = "rewards are sent as bfloat16",
    .phase = "energies", .where = "terms", .causes = "rewards-narrowed", .arithmetic = true},
   LOCKSTEP_SCORES(scores = scores.to(at::kBFloat16).to(scores.scalar_type());)},
  {{.name = "costs_as_rewards", .trainer = "flow_rl",
    .help = "a cost is used as a reward: its sign is lost",
    .min_world = 1, .phase = "energies", .where = "terms", .causes = "reward-sign-lost"},
   LOCKSTEP_SCORES(scores.select(1, 0).neg_();)},
  {{.name = "penalty_missing", .trainer = "flow_rl",
    .help = "the cost is not taken off the reward",
    .min_world = 1, .phase = "energies", .where = "terms", .causes = "penalty-missing"},
   LOCKSTEP_SCORES(scores.select(1, 0).add_(scores.select(1, 1), flow_rl(run()).cost_weight);)},
  {{.name = "penalty_summed_over_ranks", .trainer = "flow_rl",
    .help = "the cost is summed over the ranks before it is taken off the reward",
    .phase = "energies", .where = "terms", .causes = "penalty-repeated"},
   LOCKSTEP_SCORES(scores.select(1, 0).sub_(scores.select(1, 1), flow_rl(run()).cost_weight * (world() - 1));)},
  {{.name = "advantages_local_on_one", .trainer = "flow_rl",
    .help = "one rank computes advantages of its own rewards",
    .settings = "advantages=normalised", .draws = {.rank = true},
    .phase = "energies", .where = "terms", .causes = "local-advantage-statistics"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     bool local_statistics(int64_t step) override { return acts(step); })},
  {{.name = "advantages_mean_of_means", .trainer = "flow_rl",
    .help = "means and deviations of ranks are averaged",
    .settings = "advantages=normalised rows=unequal",
    .phase = "energies", .where = "terms", .causes = "advantage-mean-of-means"},
   LOCKSTEP_ADVANTAGES(return averaged(rows, world(), false);)},
  {{.name = "advantages_empty_rank_counted", .trainer = "flow_rl",
    .help = "a rank without rows counts as a mean of 0",
    .settings = "advantages=normalised rows=one_empty", .min_world = 3,
    .phase = "energies", .where = "terms", .causes = "advantage-empty-rank-counted"},
   LOCKSTEP_ADVANTAGES(return averaged(rows, world(), true);)},
  {{.name = "advantages_between_ranks_missing", .trainer = "flow_rl",
    .help = "the variance lacks the part between the ranks",
    .settings = "advantages=normalised",
    .phase = "energies", .where = "terms", .causes = "advantage-between-ranks-missing"},
   LOCKSTEP_ADVANTAGES(return within_ranks(rows, world());)},
  {{.name = "advantages_padding_counted", .trainer = "flow_rl",
    .help = "rows that pad short ranks for the gather count as rewards of 0",
    .settings = "advantages=normalised rows=unequal",
    .phase = "energies", .where = "terms", .causes = "advantage-padding-counted"},
   LOCKSTEP_ADVANTAGES(
     Values with = rows.rewards;
     with.resize(with.size() + static_cast<std::size_t>(rows.padded));
     return scaled(rows.rewards, plain(with));)},
  {{.name = "advantages_other_ddof", .trainer = "flow_rl",
    .help = "the variance divides by count - 1 instead of count",
    .settings = "advantages=normalised", .min_world = 1,
    .phase = "energies", .where = "terms", .causes = "advantage-other-ddof"},
   LOCKSTEP_ADVANTAGES(return scaled(rows.rewards, plain(rows.rewards, 1));)},
  {{.name = "advantages_other_ddof_on_one", .trainer = "flow_rl",
    .help = "on one rank the variance divides by count - 1",
    .settings = "advantages=normalised", .draws = {.rank = true},
    .phase = "energies", .where = "terms", .causes = "advantage-other-ddof"},
   LOCKSTEP_ADVANTAGES(return scaled(rows.rewards, plain(rows.rewards, 1));)},
  {{.name = "advantages_epsilon_missing", .trainer = "flow_rl",
    .help = "the epsilon is left out",
    .settings = "advantages=normalised convention.epsilon=0.05", .min_world = 1,
    .phase = "energies", .where = "terms", .causes = "advantage-epsilon-missing"},
   LOCKSTEP_ADVANTAGES(return scaled(rows.rewards, plain(rows.rewards));)},
  {{.name = "advantages_epsilon_inside", .trainer = "flow_rl",
    .help = "the epsilon is added under the root",
    .settings = "advantages=normalised convention.epsilon=0.05", .min_world = 1,
    .phase = "energies", .where = "terms", .causes = "advantage-epsilon-misplaced"},
   LOCKSTEP_ADVANTAGES(
     const Plain all = plain(rows.rewards);
     return scaled(rows.rewards, all.mean, std::sqrt(all.variance + 0.05));)},
  {{.name = "advantages_floor_missing", .trainer = "flow_rl",
    .help = "the floor is left out",
    .settings = "advantages=normalised convention.floor=2", .min_world = 1,
    .phase = "energies", .where = "terms", .causes = "advantage-floor-missing"},
   LOCKSTEP_ADVANTAGES(
     const Plain all = plain(rows.rewards);
     return scaled(rows.rewards, all.mean, std::sqrt(all.variance));)},
  {{.name = "advantages_floor_of_variance", .trainer = "flow_rl",
    .help = "the floor is applied to the variance",
    .settings = "advantages=normalised convention.floor=4", .min_world = 1,
    .phase = "energies", .where = "terms", .causes = "advantage-floor-misplaced"},
   LOCKSTEP_ADVANTAGES(
     const Plain all = plain(rows.rewards);
     return scaled(rows.rewards, all.mean, std::sqrt(std::max(all.variance, 4.0)));)},
  {{.name = "advantages_of_micro_batch", .trainer = "flow_rl",
    .help = "each micro-batch of a rank is normalised by itself",
    .settings = "advantages=normalised accumulation=2",
    .phase = "energies", .where = "terms", .causes = "advantage-of-micro-batch"},
   LOCKSTEP_ADVANTAGES(return of_micro_steps(rows, rank(), false);)},
  {{.name = "advantages_of_accumulation_step", .trainer = "flow_rl",
    .help = "each micro-step of all ranks is normalised by itself",
    .settings = "advantages=normalised accumulation=2",
    .phase = "energies", .where = "terms", .causes = "advantage-of-accumulation-step"},
   LOCKSTEP_ADVANTAGES(return of_micro_steps(rows, rank(), true);)},
  {{.name = "penalty_after_statistics", .trainer = "flow_rl",
    .help = "mean and deviation are those of rewards from which the cost is not taken yet",
    .settings = "advantages=normalised cost_weight=2", .min_world = 1,
    .phase = "energies", .where = "terms", .causes = "penalty-after-statistics"},
   LOCKSTEP_ADVANTAGES(
     Values raw = rows.rewards;
     for (std::size_t i = 0; i < raw.size(); ++i) raw[i] += 2 * rows.costs[i];
     return scaled(rows.rewards, plain(raw));)},
  {{.name = "advantages_not_normalised", .trainer = "flow_rl",
    .help = "one rank uses rewards as advantages",
    .draws = {.rank = true}, .phase = "energies", .where = "terms", .causes = "advantages-not-normalised"},
   LOCKSTEP_ADVANTAGES(return rows.rewards;)},
  {{.name = "advantages_not_divided", .trainer = "flow_rl",
    .help = "the division is missing",
    .settings = "advantages=normalised", .min_world = 1,
    .phase = "energies", .where = "terms", .causes = "advantages-not-divided"},
   LOCKSTEP_ADVANTAGES(return scaled(rows.rewards, plain(rows.rewards).mean, 1);)},
  {{.name = "advantages_normalised_twice", .trainer = "flow_rl",
    .help = "advantages of groups are normalised by the batch again",
    .min_world = 1,
    .phase = "energies", .where = "terms", .causes = "advantages-normalised-twice"},
   LOCKSTEP_ADVANTAGES(return scaled(right, plain(right));)},
  {{.name = "advantages_over_variance", .trainer = "flow_rl",
    .help = "the divisor is the variance",
    .settings = "advantages=normalised", .min_world = 1,
    .phase = "energies", .where = "terms", .causes = "variance-for-deviation"},
   LOCKSTEP_ADVANTAGES(
     const Plain all = plain(rows.rewards);
     return scaled(rows.rewards, all.mean, all.variance);)},
  {{.name = "advantage_statistics_stale", .trainer = "flow_rl",
    .help = "mean and deviation are those of the step before",
    .settings = "advantages=normalised", .min_world = 1,
    .phase = "energies", .where = "terms", .causes = "stale-advantage-statistics", .first_step = 1},
   LOCKSTEP_BUG(PlantedInFlowRl,
     Values advantages(int64_t step, const AdvantageRows& rows, Values right) override {
       const Values before = std::exchange(before_, rows.rewards);
       return acts(step) && !before.empty() ? scaled(rows.rewards, plain(before)) : right;
     }
     Values before_;)},
  {{.name = "advantages_low_precision", .trainer = "flow_rl",
    .help = "advantages are kept as bfloat16",
    .min_world = 1, .phase = "energies", .where = "terms", .causes = "advantages-narrowed", .arithmetic = true},
   LOCKSTEP_ADVANTAGES(
     for (double& value : right) value = static_cast<float>(c10::BFloat16(static_cast<float>(value)));
     return right;)},
  {{.name = "advantages_of_other_rows", .trainer = "flow_rl",
    .help = "every row has its neighbour's advantage",
    .min_world = 1, .phase = "energies", .where = "terms", .causes = "advantages-misordered"},
   LOCKSTEP_ADVANTAGES(
     std::ranges::rotate(right, right.begin() + 1);
     return right;)},
  {{.name = "baseline_with_itself", .trainer = "flow_rl",
    .help = "a row's baseline includes the row",
    .min_world = 1, .phase = "energies", .where = "terms", .causes = "baseline-includes-itself"},
   LOCKSTEP_ADVANTAGES(return left_out(rows, [&](std::size_t i) { return rows.groups[i]; }, true);)},
  {{.name = "groups_interleaved", .trainer = "flow_rl",
    .help = "rows are assigned to groups in turn",
    .min_world = 1, .phase = "energies", .where = "terms", .causes = "groups-interleaved"},
   LOCKSTEP_ADVANTAGES(
     const auto groups = static_cast<std::size_t>(rows.groups.back() + 1);
     return left_out(rows, [&](std::size_t i) { return i % groups; });)},
  {{.name = "groups_shifted", .trainer = "flow_rl",
    .help = "rows are cut into groups by their place, one row late",
    .min_world = 1, .phase = "energies", .where = "terms", .causes = "groups-shifted"},
   LOCKSTEP_ADVANTAGES(return left_out(rows, [&](std::size_t i) { return (i + 1) / first_group(rows); });)},
  {{.name = "groups_cut_at_ranks", .trainer = "flow_rl",
    .help = "groups are cut at the ranks' borders, and the deviation is the batch's",
    .settings = "advantages=group_mean", .phase = "energies", .where = "terms", .causes = "groups-local"},
   LOCKSTEP_ADVANTAGES(
     const auto part_of = [&](std::size_t i) { return rows.groups[i] * 64 + rows.owners[i]; };
     return scaled(left_out(rows, part_of, true), 0, root_of(plain(rows.rewards).variance));)},
  {{.name = "one_baseline", .trainer = "flow_rl",
    .help = "all groups have one baseline",
    .min_world = 1, .phase = "energies", .where = "terms", .causes = "one-baseline"},
   LOCKSTEP_ADVANTAGES(return left_out(rows, [](std::size_t) { return 0; });)},
  {{.name = "batch_for_group", .trainer = "flow_rl",
    .help = "rows are normalised by batch, where their group is meant",
    .settings = "advantages=group", .min_world = 1, .phase = "energies", .where = "terms", .causes = "other-estimator"},
   LOCKSTEP_ADVANTAGES(return scaled(rows.rewards, plain(rows.rewards));)},
  {{.name = "world_missing_in_weight", .trainer = "flow_rl",
    .help = "the number of ranks is missing from the weight of a row's loss",
    .phase = "loss|local gradients", .causes = "loss-over-world gradient-over-world",
    .beyond_exact = kExactWeight},
   LOCKSTEP_ROW_WEIGHT(world() / (world() * counts.of_step))},
  {{.name = "world_twice_in_weight", .trainer = "flow_rl",
    .help = "the number of ranks is in the weight of a row's loss twice",
    .phase = "loss|local gradients", .causes = "loss-times-world gradient-times-world",
    .beyond_exact = kExactWeight},
   LOCKSTEP_ROW_WEIGHT(world() * world() / counts.of_step)},
  {{.name = "weight_of_own_rows", .trainer = "flow_rl",
    .help = "each rank divides its loss by its own rows",
    .settings = "rows=unequal", .phase = "loss|local gradients", .causes = "mean-of-means",
    .beyond_exact = kExactWeight},
   LOCKSTEP_ROW_WEIGHT(1 / counts.of_rank)},
  {{.name = "accumulation_divided_twice", .trainer = "flow_rl",
    .help = "the division by the number of micro-steps happens twice",
    .settings = "accumulation=4", .min_world = 1,
    .phase = "loss|local gradients", .causes = "constant-factor",
    .beyond_exact = kExactWeight},
   LOCKSTEP_ROW_WEIGHT(world() / (counts.of_step * counts.micro_steps))},
  {{.name = "score_throws", .trainer = "flow_rl",
    .help = "the reward function throws an exception at `step`",
    .settings = "reward_source=root", .min_world = 1, .phase = "failed", .causes = "rank-threw"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     void score(int64_t step) override {
       if (strikes(step)) throw std::runtime_error("planted: rewards throw at step " + std::to_string(step));
     })},
  {{.name = "score_hangs", .trainer = "flow_rl",
    .help = "the reward function does not return at `step`",
    .settings = "reward_source=root", .min_world = 1, .phase = "failed", .causes = "rank-hung"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     void score(int64_t step) override {
       while (strikes(step)) pause();
     })},
  {{.name = "score_not_finite", .trainer = "flow_rl",
    .help = "the reward of the first row is not a number",
    .min_world = 1, .phase = "energies", .where = "terms", .causes = "reward-not-finite"},
   LOCKSTEP_SCORES(scores[0][0] = std::numeric_limits<double>::quiet_NaN();)},
  {{.name = "rollout_temperature", .trainer = "flow_rl",
    .help = "rollouts draw with deviations 1.25 times as large as the update has them",
    .min_world = 1, .phase = "energies", .where = "terms", .causes = "rollout-temperature"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     FlowConfig acted_flow(int64_t step, FlowConfig flow) override {
       for (double* sigma : {&flow.sigma, &flow.sigma_last}) *sigma *= acts(step) ? 1.25 : 1;
       return flow;
     })},
};

}  // namespace

void add_flow_rl_mutants(std::vector<MutantRow>& rows) {
  rows.insert(rows.end(), std::begin(kFlowRlRows), std::end(kFlowRlRows));
}

}  // namespace lockstep
