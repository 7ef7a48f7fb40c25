#include "harness/verdict/causes/step_gradients.h"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::causes {

std::string StepGradients::text() const {
  std::vector<std::string> lacking;
  for (const std::string& name : judgement->missing) {
    if (!find_tensor(mean, name)) lacking.push_back(name);
  }
  const std::string others = signature_text(*judgement, world);
  return lacking.empty() ? others : fmt::format("no gradient of {}; {}", fmt::join(lacking, ", "), others);
}

std::optional<StepGradients> gradients_of(const CauseInputs& inputs) {
  if (!inputs.forced) return std::nullopt;
  const ForcedEvidence& forced = *inputs.forced;
  const bool local = !forced.local.tensors.empty();
  return StepGradients{&forced, local ? &forced.local : &forced.reduced, &trainer_rules(inputs),
                       local ? mean_of_local(forced.cell) : forced.cell.gradients, world_size_of(inputs),
                       inputs.trainer ? nullptr : declared_of(inputs)};
}

bool lacks_a_gradient(const CauseInputs& inputs) {
  const Divergence& told = inputs.difference.divergence;
  const Phase phase = inputs.difference.phase;
  if (!inputs.forced || told.kind != DivergenceKind::missing || (phase != Phase::local_gradients && phase != Phase::reduced_gradients)) return false;
  if (!find_tensor(inputs.forced->reference.gradients, told.where) || find_tensor(inputs.forced->cell.gradients, told.where)) return false;
  return std::ranges::none_of(inputs.forced->cell.local, [&](const auto& rank) { return find_tensor(rank, told.where) != nullptr; });
}

std::optional<StepGradients> local_of(const CauseInputs& inputs) {
  if (!inputs.forced || (inputs.difference.phase != Phase::local_gradients && !lacks_a_gradient(inputs))) return std::nullopt;
  return inputs.forced->local.tensors.empty() ? std::nullopt : gradients_of(inputs);
}

}  // namespace lockstep::causes
