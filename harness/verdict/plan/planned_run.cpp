#include "harness/verdict/plan/planned_run.h"

namespace lockstep {

const char* name_of(RunRole role) {
  switch (role) {
    case RunRole::reference:
      return "reference";
    case RunRole::cell:
      return "cell";
    case RunRole::certify:
      return "certify";
    case RunRole::certify_forced:
      return "certify_forced";
    case RunRole::forced_reference:
      return "forced_reference";
    case RunRole::forced_cell:
      return "forced_cell";
    case RunRole::forced_twin:
      return "forced_twin";
    case RunRole::exact_reference:
      return "exact_reference";
    case RunRole::exact_cell:
      return "exact_cell";
    case RunRole::timing:
      return "timing";
  }
  return "?";
}

RunConfig as_it_runs(RunConfig config) {
  if (config.backend == Backend::emulated) config.transport = Transport::gloo;
  return config;
}

RunConfig twin_config(RunConfig forced) {
  forced.forced.twin = true;
  forced.forced.chosen_by.clear();
  return forced;
}

}  // namespace lockstep
