#include "harness/plan/config/run_config.h"

#include <algorithm>

namespace lockstep {

int64_t steps_to_run(const RunConfig& config) {
  if (config.forced.on()) return static_cast<int64_t>(config.forced.steps.size());
  return config.stop_after > 0 ? std::min(config.stop_after, config.steps) : config.steps;
}

Layout meant_layout(const RunConfig& config) {
  if (config.oracle_world <= 0) return config.layout;
  return {config.oracle_world, config.layout.global_batch() / config.oracle_world};
}

}  // namespace lockstep
