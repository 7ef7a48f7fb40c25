#include "harness/suites/checkpoint/toy_trainer/parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/base/hashing.h"
#include "harness/base/keyed_draws.h"

namespace lockstep::toy {

double Scheduler::factor() const {
  constexpr double kWarmUp = 8, kLength = 400;
  const auto at = static_cast<double>(position);
  return std::min(1.0, (at + 1) / kWarmUp) * (1 - 0.5 * std::min(at, kLength) / kLength) * lowered;
}

void Scheduler::after_evaluation(double metric) {
  constexpr int64_t kWait = 2;
  if (metric < best) {
    best = metric;
    worse = 0;
  } else if (++worse >= kWait) {
    lowered *= 0.75;
    worse = 0;
  }
}

void LossScale::after_update(bool overflow) {
  constexpr int64_t kGrowEvery = 2;
  ++good;
  if (!overflow && good < kGrowEvery) return;
  scale = overflow ? std::max(1.0, scale / 2) : scale * 2;
  good = 0;
}

void Normaliser::after_batch(int64_t rows, std::span<const int64_t> sums, std::span<const int64_t> squares) {
  constexpr double kMoves = 0.1;
  if (rows == 0) return;
  for (std::size_t at = 0; at < mean.size(); ++at) {
    const double batch_mean = static_cast<double>(sums[at]) * kUnit / static_cast<double>(rows);
    const double batch_square = static_cast<double>(squares[at]) * kUnit / static_cast<double>(rows);
    mean[at] += kMoves * (batch_mean - mean[at]);
    variance[at] += kMoves * (std::max(0.0, batch_square - batch_mean * batch_mean) - variance[at]);
  }
}

bool Patience::after_evaluation(double metric, int64_t patience) {
  if (metric < best) {
    best = metric;
    left = patience;
    return true;
  }
  --left;
  return false;
}

uint64_t Generator::next() {
  word ^= word >> 12;
  word ^= word << 25;
  word ^= word >> 27;
  return word * 0x2545f4914f6cdd1dULL;
}

void change_controls(int64_t step, Controls& controls, double& base_rate) {
  if (step != 11 && step != 40) return;
  controls.rate *= 0.8;
  base_rate *= 0.8;
  controls.decay *= 1.5;
}

void adam(std::span<const float> gradient, std::span<float> first, std::span<float> second, int64_t update,
          std::span<float> direction) {
  constexpr float kEpsilon = 1e-8F;
  const auto power = static_cast<double>(update);
  const auto first_bias = static_cast<float>(1 - std::pow(static_cast<double>(kBeta1), power));
  const auto second_bias = static_cast<float>(1 - std::pow(static_cast<double>(kBeta2), power));
  for (std::size_t at = 0; at < gradient.size(); ++at) {
    first[at] = kBeta1 * first[at] + (1 - kBeta1) * gradient[at];
    second[at] = kBeta2 * second[at] + (1 - kBeta2) * gradient[at] * gradient[at];
    direction[at] = (first[at] / first_bias) / (std::sqrt(second[at] / second_bias) + kEpsilon);
  }
}

void average(std::span<float> averaged, std::span<const float> parameters) {
  for (std::size_t at = 0; at < averaged.size(); ++at)
    averaged[at] = kAveraged * averaged[at] + (1 - kAveraged) * parameters[at];
}

std::vector<int64_t> order_of(int64_t seed, int64_t epoch, int64_t samples) {
  std::vector<int64_t> ids(static_cast<std::size_t>(samples));
  std::iota(ids.begin(), ids.end(), int64_t{0});
  const KeyedDraws draws(keyed(static_cast<uint64_t>(seed), static_cast<uint64_t>(epoch)));
  for (std::size_t left = ids.size(); left > 1; --left)
    std::swap(ids[left - 1], ids[draws.below(left, static_cast<uint32_t>(left))]);
  return ids;
}

int64_t next_seed(int64_t seed, int64_t epoch) {
  return static_cast<int64_t>(keyed(static_cast<uint64_t>(seed), static_cast<uint64_t>(epoch), 7) >> 33);
}

}  // namespace lockstep::toy
