#include "scenarios/flow_rl/exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "harness/base/json.h"
#include "harness/lib/data/sampler.h"
#include "harness/lib/rewards/advantages.h"

namespace lockstep {
namespace {

constexpr int64_t kMerged = 0, kDelta = 1, kReturn = kObserved, kRows = kObserved + 1, kNumbers = 3;

}  // namespace

RunningStatistics::RunningStatistics() : state_(at::zeros({2, kRows, kNumbers}, at::kDouble)) {}

rewards::Moments RunningStatistics::at(int64_t part, int64_t which) const {
  const double* values = state_.const_data_ptr<double>() + (part * kRows + which) * kNumbers;
  return {static_cast<int64_t>(values[0]), values[1], values[2]};
}

void RunningStatistics::put(int64_t part, int64_t which, const rewards::Moments& moments) {
  double* values = state_.mutable_data_ptr<double>() + (part * kRows + which) * kNumbers;
  values[0] = static_cast<double>(moments.count);
  values[1] = moments.mean;
  values[2] = moments.m2;
}

void RunningStatistics::begin(std::span<const rewards::Moments> seen) {
  for (std::size_t i = 0; i < seen.size(); ++i) put(kMerged, static_cast<int64_t>(i), seen[i]);
}

ObservationScale RunningStatistics::scale() const {
  std::vector<rewards::Moments> merged;
  for (int64_t i = 0; i < kObserved; ++i) merged.push_back(at(kMerged, i));
  return ObservationScale(merged);
}

double RunningStatistics::return_deviation() const {
  constexpr double kLeast = 1e-3;
  const rewards::Moments moments = at(kMerged, kReturn);
  return moments.count < 2 ? 1 : std::max(std::sqrt(moments.m2 / static_cast<double>(moments.count)), kLeast);
}

void RunningStatistics::add(std::span<const rewards::Moments> seen, const rewards::Moments& returns, bool merges) {
  for (int64_t i = 0; i < kRows; ++i) {
    const rewards::Moments delta = merge(at(kDelta, i), i == kReturn ? returns : seen[static_cast<std::size_t>(i)]);
    put(kDelta, i, merges ? rewards::Moments{} : delta);
    if (merges) put(kMerged, i, merge(at(kMerged, i), delta));
  }
}

namespace {

constexpr uint64_t kState = 0x7374617465;  // "state"

at::Tensor tensor_of(const std::vector<int64_t>& values) {
  return at::tensor(at::ArrayRef<int64_t>(values), at::kLong);
}

/// Numbers of an episode that go to all ranks: success, nearer, cost, steps, then moments of what it saw.
constexpr int64_t kOutcome = 4, kOfMoments = 3;

at::Tensor outcomes_of(std::span<const Episode> episodes) {
  const int64_t width = kOutcome + kOfMoments * kObserved;
  at::Tensor outcomes = at::empty({static_cast<int64_t>(episodes.size()), width}, at::kDouble);
  double* out = outcomes.mutable_data_ptr<double>();
  for (const Episode& episode : episodes) {
    *out++ = episode.success ? 1 : 0;
    *out++ = episode.nearer;
    *out++ = episode.cost;
    *out++ = static_cast<double>(episode.steps);
    for (const rewards::Moments& moments : seen_moments(episode)) {
      *out++ = static_cast<double>(moments.count);
      *out++ = moments.mean;
      *out++ = moments.m2;
    }
  }
  return outcomes;
}

/// [rows, 2]: reward and cost.
at::Tensor scores_of(const FlowRlConfig& own, const at::Tensor& outcomes, double scale) {
  const int64_t rows = outcomes.size(0), width = outcomes.size(1);
  at::Tensor scores = at::zeros({rows, 2}, at::kDouble);
  const double* in = outcomes.const_data_ptr<double>();
  double* out = scores.mutable_data_ptr<double>();
  for (int64_t row = 0; row < rows; ++row, in += width) {
    *out++ = reward_of(own, in[0] != 0, in[1], in[2]) / scale;
    *out++ = in[2];
  }
  return scores;
}

/// Where reward and cost are computed, and how they come to all ranks. [rows of all ranks, 2]
at::Tensor exchanged_scores(const RunConfig& config, Comm& comm, int64_t step, const StepRows& rows,
                            const at::Tensor& own_outcomes, const at::Tensor& outcomes, double scale, FlowRlFault* fault) {
  const FlowRlConfig& own = flow_rl(config);
  if (own.reward_source == RewardSource::sharded) {
    return rows.gather(comm, scores_of(own, own_outcomes, scale), step, "rl.rewards");
  }
  if (fault != nullptr && comm.rank() == 0) fault->score(step);
  at::Tensor scores = comm.rank() == 0 ? scores_of(own, outcomes, scale) : at::zeros({rows.size(), 2}, at::kDouble);
  const int root = fault == nullptr ? 0 : fault->reward_root(step, 0);
  if (comm.world_size() > 1 && root >= 0) comm.broadcast(scores, root, "rl.rewards");
  return scores;
}

std::vector<double> advantages_among(const FlowRlConfig& own, const std::vector<double>& rewards,
                                     const std::vector<int64_t>& groups) {
  const rewards::AdvantageWay way = way_of(own);
  return rewards::advantages_of({rewards, groups, {}}, way.estimator, way.convention).values;
}

/// Of each rank's rows by themselves.
std::vector<double> local_advantages(const FlowRlConfig& own, const StepRows& rows, const std::vector<double>& rewards) {
  std::vector<double> advantages(rewards.size(), 0.0);
  const int ranks = rows.owners().empty() ? 0 : *std::ranges::max_element(rows.owners()) + 1;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::size_t> places;
    std::vector<double> of_rank;
    std::vector<int64_t> groups;
    for (std::size_t row = 0; row < rewards.size(); ++row) {
      if (rows.owners()[row] != rank) continue;
      places.push_back(row);
      of_rank.push_back(rewards[row]);
      groups.push_back(rows.groups()[row]);
    }
    const std::vector<double> found = advantages_among(own, of_rank, groups);
    for (std::size_t k = 0; k < places.size(); ++k) advantages[places[k]] = found[k];
  }
  return advantages;
}

int sign_of(double value) { return (value > 0) - (value < 0); }

double flipped_share(const std::vector<double>& one, const std::vector<double>& other) {
  if (one.empty()) return 0;
  std::size_t flipped = 0;
  for (std::size_t row = 0; row < one.size(); ++row) flipped += sign_of(one[row]) * sign_of(other[row]) < 0 ? 1 : 0;
  return static_cast<double>(flipped) / static_cast<double>(one.size());
}

}  // namespace

