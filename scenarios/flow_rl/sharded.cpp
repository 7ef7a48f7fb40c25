#include "scenarios/flow_rl/sharded.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "harness/lib/data/sharding/tasks.h"
#include "scenarios/flow_rl/tasks/tasks.h"

namespace lockstep {
namespace {

/// Numbers of an episode beside its arrays.
constexpr std::size_t kAlone = 5;

std::size_t packed_size(const Episode& episode) {
  return episode.seen.size() + episode.chain.size() + episode.chosen.size() + episode.valid.size() + kAlone;
}

double* packed(const Episode& episode, double* out) {
  out = std::ranges::copy(episode.seen, out).out;
  out = std::ranges::copy(episode.chain, out).out;
  out = std::ranges::copy(episode.chosen, out).out;
  out = std::ranges::copy(episode.valid, out).out;
  for (const double value : {episode.success ? 1.0 : 0.0, episode.nearer, episode.cost, static_cast<double>(episode.steps),
                             static_cast<double>(episode.draws)}) {
    *out++ = value;
  }
  return out;
}

/// An episode with its arrays' sizes and nothing in them.
Episode blank(const FlowConfig& flow) {
  const auto chunks = static_cast<std::size_t>(chunks_of(flow)), numbers = static_cast<std::size_t>(flow.chunk * kActionNumbers);
  Episode episode;
  episode.seen.resize(chunks * static_cast<std::size_t>(kObserved));
  episode.chain.resize(chunks * (FlowConfig::kTransitions + 1) * numbers);
  episode.chosen.resize(chunks * FlowConfig::kTransitions);
  episode.valid.resize(chunks);
  return episode;
}

void unpack(const double* in, Episode& episode) {
  for (std::vector<double>* part : {&episode.seen, &episode.chain, &episode.chosen}) {
    std::copy_n(in, part->size(), part->begin());
    in += part->size();
  }
  for (uint8_t& valid : episode.valid) valid = *in++ != 0 ? 1 : 0;
  episode.success = in[0] != 0;
  episode.nearer = in[1];
  episode.cost = in[2];
  episode.steps = static_cast<int64_t>(in[3]);
  episode.draws = static_cast<uint64_t>(in[4]);
}

}  // namespace

TaskCosts::TaskCosts() : sums_(at::zeros({kMostTasks, 2}, at::kDouble)) {}

std::vector<double> TaskCosts::of(std::span<const int> tasks, int horizon) const {
  const double* sums = sums_.const_data_ptr<double>();
  std::vector<double> costs;
  for (const int task : tasks) costs.push_back(sums[2 * task] > 0 ? sums[2 * task + 1] / sums[2 * task] : horizon);
  return costs;
}

void TaskCosts::add(const StepRows& rows, std::span<const double> steps) {
  double* sums = sums_.mutable_data_ptr<double>();
  for (std::size_t row = 0; row < steps.size(); ++row) {
    const auto group = static_cast<std::size_t>(rows.groups()[row]);
    const int task = rows.tasks()[rows.task_of_group(group)];
    sums[2 * task] += 1;
    sums[2 * task + 1] += steps[row];
  }
}

RolloutPartition partition_rollouts(const FlowRlConfig& own, const StepRows& rows, const TaskCosts& costs, int ranks) {
  std::vector<std::vector<std::size_t>> groups_of(rows.tasks().size()), rows_of;
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows.size()); ++row) {
    const auto group = static_cast<std::size_t>(rows.groups()[row]);
    if (group >= rows_of.size()) {
      rows_of.emplace_back();
      groups_of[rows.task_of_group(group)].push_back(group);
    }
    rows_of[group].push_back(row);
  }
  const std::vector<double> of_one = costs.of(rows.tasks(), own.policy.horizon);
  std::vector<sharding::Task> tasks;
  std::vector<std::size_t> which;
  for (std::size_t task = 0; task < groups_of.size(); ++task) {
    if (groups_of[task].empty()) continue;
    const auto groups = static_cast<int64_t>(groups_of[task].size());
    const std::string name(manipulation::manipulation_tasks()[static_cast<std::size_t>(rows.tasks()[task])].name);
    tasks.push_back({name, of_one[task] * static_cast<double>(groups), groups});
    which.push_back(task);
  }
  const sharding::AssignOptions options{ranks, own.rollouts_least};
  const sharding::Assignment assigned = sharding::assign_tasks(tasks, options);
  RolloutPartition partition;
  for (const std::vector<sharding::Share>& shares : assigned) {
    std::vector<std::size_t>& mine = partition.rows.emplace_back();
    for (const sharding::Share& share : shares) {
      const std::vector<std::size_t>& groups = groups_of[which[static_cast<std::size_t>(share.task)]];
      const auto count = static_cast<int64_t>(groups.size());
      for (int64_t g = share.part * count / share.parts; g < (share.part + 1) * count / share.parts; ++g) {
        const std::vector<std::size_t>& of_group = rows_of[groups[static_cast<std::size_t>(g)]];
        mine.insert(mine.end(), of_group.begin(), of_group.end());
      }
    }
  }
  partition.imbalance = sharding::finish_s(tasks, assigned) / sharding::fluid_s(tasks, options);
  return partition;
}

std::vector<Episode> hand_over(Comm& comm, int64_t step, const FlowConfig& flow, const StepRows& rows,
                               std::span<const std::size_t> made_rows, std::span<const Episode> made) {
  const auto width = static_cast<int64_t>(packed_size(blank(flow)));
  at::Tensor values = at::empty({static_cast<int64_t>(made.size()), width}, at::kDouble);
  at::Tensor places = at::empty({static_cast<int64_t>(made.size())}, at::kLong);
  double* out = values.mutable_data_ptr<double>();
  for (std::size_t i = 0; i < made.size(); ++i) {
    out = packed(made[i], out);
    places.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(made_rows[i]);
  }
  const GatheredRows all = gather_rows(comm, {values, places}, step, "rl.rollouts");
  const at::Tensor gathered = all.columns[0].contiguous();
  std::vector<int64_t> place_of(static_cast<std::size_t>(rows.size()), 0);
  for (int64_t place = 0; place < all.valid.numel(); ++place) {
    if (all.valid.const_data_ptr<bool>()[place]) {
      place_of[static_cast<std::size_t>(all.columns[1].const_data_ptr<int64_t>()[place])] = place;
    }
  }
  std::vector<Episode> own;
  for (const std::size_t row : rows.own()) {
    unpack(gathered.const_data_ptr<double>() + place_of[row] * width, own.emplace_back(blank(flow)));
  }
  return own;
}

}  // namespace lockstep
