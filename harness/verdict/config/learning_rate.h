#pragma once
// The learning rate of a step and Adam's other numbers, as training takes them and as the judge expects them.

#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// Learning rate of a step: lr * lr_scale * rule(world size) * schedule(step of steps).
double learning_rate(const RunConfig& config, int64_t step);

/// What Adam's update takes beside the rate.
struct AdamNumbers {
  double beta1 = 0, beta2 = 0, eps = 0;
};

/// The config's own numbers, except under the rule adam_sqrt: with k ranks, whose batch is k times one
/// rank's, 1 - beta1 and 1 - beta2 are multiplied by k and eps is divided by sqrt k, besides the rate times
/// sqrt k (Malladi et al. 2022, arXiv 2205.10287, definition 4). Betas stay in [0, 1).
AdamNumbers adam_numbers(const RunConfig& config);

/// Does the rule leave Adam any memory: k (1 - beta) < 1 for both betas? True of every other rule.
bool fits_adam_sqrt(const RunConfig& config);

}  // namespace lockstep
