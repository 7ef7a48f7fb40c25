#include "scenarios/energy/causes/rules.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::causes {
namespace {

constexpr std::array<std::pair<std::string_view, Role>, 5> kRoles = {{
    {"context_encoder", EnergyRole::context},
    {"action_encoder", EnergyRole::action},
    {"energy_head", EnergyRole::head},
    {"temperature", EnergyRole::temperature},
    {"action_head", EnergyRole::action_head},
}};

Role role_of(std::string_view group) {
  const auto at = std::ranges::find(kRoles, group, &std::pair<std::string_view, Role>::first);
  return at == kRoles.end() ? Role{EnergyRole::other} : at->second;
}

std::span<const Rule> rules_of(Phase phase) {
  switch (phase) {
    case Phase::energies:
      return energy_value_rules();
    case Phase::loss:
      return energy_loss_rules();
    case Phase::local_gradients:
      return energy_gradient_rules();
    default:
      return {};
  }
}

}  // namespace

const TrainerRules& energy_cause_rules() {
  static constexpr TrainerRules kRules{.role_of = role_of, .rules = rules_of, .pages = energy_pages};
  return kRules;
}

}  // namespace lockstep::causes
