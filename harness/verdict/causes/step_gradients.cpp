#include "harness/verdict/causes/step_gradients.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep::causes {
namespace {

/// How many bands a gradient must be long for its factor to mean something.
constexpr double kTelling = 16;

/// The role of a parameter that a header declares: as the rules number it, or else by its place among the declared
/// ones. Without a role of its own it is `other`, where the rules know that.
std::optional<Role> declared_role(const Declared& declared, const std::string& name, const TrainerRules& rules) {
  constexpr Role kBeyondAnyTrainers = 1000;
  const DeclaredParameters* entry = entry_of(declared.parameters, name);
  const bool named = entry && !entry->role.empty();
  if (rules.role_named) return rules.role_named(named ? entry->role : "other");
  if (!named) return std::nullopt;
  const auto first = std::ranges::find(declared.parameters, entry->role, &DeclaredParameters::role);
  return kBeyondAnyTrainers + static_cast<Role>(first - declared.parameters.begin());
}

std::optional<Role> role_of(const std::string& name, const TrainerRules& rules, const Declared* declared) {
  if (declared) return declared_role(*declared, name, rules);
  return rules.role_of ? std::optional(rules.role_of(parameter_group(name))) : std::nullopt;
}

}  // namespace

Signatures::Signatures(const std::vector<NamedTensor>& reference, const std::vector<NamedTensor>& cell,
                       const GradientJudgement& judgement, const TrainerRules& rules, const Declared* declared) {
  for (const TensorUse& use : judgement.tensors) {
    const NamedTensor *expected = find_tensor(reference, use.name), *actual = find_tensor(cell, use.name);
    if (!expected || !actual || expected->values.size() != actual->values.size()) continue;
    const std::optional<Role> role = role_of(use.name, rules, declared);
    tensors_.push_back({role, &expected->values, &actual->values, use.use.band});
  }
  add_missing(reference, cell, judgement, rules, declared);
}

void Signatures::add_missing(const std::vector<NamedTensor>& reference, const std::vector<NamedTensor>& cell, const GradientJudgement& judgement,
                             const TrainerRules& rules, const Declared* declared) {
  double band = 0;
  for (const TensorUse& use : judgement.tensors) band = std::max(band, use.use.band);
  for (const std::string& name : judgement.missing) {
    const NamedTensor* expected = find_tensor(reference, name);
    if (!expected || find_tensor(cell, name) || judgement.tensors.empty()) continue;
    zeros_.push_back(std::make_unique<const std::vector<double>>(expected->values.size(), 0.0));
    tensors_.push_back({role_of(name, rules, declared), &expected->values, zeros_.back().get(), band});
  }
}

bool Signatures::fits(const Pair& pair, double factor) {
  double squares = 0;
  for (std::size_t i = 0; i < pair.reference->size(); ++i) {
    const double gap = (*pair.cell)[i] - factor * (*pair.reference)[i];
    squares += gap * gap;
  }
  return std::sqrt(squares) <= (1 + std::abs(factor)) * pair.band;
}

bool Signatures::tells(const Pair& pair) { return norm(*pair.reference) > kTelling * pair.band; }

bool Signatures::fits(Role role, double factor) const {
  return std::all_of(tensors_.begin(), tensors_.end(),
                     [&](const Pair& pair) { return pair.role != role || fits(pair, factor); });
}

bool Signatures::all_fit(double factor) const {
  const auto is_told = [&](const Pair& pair) { return std::abs(factor - 1) * norm(*pair.reference) > kTelling * pair.band; };
  return std::ranges::any_of(tensors_, is_told) &&
         std::all_of(tensors_.begin(), tensors_.end(), [&](const Pair& pair) { return fits(pair, factor); });
}

bool Signatures::tells(Role role) const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [&](const Pair& pair) { return pair.role == role && tells(pair); });
}

bool Signatures::has(Role role) const {
  return std::any_of(tensors_.begin(), tensors_.end(), [&](const Pair& pair) { return pair.role == role; });
}

bool Signatures::no_factor_fits(const Pair& pair) {
  double dot = 0, own = 0;
  for (std::size_t i = 0; i < pair.reference->size(); ++i) {
    dot += (*pair.cell)[i] * (*pair.reference)[i];
    own += (*pair.reference)[i] * (*pair.reference)[i];
  }
  const double factor = own > 0 ? dot / own : 0;
  double rest = 0;
  for (std::size_t i = 0; i < pair.reference->size(); ++i) {
    rest = std::hypot(rest, (*pair.cell)[i] - factor * (*pair.reference)[i]);
  }
  // Well beyond rounding, and a good part of the gradient itself.
  return rest > kTelling * pair.band && rest >= 0.1 * norm(*pair.cell);
}

bool Signatures::no_factor_fits(Role role) const {
  return has(role) && std::all_of(tensors_.begin(), tensors_.end(), [&](const Pair& pair) {
           return pair.role != role || no_factor_fits(pair);
         });
}

bool Signatures::some_factor_fits_not(Role role) const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [&](const Pair& pair) { return pair.role == role && no_factor_fits(pair); });
}

bool Signatures::part_of_a_role_fits(double factor) const {
  const auto outside = [](const Pair& pair) { return !fits(pair, 1); };
  const auto first = std::find_if(tensors_.begin(), tensors_.end(), outside);
  if (first == tensors_.end() || !first->role) return false;
  bool told = false, rest_is_right = false;
  for (const Pair& pair : tensors_) {
    if (!outside(pair)) {
      rest_is_right = rest_is_right || (pair.role == first->role && tells(pair) && !fits(pair, factor));
      continue;
    }
    if (pair.role != first->role || !fits(pair, factor)) return false;
    told = told || tells(pair);
  }
  return told && rest_is_right;
}

bool Signatures::zero_in_reference(Role role) const {
  return std::all_of(tensors_.begin(), tensors_.end(), [&](const Pair& pair) {
    return pair.role != role || norm(*pair.reference) <= pair.band;
  });
}

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
