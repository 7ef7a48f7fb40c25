#pragma once
// A trainer's own settings within a run's.

#include <any>
#include <string>
#include <string_view>

#include "harness/base/errors.h"
#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// Of a run of this trainer; const where the run's are.
template <class Own, class Run>
auto& own_settings(Run& config, std::string_view trainer) {
  auto* own = std::any_cast<Own>(&config.own);
  LOCKSTEP_CHECK(own != nullptr, "only runs of the trainer " + std::string(trainer) + " have its settings");
  return *own;
}

}  // namespace lockstep
