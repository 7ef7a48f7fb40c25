#include "scenarios/flow_rl/cloning.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "harness/base/hashing.h"
#include "harness/trainers/core/optimizer.h"
#include "scenarios/flow_rl/tasks/tasks.h"

namespace lockstep {
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

}  // namespace lockstep