StepRows::StepRows(const RunConfig& config, Comm& comm, const StepInput& input)
    : tasks_(tasks_of(flow_rl(config))), seed_(config.seed), group_rows_(flow_rl(config).group) {
  const auto count = static_cast<int64_t>(input.step_ids.size());
  const GatheredRows all = gather_rows(comm, {tensor_of(input.step_ids)}, input.step, "rl.ids");
  const int64_t* ids = all.columns[0].const_data_ptr<int64_t>();
  const bool* valid = all.valid.const_data_ptr<bool>();
  const int64_t places = all.valid.numel();
  const int64_t of_rank = places / std::max(comm.world_size(), 1);
  std::vector<std::pair<int64_t, int64_t>> order;  // id, place in what was gathered
  for (int64_t place = 0; place < places; ++place) {
    if (valid[place]) order.emplace_back(ids[place], place);
  }
  std::ranges::sort(order);
  padded_ = places - static_cast<int64_t>(order.size());
  std::vector<int64_t> counts(static_cast<std::size_t>(std::max(comm.world_size(), 1)));
  for (const auto& [id, place] : order) ++counts[static_cast<std::size_t>(place / of_rank)];
  own_.resize(input.step_ids.size());
  // A reference that stands for several ranks knows which of them would have each row.
  const std::vector<int> partitioned = config.oracle_world > 0
                                     ? owners_of_rows(count, config.oracle_world, config.rows, config.data.block)
                                     : std::vector<int>{};
  for (std::size_t row = 0; row < order.size(); ++row) {
    const auto [id, place] = order[row];
    const int64_t rank = of_rank > 0 ? place / of_rank : 0, index = of_rank > 0 ? place % of_rank : 0;
    if (rank == comm.rank()) own_[static_cast<std::size_t>(index)] = row;
    owners_.push_back(partitioned.empty() ? static_cast<int>(rank) : partitioned[static_cast<std::size_t>(index)]);
    ids_.push_back(id);
    // The last one whose first row is at or before it.
    micro_steps_.push_back(((index + 1) * config.accumulation - 1) / counts[static_cast<std::size_t>(rank)]);
    groups_.push_back(static_cast<int64_t>(row) / group_rows_);
    gathered_at_.push_back(place);
  }
}

