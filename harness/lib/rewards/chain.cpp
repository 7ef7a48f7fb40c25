#include "harness/lib/rewards/chain.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "harness/base/hashing.h"
#include "harness/base/numbers.h"

namespace lockstep::rewards {
namespace {

std::size_t place(const ChainShape& shape, std::size_t row, int64_t step, int64_t dim) {
  return static_cast<std::size_t>((static_cast<int64_t>(row) * (shape.length + 1) + step) * shape.dims + dim);
}

double mean_of(const ChainPolicy& policy, double x, int64_t step) {
  return policy.gain * x + policy.drift * static_cast<double>(step + 1);
}

double term(double difference, double sigma) {
  return -(difference * difference) / (2 * sigma * sigma) - std::log(sigma) - 0.5 * std::log(2 * std::numbers::pi);
}

}  // namespace

uint64_t ChainPolicy::hash() const { return keyed(std::bit_cast<uint64_t>(gain), std::bit_cast<uint64_t>(drift)); }

double sigma_terms(double sigma, int64_t dims) {
  return -static_cast<double>(dims) * (std::log(sigma) + 0.5 * std::log(2 * std::numbers::pi));
}

Rollout roll_out(const ChainPolicy& policy, std::vector<double> sigmas, std::vector<int64_t> ids, ChainShape shape, uint64_t seed) {
  Rollout rollout{shape, std::move(ids), std::move(sigmas), {}, {}};
  rollout.states.resize(rollout.ids.size() * static_cast<std::size_t>((shape.length + 1) * shape.dims));
  for (std::size_t row = 0; row < rollout.ids.size(); ++row) {
    for (int64_t step = 0; step <= shape.length; ++step) {
      for (int64_t dim = 0; dim < shape.dims; ++dim) {
        const uint64_t key = keyed(seed, rollout.ids[row], step, dim);
        const double noise = standard_normal(unit_interval(keyed(key, 0)), unit_interval(keyed(key, 1)));
        double& state = rollout.states[place(shape, row, step, dim)];
        state = noise;
        if (step == 0) continue;
        state = mean_of(policy, rollout.states[place(shape, row, step - 1, dim)], step - 1) +
                rollout.sigmas[static_cast<std::size_t>(step - 1)] * noise;
      }
    }
  }
  rollout.log_probs = log_probs(policy, rollout.sigmas, rollout);
  return rollout;
}

std::vector<double> log_probs(const ChainPolicy& policy, std::span<const double> sigmas, const Rollout& rollout, SumShape sum) {
  const ChainShape& shape = rollout.shape;
  std::vector<double> all;
  for (std::size_t row = 0; row < rollout.ids.size(); ++row) {
    for (int64_t step = 0; step < shape.length; ++step) {
      double parts[2] = {0, 0};
      for (int64_t dim = 0; dim < shape.dims; ++dim) {
        const double from = rollout.states[place(shape, row, step, dim)], to = rollout.states[place(shape, row, step + 1, dim)];
        double& part = parts[sum == SumShape::in_halves && 2 * dim >= shape.dims ? 1 : 0];
        part += term(to - mean_of(policy, from, step), sigmas[static_cast<std::size_t>(step)]);
      }
      all.push_back(parts[0] + parts[1]);
    }
  }
  return all;
}

std::vector<uint64_t> action_hashes(const Rollout& rollout) {
  const ChainShape& shape = rollout.shape;
  std::vector<uint64_t> hashes;
  for (std::size_t row = 0; row < rollout.ids.size(); ++row) {
    for (int64_t step = 0; step < shape.length; ++step) {
      uint64_t hash = 0;
      for (int64_t dim = 0; dim < shape.dims; ++dim)
        hash = keyed(hash, std::bit_cast<uint64_t>(rollout.states[place(shape, row, step + 1, dim)]));
      hashes.push_back(hash);
    }
  }
  return hashes;
}

}  // namespace lockstep::rewards
