#pragma once
// The learning rate of a step, as training takes it and as the judge expects it.

#include "harness/plan/run_config.h"

namespace lockstep {

/// Learning rate of a step: lr * lr_scale * rule(world size) * schedule(step of steps).
double learning_rate(const RunConfig& config, int64_t step);

}  // namespace lockstep
