// Causes of a wrong loss of the energy model that rest on the roles of its parameters.

#include <fmt/format.h>

#include "harness/verdict/causes/loss_evidence.h"
#include "harness/verdict/causes/step_gradients.h"
#include "scenarios/energy/causes/rules.h"

namespace lockstep::causes {
namespace {

/// The own slice put back behind the gather, and the loss multiplied by the world size for it.
std::optional<Cause> own_slice_times_world_in_loss(const CauseInputs& inputs) {
  const double world = world_size_of(inputs);
  if (world < 2 || !loss_is(inputs, world)) return std::nullopt;
  const auto gradients = gradients_of(inputs);
  const Signatures signatures = gradients->signatures();
  const bool own_slice = signatures.fits(EnergyRole::context, 1) && signatures.fits(EnergyRole::action, 1) &&
                         signatures.fits(EnergyRole::head, world) &&
                         signatures.fits(EnergyRole::temperature, world) &&
                         signatures.tells(EnergyRole::head);
  if (!own_slice || signatures.all_fit(world)) return std::nullopt;
  return made("gather-own-slice-times-world", kExact,
              fmt::format("the loss is {} times the reference's; {}",
                          factor_text(world, world_size_of(inputs)), gradients->text()));
}

constexpr Rule kEnergyLossRules[] = {own_slice_times_world_in_loss};

}  // namespace

std::span<const Rule> energy_loss_rules() { return kEnergyLossRules; }

}  // namespace lockstep::causes
