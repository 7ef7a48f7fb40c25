#include "harness/verdict/causes/step_gradients.h"

namespace lockstep::causes {

std::optional<StepGradients> gradients_of(const CauseInputs& inputs) {
  if (!inputs.forced) return std::nullopt;
  const ForcedEvidence& forced = *inputs.forced;
  const bool local = !forced.local.tensors.empty();
  return StepGradients{&forced, local ? &forced.local : &forced.reduced, &trainer_rules(inputs),
                       local ? mean_of_local(forced.cell) : forced.cell.gradients, world_size_of(inputs),
                       inputs.trainer ? nullptr : declared_of(inputs)};
}

std::optional<StepGradients> local_of(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::local_gradients || !inputs.forced) return std::nullopt;
  return inputs.forced->local.tensors.empty() ? std::nullopt : gradients_of(inputs);
}

}  // namespace lockstep::causes
