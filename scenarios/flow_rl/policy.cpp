#include "scenarios/flow_rl/policy.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "harness/base/json.h"
#include "harness/lib/data/sharding/tasks.h"
#include "harness/trainers/core/task.h"
#include "scenarios/flow_rl/rollout.h"
#include "scenarios/flow_rl/tasks/tasks.h"

namespace lockstep {
namespace {

constexpr int64_t kTransitions = FlowConfig::kTransitions;

at::Tensor drawn(uint64_t key, at::IntArrayRef shape, int64_t fan_in, at::ScalarType dtype) {
  at::Tensor values = at::empty(shape, at::kFloat);
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  float* out = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    out[i] = static_cast<float>((2 * unit_interval(keyed(key, i)) - 1) * bound);
  }
  return values.to(dtype);
}

at::Tensor bent(const at::Tensor& values) { return values / (values.abs() + 1); }

/// [1, 1, K, 1]
at::Tensor along_transitions(const std::vector<double>& values, const at::Tensor& like) {
  return at::tensor(at::ArrayRef<double>(values), at::kDouble).to(like.scalar_type()).reshape({1, 1, -1, 1});
}

}  // namespace

FlowPolicy::FlowPolicy(const FlowConfig& flow, int64_t seed, at::ScalarType dtype) : flow_(flow), dtype_(dtype) {
  constexpr uint64_t kWeights = 0x77656967687473;  // "weights"
  const int64_t w = flow.hidden, out = int64_t{flow.chunk} * kActionNumbers, in = kObserved + out + kTransitions;
  const auto add = [&](const std::string& layer, int64_t outputs, int64_t inputs) {
    const uint64_t key = keyed(kWeights, seed, parameters_.names.size());
    parameters_.add(layer + ".weight", drawn(key, {outputs, inputs}, inputs, dtype));
    parameters_.add(layer + ".bias", drawn(keyed(key, 1), {outputs}, inputs, dtype));
  };
  add("input", w, in);
  add("hidden", w, w);
  add("output", out, w);
  tensors_ = parameters_.tensors;
}

FlowPolicy FlowPolicy::with(const std::vector<at::Tensor>& tensors, at::ScalarType dtype) const {
  FlowPolicy view = *this;
  view.dtype_ = dtype;
  for (std::size_t i = 0; i < tensors.size(); ++i) view.tensors_[i] = tensors[i].to(dtype);
  return view;
}

at::Tensor FlowPolicy::means(const ChainTensors& chains) const {
  const int64_t rows = chains.chain_BTKC.size(0), chunks = chains.chain_BTKC.size(1), numbers = chains.chain_BTKC.size(3);
  const at::Tensor place_BTKC = chains.chain_BTKC.narrow(2, 0, kTransitions);
  const at::Tensor seen_BTKO = chains.seen_BTO.unsqueeze(2).expand({rows, chunks, kTransitions, kObserved});
  const at::Tensor which_BTKK = at::eye(kTransitions, at::kDouble).expand({rows, chunks, kTransitions, kTransitions});
  const at::Tensor inputs = at::cat({seen_BTKO, place_BTKC, which_BTKK}, 3).to(dtype_).reshape({-1, tensor(0).size(1)});
  const at::Tensor first = bent(at::linear(inputs, tensor(0), tensor(1)));
  const at::Tensor second = bent(at::linear(first, tensor(2), tensor(3)));
  at::Tensor velocity = at::linear(second, tensor(4), tensor(5)).reshape({rows, chunks, kTransitions, numbers});
  if (dtype_ == at::kBFloat16 || dtype_ == at::kHalf) velocity = velocity.to(at::kFloat);
  return place_BTKC.to(velocity.scalar_type()) + velocity / static_cast<double>(kTransitions);
}

PlainPolicy FlowPolicy::plain() const {
  std::vector<std::vector<double>> values;
  for (const at::Tensor& parameter : tensors_) {
    const at::Tensor wide = parameter.detach().to(at::kDouble).contiguous();
    values.emplace_back(wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel());
  }
  return {flow_, values};
}

std::vector<double> sigmas_of(const FlowConfig& flow) {
  std::vector<double> sigmas;
  for (int k = 0; k < FlowConfig::kTransitions; ++k) sigmas.push_back(sigma_of(flow, k));
  return sigmas;
}