EpisodeKeys StepRows::keys(std::size_t row) const {
  const auto group = static_cast<std::size_t>(groups_[row]);
  const int64_t context = ids_[group * static_cast<std::size_t>(group_rows_)];
  return {tasks_[group % tasks_.size()], keyed(kState, seed_, context), 0};
}

at::Tensor StepRows::gather(Comm& comm, const at::Tensor& rows, int64_t step, const char* tag) const {
  const GatheredRows all = gather_rows(comm, {rows}, step, tag);
  return all.columns[0].index_select(0, tensor_of(gathered_at_));
}

StepScores score_step(const RunConfig& config, Comm& comm, int64_t step, const StepRows& rows,
                      std::span<const Episode> episodes, double scale, FlowRlFault* fault) {
  const FlowRlConfig& own = flow_rl(config);
  const at::Tensor own_outcomes = outcomes_of(episodes);
  const at::Tensor outcomes = rows.gather(comm, own_outcomes, step, "rl.outcomes");
  at::Tensor scores = exchanged_scores(config, comm, step, rows, own_outcomes, outcomes, scale, fault);
  if (fault != nullptr) scores = fault->scores(step, scores).contiguous();
  StepScores found;
  found.seen.resize(static_cast<std::size_t>(kObserved));
  const double *outcome = outcomes.const_data_ptr<double>(), *score = scores.const_data_ptr<double>();
  for (int64_t row = 0; row < rows.size(); ++row, outcome += outcomes.size(1), score += 2) {
    found.rewards.push_back(score[0]);
    found.costs.push_back(score[1]);
    found.successes.push_back(outcome[0]);
    found.steps.push_back(outcome[3]);
    for (std::size_t i = 0; i < found.seen.size(); ++i) {
      const double* moments = outcome + kOutcome + kOfMoments * static_cast<int64_t>(i);
      found.seen[i] = merge(found.seen[i], {static_cast<int64_t>(moments[0]), moments[1], moments[2]});
    }
  }
  std::vector<double> unscaled = found.rewards;
  for (double& reward : unscaled) reward *= scale;
  found.returns = rewards::moments_of(unscaled);
  const bool local = own.statistics == StatisticsOf::local || (fault != nullptr && fault->local_statistics(step));
  const std::vector<double> whole = advantages_among(own, found.rewards, rows.groups());
  const std::vector<double> of_ranks = local_advantages(own, rows, found.rewards);
  found.flipped = flipped_share(whole, of_ranks);
  found.advantages = local ? of_ranks : whole;
  if (fault != nullptr) {
    const AdvantageRows known{found.rewards, found.costs,        rows.groups(),
                              rows.owners(), rows.micro_steps(), rows.padded()};
    found.advantages = fault->advantages(step, known, std::move(found.advantages));
  }
  return found;
}

}  // namespace lockstep
