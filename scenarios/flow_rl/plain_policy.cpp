#include "scenarios/flow_rl/plain_policy.h"

#include <algorithm>
#include <cmath>

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

}  // namespace lockstep
