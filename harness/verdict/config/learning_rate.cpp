#include "harness/verdict/config/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {
namespace {

/// 0.9 is no binary fraction: 10 (1 - 0.9) comes out below 1 by rounding alone.
constexpr double kRounding = 1e-9;

double scaled_beta(double beta, double ranks) { return std::clamp(1 - ranks * (1 - beta), 0.0, beta); }

}  // namespace

double learning_rate(const RunConfig& config, int64_t step) {
  double rate = config.lr * config.lr_scale;
  if (config.lr_rule == LrRule::linear) {
    rate *= config.layout.world_size;
  } else if (config.lr_rule == LrRule::sqrt || config.lr_rule == LrRule::adam_sqrt) {
    rate *= std::sqrt(static_cast<double>(config.layout.world_size));
  }
  if (config.schedule != Schedule::constant && step < config.warmup_steps) {
    return rate * static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  }
  if (config.schedule == Schedule::cosine) {
    const int64_t span = std::max<int64_t>(1, config.steps - config.warmup_steps);
    const double progress = static_cast<double>(step - config.warmup_steps) / static_cast<double>(span);
    return rate * 0.5 * (1 + std::cos(std::numbers::pi * progress));
  }
  return rate;
}

AdamNumbers adam_numbers(const RunConfig& config) {
  const double ranks = config.layout.world_size;
  if (config.lr_rule != LrRule::adam_sqrt || ranks == 1) return {config.beta1, config.beta2, config.eps};
  return {scaled_beta(config.beta1, ranks), scaled_beta(config.beta2, ranks), config.eps / std::sqrt(ranks)};
}

bool fits_adam_sqrt(const RunConfig& config) {
  if (config.lr_rule != LrRule::adam_sqrt) return true;
  const double shorter = 1 - std::min(config.beta1, config.beta2);
  return config.layout.world_size * shorter < 1 - kRounding;
}

}  // namespace lockstep