at::Tensor log_transitions(const at::Tensor& means_BTKC, const ChainTensors& chains, const std::vector<double>& sigma_K,
                           bool without_sigma) {
  const at::Tensor next_BTKC = chains.chain_BTKC.narrow(2, 1, kTransitions).to(means_BTKC.scalar_type());
  const at::Tensor apart = (next_BTKC - means_BTKC) / along_transitions(sigma_K, means_BTKC);
  std::vector<double> constants;
  for (const double sigma : sigma_K) {
    const double scale = without_sigma ? 0 : std::log(sigma);
    constants.push_back(static_cast<double>(means_BTKC.size(3)) * (scale + 0.5 * std::log(2 * std::numbers::pi)));
  }
  const at::Tensor terms = apart.square().sum(3) * -0.5 - along_transitions(constants, means_BTKC).squeeze(3);
  return at::where(chains.valid_BT.unsqueeze(2), terms, 0.0);
}

at::Tensor divergence(const at::Tensor& means_BTKC, const at::Tensor& other_BTKC, const ChainTensors& chains,
                      const std::vector<double>& sigma_K) {
  const at::Tensor apart = (means_BTKC - other_BTKC) / along_transitions(sigma_K, means_BTKC);
  return at::where(chains.valid_BT, apart.square().sum(at::IntArrayRef{2, 3}) * 0.5, 0.0);
}

namespace {

using manipulation::Action;
using manipulation::Body;
using manipulation::Draws;

constexpr uint64_t kExpert = 0x657870657274;  // "expert"
constexpr uint64_t kBatch = 0x6261746368;     // "batch"
constexpr uint64_t kProbe = 0x70726f6265;     // "probe"
constexpr int kBatchRows = 128, kUpdatesAProbe = 5, kProbes = 100;

/// Chunks of the expert: what was seen before each, and the actions that it then took.
struct Demonstrations {
  std::vector<double> seen;     ///< [rows][O]
  std::vector<double> actions;  ///< [rows][C]
  std::vector<rewards::Moments> moments;
  int64_t rows = 0;
};

void demonstrate(const FlowRlConfig& own, int task, uint64_t key, Demonstrations& all) {
  const manipulation::ManipulationTask& rules = manipulation::manipulation_tasks()[static_cast<std::size_t>(task)];
  Draws draws(keyed(key, 1));
  Body body = manipulation::begin_task(rules, keyed(key, 2));
  bool solved = false;
  for (int chunk = 0; chunk < chunks_of(own.policy) && !solved; ++chunk) {
    const Observation seen = observe(body, task, own.policy.horizon);
    all.seen.insert(all.seen.end(), seen.begin(), seen.end());
    for (int step = 0; step < own.policy.chunk; ++step) {
      Action action = rules.expert(body);
      for (double* part : {&action.x, &action.y, &action.grip}) {
        *part = std::clamp(*part + own.clone.noise * draws.normal(), -1.0, 1.0);
        all.actions.push_back(*part);
      }
      if (solved) continue;
      manipulation::take_step(rules, body, action);
      solved = rules.solved(body);
    }
    ++all.rows;
  }
}

Demonstrations demonstrations_of(const RunConfig& config) {
  const FlowRlConfig& own = flow_rl(config);
  Demonstrations all;
  for (const int task : tasks_of(own)) {
    for (int episode = 0; episode < own.clone.episodes; ++episode) {
      demonstrate(own, task, keyed(kExpert, config.seed, task, episode), all);
    }
  }
  const auto observed = static_cast<std::size_t>(kObserved), rows = static_cast<std::size_t>(all.rows);
  std::vector<double> column(rows);
  for (std::size_t i = 0; i < observed; ++i) {
    for (std::size_t row = 0; row < rows; ++row) column[row] = all.seen[row * observed + i];
    all.moments.push_back(rewards::moments_of(column));
  }
  return all;
}

/// One update: from noise to an action chunk on a straight line, at the grid's places.
at::Tensor flow_loss(const FlowPolicy& policy, const Demonstrations& shown, const ObservationScale& scale, uint64_t key) {
  const int64_t numbers = int64_t{policy.flow().chunk} * kActionNumbers;
  constexpr int64_t kTransitions = FlowConfig::kTransitions;
  Draws draws(key);
  ChainTensors chains{at::empty({kBatchRows, 1, kObserved}, at::kDouble),
                      at::zeros({kBatchRows, 1, kTransitions + 1, numbers}, at::kDouble),
                      at::ones({kBatchRows, 1}, at::kBool)};
  at::Tensor wanted = at::empty({kBatchRows, 1, kTransitions, numbers}, at::kDouble);
  double *seen = chains.seen_BTO.mutable_data_ptr<double>(), *chain = chains.chain_BTKC.mutable_data_ptr<double>(),
         *target = wanted.mutable_data_ptr<double>();
  for (int64_t row = 0; row < kBatchRows; ++row) {
    const auto from = static_cast<std::size_t>(draws.uniform(0, static_cast<double>(shown.rows)));
    scale.normalise(std::span(shown.seen).subspan(from * static_cast<std::size_t>(kObserved),
                                                  static_cast<std::size_t>(kObserved)),
                    {seen + row * kObserved, static_cast<std::size_t>(kObserved)});
    for (int64_t c = 0; c < numbers; ++c) {
      const double noise = draws.normal(), action = shown.actions[from * static_cast<std::size_t>(numbers) + static_cast<std::size_t>(c)];
      for (int64_t k = 0; k <= kTransitions; ++k) {
        const double share = static_cast<double>(k) / kTransitions;
        const double place = noise + (action - noise) * share;
        chain[(row * (kTransitions + 1) + k) * numbers + c] = place;
        if (k < kTransitions) target[(row * kTransitions + k) * numbers + c] = place + (action - noise) / kTransitions;
      }
    }
  }
  return (policy.means(chains) - wanted).square().mean() * static_cast<double>(kTransitions * kTransitions);
}

}  // namespace

