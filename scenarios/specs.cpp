// Every trainer as programs without LibTorch know it. scenarios/table.cpp lists their other halves; a test holds both equal.

#include <array>

#include "harness/plan/config/trainer_spec.h"
#include "scenarios/classify/spec.h"
#include "scenarios/command/spec.h"
#include "scenarios/energy/spec.h"
#include "scenarios/flow_rl/config.h"

namespace lockstep {

std::span<const TrainerSpec* const> trainer_specs() {
  static const std::array kSpecs{&energy_spec(), &classify_spec(), &flow_rl_spec(), &command_spec()};
  return kSpecs;
}

}  // namespace lockstep
