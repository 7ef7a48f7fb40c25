// Causes of wrong local gradients of the energy model: the mean over ranks against the reference, role by
// role, in closed forms.

#include <fmt/format.h>

#include "harness/verdict/causes/step_gradients.h"
#include "harness/verdict/compare/forced/step.h"
#include "scenarios/energy/causes/rules.h"
#include "scenarios/energy/config.h"

namespace lockstep::causes {
namespace {

/// Factors of the groups; roles that are not named have `rest`.
struct Pattern {
  double context = 1, action = 1, head = 1, temperature = 1, rest = 1;
};

/// Does every group have its factor, and is a factor other than 1 told by a gradient that is not mere
/// rounding?
bool fits(const StepGradients& local, const Pattern& pattern) {
  const Signatures signatures = local.signatures();
  const std::pair<Role, double> roles[] = {
      {EnergyRole::context, pattern.context},  {EnergyRole::action, pattern.action},
      {EnergyRole::head, pattern.head},        {EnergyRole::temperature, pattern.temperature},
      {EnergyRole::action_head, pattern.rest}, {EnergyRole::other, pattern.rest}};
  bool told = false;
  for (const auto& [role, factor] : roles) {
    if (!signatures.fits(role, factor)) return false;
    if (factor == 1 || !signatures.has(role)) continue;
    if (!signatures.tells(role)) return false;
    told = true;
  }
  return told;
}

std::optional<Cause> by_pattern(const CauseInputs& inputs, const char* code, const Pattern& pattern) {
  const auto local = local_of(inputs);
  if (!local || !fits(*local, pattern)) return std::nullopt;
  return made(code, kExact, local->text());
}

double w(const CauseInputs& inputs) { return world_size_of(inputs); }

/// As by_pattern, for mistakes that one process cannot make.
std::optional<Cause> among_ranks(const CauseInputs& inputs, const char* code, const Pattern& pattern) {
  return world_size_of(inputs) > 1 ? by_pattern(inputs, code, pattern) : std::nullopt;
}

std::optional<Cause> gather_without_gradient(const CauseInputs& inputs) {
  return among_ranks(inputs, "gather-without-gradient", {0, 0, 1, 1, 1});
}
std::optional<Cause> gather_own_slice(const CauseInputs& inputs) {
  return among_ranks(inputs, "gather-own-slice", {1 / w(inputs), 1 / w(inputs), 1, 1, 1});
}
std::optional<Cause> own_slice_times_world_in_gradient(const CauseInputs& inputs) {
  return among_ranks(inputs, "gather-own-slice-times-world", {1, 1, w(inputs), w(inputs), 1});
}
std::optional<Cause> candidates_detached(const CauseInputs& inputs) {
  return by_pattern(inputs, "candidates-detached", {1, 0, 1, 1, 1});
}
std::optional<Cause> gather_averaged(const CauseInputs& inputs) {
  return among_ranks(inputs, "gather-averaged", {1, 1 / w(inputs), 1, 1, 1});
}
std::optional<Cause> temperature_reduced_twice(const CauseInputs& inputs) {
  return among_ranks(inputs, "temperature-reduced-twice", {1, 1, 1, w(inputs), 1});
}
std::optional<Cause> head_counted_twice(const CauseInputs& inputs) {
  return by_pattern(inputs, "head-counted-twice", {1, 1, 2, 2, 1});
}
std::optional<Cause> temperature_detached(const CauseInputs& inputs) {
  return by_pattern(inputs, "temperature-detached", {1, 1, 1, 0, 1});
}
std::optional<Cause> context_detached(const CauseInputs& inputs) {
  return by_pattern(inputs, "context-detached", {0, 1, 1, 1, 1});
}

std::optional<Cause> gather_backward_sliced(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  // It has no closed form: of a trainer that is not ours anything may have changed the candidates' gradient.
  if (!local || local->world < 2 || !inputs.trainer) return std::nullopt;
  const Signatures signatures = local->signatures();
  for (const Role role : {EnergyRole::context, EnergyRole::head, EnergyRole::temperature,
                          EnergyRole::action_head, EnergyRole::other}) {
    if (!signatures.inside(role)) return std::nullopt;
  }
  if (!signatures.no_factor_fits(EnergyRole::action) || rank_of_local_fault(*local->evidence) >= 0)
    return std::nullopt;
  return made("gather-backward-sliced", kFits, local->text());
}

std::optional<Cause> candidates_not_detached(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  if (!local) return std::nullopt;
  const Signatures signatures = local->signatures();
  if (!signatures.has(EnergyRole::action_head) || signatures.inside(EnergyRole::action_head)) {
    return std::nullopt;
  }
  // What the predictions are made from may get a gradient too; head and temperature see the same energies.
  if (!signatures.inside(EnergyRole::head) || !signatures.inside(EnergyRole::temperature)) {
    return std::nullopt;
  }
  const bool none = signatures.zero_in_reference(EnergyRole::action_head);
  const bool made_from_predictions =
      inputs.cell_config && (energy(*inputs.cell_config).negatives == Negatives::layer ||
                             energy(*inputs.cell_config).negatives == Negatives::mixed);
  if (!none && !(made_from_predictions && signatures.some_factor_fits_not(EnergyRole::action_head)))
    return std::nullopt;
  return made("candidates-not-detached", none ? kExact : kFits,
              (none ? "the action head has a gradient, and in the reference none: " : "") + local->text());
}

std::optional<Cause> dropout_not_replayed(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  if (!local || !inputs.cell_config || energy(*inputs.cell_config).dropout <= 0) return std::nullopt;
  if (energy(*inputs.cell_config).tile_columns >= inputs.cell_config->layout.global_batch()) return std::nullopt;
  const Signatures signatures = local->signatures();
  if (!signatures.has(EnergyRole::temperature) || !signatures.inside(EnergyRole::temperature)) {
    return std::nullopt;
  }
  for (const Role role : {EnergyRole::context, EnergyRole::action, EnergyRole::head}) {
    if (!signatures.has(role) || signatures.inside(role)) return std::nullopt;
  }
  if (!signatures.no_factor_fits(EnergyRole::action) || rank_of_local_fault(*local->evidence) >= 0)
    return std::nullopt;
  return made(
      "dropout-not-replayed", 0.75,
      fmt::format("tiles of {} columns in two passes with dropout {}: energies, loss and the temperature's "
                  "gradient are right and no other gradient is; {}",
                  energy(*inputs.cell_config).tile_columns, energy(*inputs.cell_config).dropout, local->text()));
}

// Those first that need nothing but roles.
constexpr Rule kEnergyGradientRules[] = {gather_without_gradient,
                           gather_own_slice,
                           own_slice_times_world_in_gradient,
                           candidates_detached,
                           gather_averaged,
                           temperature_reduced_twice,
                           head_counted_twice,
                           temperature_detached,
                           context_detached,
                           gather_backward_sliced,
                           candidates_not_detached,
                           dropout_not_replayed};
constexpr std::size_t kByRolesAlone = 10;

}  // namespace

std::span<const Rule> energy_gradient_rules() { return kEnergyGradientRules; }
std::span<const Rule> energy_role_rules() { return std::span(kEnergyGradientRules).first(kByRolesAlone); }

}  // namespace lockstep::causes