std::vector<Tried> try_policy(const FlowRlConfig& own, const PlainPolicy& policy, const ObservationScale& scale,
                              uint64_t key, int episodes) {
  std::vector<Tried> tried;
  for (const int task : tasks_of(own)) {
    Tried sum{.task = task};
    for (int e = 0; e < episodes; ++e) {
      const Episode episode =
          roll_out(own.policy, policy, scale, {task, keyed(key, task, e, 1), keyed(key, task, e, 2)});
      sum.success += episode.success ? 1 : 0;
      sum.reward += reward_of(own, episode.success, episode.nearer, episode.cost);
      sum.cost += episode.cost;
    }
    for (double* part : {&sum.success, &sum.reward, &sum.cost}) *part /= episodes;
    tried.push_back(sum);
  }
  return tried;
}

Cloned clone_expert(const RunConfig& config) {
  const FlowRlConfig& own = flow_rl(config);
  const Demonstrations shown = demonstrations_of(config);
  const ObservationScale scale(shown.moments);
  FlowPolicy policy(own.policy, config.seed, at::kDouble);
  RunConfig adam = config;
  adam.optimizer = OptimizerKind::adam;
  adam.beta1 = 0.9;
  adam.beta2 = 0.999;
  adam.eps = 1e-8;
  adam.weight_decay = 0;
  Optimizer optimizer(adam, policy.parameters());
  Cloned cloned;
  cloned.seen = shown.moments;
  const int probes = std::max<int>(kProbes / static_cast<int>(tasks_of(own).size()), 8);
  const auto probe = [&] {
    const std::vector<Tried> tried = try_policy(own, policy.plain(), scale, keyed(kProbe, config.seed), probes);
    cloned.success = 0;
    for (const Tried& one : tried) cloned.success += one.success / static_cast<double>(tried.size());
    return cloned.success >= own.clone.success;
  };
  while (cloned.updates < own.clone.steps) {
    for (at::Tensor& parameter : policy.parameters().tensors) parameter.mutable_grad() = at::Tensor();
    flow_loss(policy, shown, scale, keyed(kBatch, config.seed, cloned.updates)).backward();
    optimizer.step(own.clone.lr);
    if (++cloned.updates % kUpdatesAProbe == 0 && probe()) break;
  }
  if (cloned.updates == 0 || cloned.updates % kUpdatesAProbe != 0) probe();
  for (const at::Tensor& parameter : policy.parameters().tensors) cloned.parameters.push_back(parameter.detach().clone());
  return cloned;
}

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
