#include "harness/verdict/config/trainer_spec.h"

#include <algorithm>

#include "harness/base/errors.h"

namespace lockstep {

RunConfig::RunConfig() : RunConfig(*trainer_specs().front()) {}

RunConfig::RunConfig(const TrainerSpec& spec) : trainer(spec.name), own(spec.section()) {}

int64_t ModelParameter::elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
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
