// Every trainer as programs without LibTorch know it. scenarios/table.cpp lists their other halves; a test holds both equal.

#include <algorithm>
#include <array>

#include "harness/base/errors.h"
#include "harness/config/trainer_spec.h"
#include "scenarios/classify/spec.h"
#include "scenarios/energy/spec.h"

namespace lockstep {

std::span<const TrainerSpec* const> trainer_specs() {
  static const std::array kSpecs{&energy_spec(), &classify_spec()};
  return kSpecs;
}

const TrainerSpec* find_trainer_spec(std::string_view name) {
  const auto specs = trainer_specs();
  const auto at = std::ranges::find(specs, name, &TrainerSpec::name);
  return at == specs.end() ? nullptr : *at;
}

const TrainerSpec& spec_of(const RunConfig& config) {
  const TrainerSpec* spec = find_trainer_spec(config.trainer);
  LOCKSTEP_CHECK(spec != nullptr, "a config's trainer must exist");
  return *spec;
}

}  // namespace lockstep
