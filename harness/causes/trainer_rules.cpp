#include "harness/causes/trainer_rules.h"

#include <algorithm>

#include "harness/config/trainer_spec.h"

namespace lockstep::causes {

const TrainerRules& trainer_rules(std::string_view trainer) {
  static constexpr TrainerRules kNone;
  const auto all = all_trainer_rules();
  const auto at = std::ranges::find(all, trainer, &RulesOfTrainer::trainer);
  return at == all.end() ? kNone : *at->rules;
}

const TrainerRules& trainer_rules(const CauseInputs& inputs) {
  if (inputs.rules) return *inputs.rules;
  return trainer_rules(inputs.trainer ? inputs.trainer->name : std::string_view());
}

}  // namespace lockstep::causes
