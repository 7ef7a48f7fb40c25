#include "harness/verdict/causes/rules.h"

#include <algorithm>

#include "harness/verdict/config/trainer_spec.h"

namespace lockstep::causes {
namespace {

/// Does the header declare roles, and does the trainer know every one?
bool knows_all_roles(const TrainerRules& rules, const Declared& declared) {
  bool any = false;
  for (const DeclaredParameters& each : declared.parameters) {
    if (each.role.empty()) continue;
    if (!rules.role_named(each.role)) return false;
    any = true;
  }
  return any;
}

}  // namespace

const TrainerRules& trainer_rules(std::string_view trainer) {
  static constexpr TrainerRules kNone;
  const auto all = all_trainer_rules();
  const auto at = std::ranges::find(all, trainer, &RulesOfTrainer::trainer);
  return at == all.end() ? kNone : *at->rules;
}

const TrainerRules& trainer_rules(const CauseInputs& inputs) {
  if (inputs.rules) return *inputs.rules;
  if (inputs.trainer) return trainer_rules(inputs.trainer->name);
  static constexpr TrainerRules kNone;
  const Declared* declared = declared_of(inputs);
  if (!declared) return kNone;
  for (const RulesOfTrainer& each : all_trainer_rules()) {
    if (each.rules->role_named && knows_all_roles(*each.rules, *declared)) return *each.rules;
  }
  return kNone;
}

const Declared* declared_of(const CauseInputs& inputs) {
  return inputs.cell ? inputs.cell->declared.get() : nullptr;
}

}  // namespace lockstep::causes
