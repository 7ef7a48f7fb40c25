#include "scenarios/flow_rl/rollout.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "scenarios/flow_rl/tasks/tasks.h"

namespace lockstep {

Observation observe(const manipulation::Body& body, int task, int horizon) {
  using manipulation::Point;
  Observation seen{};
  std::size_t next = 0;
  const auto add = [&](double value) { seen[next++] = value; };
  const auto add_point = [&](Point point) {
    add(point.x);
    add(point.y);
  };
  add_point(body.hand);
  add_point(body.object);
  add_point(body.goal);
  add_point(body.object - body.hand);
  add_point(body.goal - body.object);
  add_point(body.goal - body.hand);
  for (const double value : body.own) add(value);
  add(body.closed ? 1 : 0);
  add(body.held ? 1 : 0);
  add(static_cast<double>(body.step) / horizon);
  seen[next + static_cast<std::size_t>(task)] = 1;
  return seen;
}

namespace {

void bend(std::span<double> values) {
  for (double& value : values) value /= 1 + std::abs(value);
}

}  // namespace

PlainPolicy::PlainPolicy(const FlowConfig& flow, std::span<const std::vector<double>> parameters)
    : out_(int64_t{flow.chunk} * kActionNumbers) {
  Layer* const layers[] = {&input_, &hidden_, &output_};
  for (std::size_t l = 0; l < 3; ++l) {
    const std::vector<double>& weight = parameters[2 * l];
    Layer& layer = *layers[l];
    layer.bias = parameters[2 * l + 1];
    const std::size_t outputs = layer.bias.size(), inputs = weight.size() / outputs;
    layer.by_input.resize(weight.size());
    for (std::size_t o = 0; o < outputs; ++o) {
      for (std::size_t i = 0; i < inputs; ++i) layer.by_input[i * outputs + o] = weight[o * inputs + i];
    }
  }
}

void PlainPolicy::add_products(const Layer& layer, std::size_t first_input, std::span<const double> inputs,
                               std::span<double> sums) const {
  const std::size_t outputs = sums.size();
  const double* weights = layer.by_input.data() + first_input * outputs;
  for (const double input : inputs) {
    for (std::size_t o = 0; o < outputs; ++o) sums[o] += weights[o] * input;
    weights += outputs;
  }
}

std::vector<double> PlainPolicy::begin_chunk(std::span<const double> observed) const {
  std::vector<double> sums = input_.bias;
  add_products(input_, 0, observed, sums);
  return sums;
}

void PlainPolicy::velocity(std::span<const double> begun, std::span<const double> place, int transition,
                           std::span<double> velocity) const {
  std::vector<double> first(begun.begin(), begun.end());
  add_products(input_, static_cast<std::size_t>(kObserved), place, first);
  const double one = 1;
  add_products(input_, static_cast<std::size_t>(kObserved + out_ + transition), {&one, 1}, first);
  bend(first);
  std::vector<double> second = hidden_.bias;
  add_products(hidden_, 0, first, second);
  bend(second);
  std::copy(output_.bias.begin(), output_.bias.end(), velocity.begin());
  add_products(output_, 0, second, velocity);
}

namespace {

using manipulation::Body;
using manipulation::Draws;

constexpr int kTransitions = FlowConfig::kTransitions;

/// log N(x; mean, sigma^2 I) of C numbers whose squared distance from the mean is `squares`.
double log_normal(double squares, double sigma, int64_t numbers) {
  static const double kLogRoot = 0.5 * std::log(2 * std::numbers::pi);
  return -0.5 * squares / (sigma * sigma) - static_cast<double>(numbers) * (std::log(sigma) + kLogRoot);
}

/// One chunk's chain, from its noise to the actions.
void run_chain(const FlowConfig& flow, const PlainPolicy& policy, std::span<const double> begun, Draws& draws,
               std::span<double> chain, std::span<double> chosen) {
  const auto numbers = static_cast<std::size_t>(policy.numbers());
  for (std::size_t c = 0; c < numbers; ++c) chain[c] = draws.normal();
  std::vector<double> velocity(numbers);
  for (int k = 0; k < kTransitions; ++k) {
    const std::span<const double> place = chain.subspan(static_cast<std::size_t>(k) * numbers, numbers);
    const std::span<double> next = chain.subspan(static_cast<std::size_t>(k + 1) * numbers, numbers);
    policy.velocity(begun, place, k, velocity);
    const double sigma = sigma_of(flow, k);
    double squares = 0;
    for (std::size_t c = 0; c < numbers; ++c) {
      const double noise = draws.normal();
      squares += noise * noise;
      next[c] = place[c] + velocity[c] / kTransitions + sigma * noise;
    }
    chosen[static_cast<std::size_t>(k)] = log_normal(squares * sigma * sigma, sigma, policy.numbers());
  }
}

}  // namespace

ObservationScale::ObservationScale()
    : mean(static_cast<std::size_t>(kObserved), 0.0), deviation(static_cast<std::size_t>(kObserved), 1.0) {}

ObservationScale::ObservationScale(std::span<const rewards::Moments> moments) : ObservationScale() {
  for (std::size_t i = 0; i < mean.size(); ++i) {
    if (moments[i].count == 0) continue;
    mean[i] = moments[i].mean;
    deviation[i] = std::max(std::sqrt(moments[i].m2 / static_cast<double>(moments[i].count)), kLeastDeviation);
  }
}

void ObservationScale::normalise(std::span<const double> seen, std::span<double> normalised) const {
  for (std::size_t i = 0; i < mean.size(); ++i) {
    normalised[i] = std::clamp((seen[i] - mean[i]) / deviation[i], -kMost, kMost);
  }
}

Episode roll_out(const FlowConfig& flow, const PlainPolicy& policy, const ObservationScale& scale,
                 const EpisodeKeys& keys) {
  const manipulation::ManipulationTask& task = manipulation::manipulation_tasks()[static_cast<std::size_t>(keys.task)];
  const auto chunks = static_cast<std::size_t>(chunks_of(flow)), numbers = static_cast<std::size_t>(policy.numbers());
  const std::size_t chain_size = (kTransitions + 1) * numbers;
  Episode episode;
  episode.seen.resize(chunks * static_cast<std::size_t>(kObserved));
  episode.chain.resize(chunks * chain_size);
  episode.chosen.resize(chunks * kTransitions);
  episode.valid.resize(chunks);
  Draws draws(keys.noise);
  Body body = manipulation::begin_task(task, keys.state);
  const double remaining = std::max(task.remaining(body), 1e-9);
  Observation normalised{};
  for (std::size_t chunk = 0; chunk < chunks && !episode.success; ++chunk) {
    const Observation seen = observe(body, keys.task, flow.horizon);
    std::ranges::copy(seen, episode.seen.begin() + static_cast<std::ptrdiff_t>(chunk * seen.size()));
    scale.normalise(seen, normalised);
    const std::span<double> chain = std::span(episode.chain).subspan(chunk * chain_size, chain_size);
    run_chain(flow, policy, policy.begin_chunk(normalised), draws, chain,
              std::span(episode.chosen).subspan(chunk * kTransitions, kTransitions));
    episode.valid[chunk] = 1;
    const std::span<const double> actions = chain.last(numbers);
    for (int step = 0; step < flow.chunk && !episode.success; ++step) {
      const auto at = static_cast<std::size_t>(step * kActionNumbers);
      manipulation::take_step(task, body, {actions[at], actions[at + 1], actions[at + 2]});
      episode.success = task.solved(body);
    }
  }
  episode.nearer = std::clamp(1 - task.remaining(body) / remaining, -1.0, 1.0);
  episode.cost = body.cost;
  episode.steps = body.step;
  // Of a whole episode: in a free run, where one ends may follow rounding, and a stream's use must not.
  episode.draws = chunks * (kTransitions + 1) * numbers * 2;
  return episode;
}

std::vector<rewards::Moments> seen_moments(const Episode& episode) {
  std::vector<rewards::Moments> moments;
  std::vector<double> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(kObserved); ++i) {
    values.clear();
    for (std::size_t chunk = 0; chunk < episode.valid.size(); ++chunk) {
      if (episode.valid[chunk] != 0) values.push_back(episode.seen[chunk * static_cast<std::size_t>(kObserved) + i]);
    }
    moments.push_back(rewards::moments_of(values));
  }
  return moments;
}

double reward_of(const FlowRlConfig& own, bool success, double nearer, double cost) {
  return (success ? 1.0 : 0.0) + own.shaping * (success ? 1.0 : nearer) - own.cost_weight * cost;
}

}  // namespace lockstep
