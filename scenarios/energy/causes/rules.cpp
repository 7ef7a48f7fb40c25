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
    case Phase::scores:
      return energy_value_rules();
    case Phase::loss:
      return energy_loss_rules();
    case Phase::local_gradients:
      return energy_gradient_rules();
    default:
      return {};
  }
}

/// Of any model that scores rows against candidates.
constexpr std::array<std::pair<std::string_view, Role>, 6> kDeclaredRoles = {{
    {"row encoder", EnergyRole::context},
    {"candidate encoder", EnergyRole::action},
    {"score head", EnergyRole::head},
    {"temperature", EnergyRole::temperature},
    {"candidate head", EnergyRole::action_head},
    {"other", EnergyRole::other},
}};

std::optional<Role> role_named(std::string_view name) {
  const auto at = std::ranges::find(kDeclaredRoles, name, &std::pair<std::string_view, Role>::first);
  return at == kDeclaredRoles.end() ? std::nullopt : std::optional(at->second);
}

std::span<const Rule> rules_of_roles(Phase phase) {
  if (phase == Phase::loss) return energy_loss_rules();
  return phase == Phase::local_gradients ? energy_role_rules() : std::span<const Rule>();
}

}  // namespace

const TrainerRules& energy_cause_rules() {
  static constexpr TrainerRules kRules{.role_of = role_of,
                                       .rules = rules_of,
                                       .role_named = role_named,
                                       .rules_of_roles = rules_of_roles,
                                       .pages = energy_pages};
  return kRules;
}

}  // namespace lockstep::causes
