#include "harness/plan/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {

double learning_rate(const RunConfig& config, int64_t step) {
  double rate = config.lr * config.lr_scale;
  if (config.lr_rule == LrRule::linear) {
    rate *= config.layout.world_size;
  } else if (config.lr_rule == LrRule::sqrt) {
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

}  // namespace lockstep
