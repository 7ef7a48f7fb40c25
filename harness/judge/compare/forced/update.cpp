#include "harness/judge/compare/forced/update.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "harness/judge/compare/bits.h"

namespace lockstep {
namespace {

/// Roundings that one operation after the other may add up to, with room.
constexpr double kRoundings = 16;

/// Everything that the elements of a tensor share.
struct UpdateArithmetic {
  const UpdateInputs& inputs;
  const UpdateVariant& variant;
  double rate = 0, factor = 1, decay = 0, count = 1, epsilon = 0;
  AdamNumbers adam = {};
  bool adaptive = false, decoupled = false, first_moment = false;
};

UpdateArithmetic arithmetic_of(const UpdateInputs& inputs, const std::string& name, const UpdateVariant& variant,
                         double epsilon) {
  const UpdateFacts& facts = inputs.facts;
  UpdateArithmetic a{inputs, variant};
  a.rate = variant.rate.value_or(inputs.learning_rate) * variant.rate_factor.value_or(facts.rate_factor_of(name));
  a.factor = variant.clip.value_or(clip_factor(inputs.clip_norm, inputs.gradient_norm));
  a.decay = variant.weight_decay.value_or(facts.decay_of(name)) * variant.decay;
  a.adam = facts.adam;
  a.adaptive = facts.optimizer != OptimizerKind::sgd;
  a.decoupled = (facts.optimizer == OptimizerKind::adamw) != variant.other_coupling;
  a.count = (variant.zero_count ? 0 : inputs.state.updates.value_or(0)) + 1 + variant.count_ahead;
  a.epsilon = epsilon;
  return a;
}

struct Element {
  double parameter = 0, gradient = 0, first = 0, second = 0;
};

/// Value and allowance of one element after the update.
std::pair<double, double> updated(const UpdateArithmetic& a, const Element& it) {
  const UpdateFacts& facts = a.inputs.facts;
  double parameter = it.parameter, gradient = it.gradient * a.factor;
  double size = std::abs(gradient);
  if (a.decay != 0 && a.adaptive && a.decoupled) {
    parameter *= 1 - a.rate * a.decay;
  } else if (a.decay != 0) {
    gradient += a.decay * parameter;
    size += std::abs(a.decay * parameter);
  }
  double change = 0, uncertain = 0;
  if (!a.adaptive) {
    double direction = gradient;
    if (facts.momentum != 0 && a.first_moment) {
      direction = facts.momentum * it.first + gradient;
      size += std::abs(facts.momentum * it.first);
    }
    change = -a.rate * direction;
    uncertain = a.rate * size;
  } else {
    const double first = it.first + (1 - a.adam.beta1) * (gradient - it.first);
    const double second = a.adam.beta2 * it.second + (1 - a.adam.beta2) * gradient * gradient;
    const double root = std::sqrt(second) / std::sqrt(1 - std::pow(a.adam.beta2, a.count));
    const double step = a.rate / (1 - std::pow(a.adam.beta1, a.count));
    change = -step * first / (root + a.adam.eps);
    // The moment's own rounding, divided as the moment is, and that of the quotient.
    uncertain = step * (std::abs(it.first) + size) / (root + a.adam.eps) + std::abs(change);
  }
  const double value = parameter + change;
  const double allowance = kRoundings * a.epsilon * (std::abs(it.parameter) + std::abs(value) + uncertain);
  return {value, allowance + std::numeric_limits<float>::denorm_min()};
}

}  // namespace

double clip_factor(double clip_norm, double gradient_norm) {
  if (clip_norm <= 0) return 1;
  return std::min(1.0, clip_norm / (gradient_norm + 1e-6));
}

double reduced_norm(const ForcedValues& values) {
  return values.gradient_norm ? *values.gradient_norm : whole_norm(values.gradients);
}

bool knows_norm(const ForcedValues& values) {
  return values.gradient_norm || std::ranges::none_of(values.gradients, &NamedTensor::may_be_shard);
}

std::optional<UpdateInputs> update_inputs(const Snapshot& state, const ForcedValues& values,
                                          const TrainingFacts& facts) {
  if (!values.learning_rate || !facts.update) return std::nullopt;
  const bool taken = !values.applied.empty();
  if (!taken && facts.clip_norm > 0 && !knows_norm(values)) return std::nullopt;
  return UpdateInputs{state,         taken ? values.applied : values.gradients, reduced_norm(values), *values.learning_rate,
                      *facts.update, taken ? 0 : facts.clip_norm};
}

std::optional<PredictedTensor> predict_update(const UpdateInputs& inputs, const std::string& name,
                                              const UpdateVariant& variant) {
  const NamedTensor* before = find_tensor(inputs.state.tensors, name);
  const NamedTensor* gradient = find_tensor(inputs.gradients, name);
  if (!before || !gradient || before->shape != gradient->shape) return std::nullopt;
  UpdateArithmetic a = arithmetic_of(inputs, name, variant, std::min(before->epsilon, gradient->epsilon));
  const NamedTensor* first = find_tensor(inputs.state.tensors, "first_moment/" + name);
  const NamedTensor* second = find_tensor(inputs.state.tensors, "second_moment/" + name);
  // Before the first update they are 0, whether or not anybody recorded them.
  const bool none_yet = inputs.state.updates == 0 && !first && !second;
  const bool fits = (!first || first->shape == before->shape) && (!second || second->shape == before->shape);
  const bool lacks = !inputs.state.updates || !fits || (a.adaptive && (!first || !second) && !none_yet) ||
                     (!a.adaptive && inputs.facts.momentum != 0 && !first && *inputs.state.updates > 0);
  // Without the optimizer's state, a right update cannot be told from one that forgot the state.
  if (lacks && (a.adaptive || inputs.facts.momentum != 0)) return std::nullopt;
  a.first_moment = first && *inputs.state.updates > 0 && !variant.zero_moments;
  PredictedTensor predicted;
  for (std::size_t i = 0; i < before->values.size(); ++i) {
    Element it{before->values[i], gradient->values[i]};
    if (first && !variant.zero_moments) it.first = first->values[i];
    if (second && !variant.zero_moments) it.second = second->values[i];
    const auto [value, allowance] = updated(a, it);
    predicted.values.push_back(value);
    predicted.allowance.push_back(allowance);
  }
  return predicted;
}

std::vector<UpdateUse> judge_update(const UpdateInputs& inputs, const std::vector<NamedTensor>& parameters,
                                    const UpdateVariant& variant) {
  std::vector<UpdateUse> uses;
  for (const NamedTensor& after : parameters) {
    const std::optional<PredictedTensor> predicted = predict_update(inputs, after.name, variant);
    if (!predicted || predicted->values.size() != after.values.size()) continue;
    const NamedTensor& before = *find_tensor(inputs.state.tensors, after.name);
    UpdateUse use{after.name};
    for (std::size_t i = 0; i < after.values.size(); ++i) {
      const double gap = distance(predicted->values[i], after.values[i]);
      // A gradient that is not finite has been reported at an earlier place in the step.
      if (std::isfinite(predicted->values[i]) && gap > 0) {
        use.used = std::max(use.used, gap / predicted->allowance[i]);
      }
      use.expected = std::hypot(use.expected, predicted->values[i] - before.values[i]);
      use.actual = std::hypot(use.actual, after.values[i] - before.values[i]);
    }
    uses.push_back(use);
  }
  return uses;
}

// The optimizer's state after the update of a forced step.
namespace {

constexpr std::string_view kFirst = "first_moment/", kSecond = "second_moment/";

/// What gradients within their bands make of a moment at most. The first takes up its gradient with a factor of no more than 1, clipped by
/// a norm that is as uncertain as all of them. The second takes up the square: (1 - beta2) g^2 is no more than what it comes to.
/// `epsilon`: of the coarser of the two runs.
std::optional<double> moment_band(const ForcedContext& context, const NamedTensor& moment, double epsilon) {
  const bool second = moment.name.starts_with(kSecond);
  if (!second && !moment.name.starts_with(kFirst)) return std::nullopt;
  const std::vector<TensorUse>& uses = context.evidence.reduced.tensors;
  const auto use = std::ranges::find(uses, moment.name.substr((second ? kSecond : kFirst).size()), &TensorUse::name);
  if (use == uses.end()) return std::nullopt;
  double band = use->use.band;
  if (context.rules.reference_facts.clip_norm > 0 || context.rules.cell_facts.clip_norm > 0) {
    double whole = 0, uncertain = 0;
    for (const TensorUse& each : uses) whole = std::hypot(whole, each.norm_reference), uncertain = std::hypot(uncertain, each.use.band);
    if (whole > 0) band += use->norm_reference * uncertain / whole;
  }
  if (second) band = band * (2 * std::sqrt(largest_of(moment.values)) + band);
  return band + rounding_bound(0, epsilon) * norm(moment.values);
}

}  // namespace

std::optional<Difference> judge_moments(ForcedContext& context) {
  const ForcedEvidence& evidence = context.evidence;
  std::optional<Difference> worst;
  double most = 1;
  for (const NamedTensor& expected : evidence.reference.optimizer_state) {
    const NamedTensor* actual = find_tensor(evidence.cell.optimizer_state, expected.name);
    if (!actual || actual->shape != expected.shape) continue;
    const auto band = moment_band(context, expected, std::max(expected.epsilon, actual->epsilon));
    if (!band) continue;
    const BandUse use{distance(expected.values, actual->values), *band};
    if (!context.outside(expected.name, use) || use.used() <= most) continue;
    most = use.used();
    worst = difference_at(context.b, Phase::optimizer_state, -1, expected.name, DivergenceKind::band,
                          "norm " + exact_number(norm(expected.values)),
                          fmt::format("norm {}; {}", exact_number(norm(actual->values)), context.band_text(use)));
  }
  return worst;
}

}  // namespace lockstep
