#include "harness/judge/compare/forced/update.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <string_view>

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
constexpr std::string_view kFirst = "first_moment/", kSecond = "second_moment/";

/// What gradients within their bands make of a moment at most. The first takes up its gradient with a factor of no more than 1, clipped by
/// a norm that is as uncertain as all of them. The second takes up the square: (1 - beta2) g^2 is no more than what it comes to.
/// `epsilon`: of the coarser of the two runs.
static std::optional<double> moment_band(const ForcedContext& context, const NamedTensor& moment, double epsilon) {
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

// Updates of tensors of which ranks hold parts, and updates that nobody can recompute.
namespace {

/// How far two tensors lie apart at the part's place, and the size of the first there; nothing where they are not that tensor.
struct RegionGap {
  double gap = 0, size = 0;
};
std::optional<RegionGap> region_gap(const NamedTensor* a, const NamedTensor* b, const Record& part) {
  const auto x = a ? values_at(*a, part) : std::nullopt, y = b ? values_at(*b, part) : std::nullopt;
  return x && y ? std::optional(RegionGap{distance(*x, *y), norm(*x)}) : std::nullopt;
}

bool kept_bits(const StepOfRun& step, const BeforeUpdate& before, std::size_t rank, const std::string& name) {
  const Record* now = find_part(step, rank, Phase::parameters, name);
  if (!now) return false;
  if (before.state && before.after) {
    const auto apart = region_gap(find_tensor(before.state->tensors, name), find_tensor(*before.after, name), *now);
    return apart && apart->gap == 0;
  }
  const Record* then = before.step && before.step->step == step.step - 1 ? find_part(*before.step, rank, Phase::parameters, name) : nullptr;
  return then && *now->placement == *then->placement && now->stats.hash == then->stats.hash;
}

/// A matrix in row-major order.
struct DenseMatrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;
  double at(std::size_t i, std::size_t j) const { return values[i * columns + j]; }
};

DenseMatrix product(const DenseMatrix& a, const DenseMatrix& b) {
  DenseMatrix x{a.rows, b.columns, std::vector<double>(a.rows * b.columns, 0)};
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t k = 0; k < a.columns; ++k)
      for (std::size_t j = 0; j < b.columns; ++j) x.values[i * x.columns + j] += a.at(i, k) * b.at(k, j);
  return x;
}

DenseMatrix transposed(const DenseMatrix& x) {
  DenseMatrix turned{x.columns, x.rows, {}};
  for (std::size_t j = 0; j < x.columns; ++j)
    for (std::size_t i = 0; i < x.rows; ++i) turned.values.push_back(x.at(i, j));
  return turned;
}

/// An iteration of Newton and Schulz towards the orthogonal factor U V^T of M = U S V^T, from M over its norm: X <- a X + b X X^T X +
/// c (X X^T)^2 X. Optimizers of whole matrices take a few rounds of one.
struct Iteration {
  double a, b, c;
  int rounds;
};
constexpr Iteration kIterations[] = {{1.5, -0.5, 0, 48}, {3.4445, -4.7750, 2.0315, 5}, {1.5, -0.5, 0, 3}, {1.5, -0.5, 0, 4}, {1.5, -0.5, 0, 5},
                                     {1.5, -0.5, 0, 6},  {1.5, -0.5, 0, 8},            {1.5, -0.5, 0, 10}, {1.5, -0.5, 0, 12}};

DenseMatrix orthogonalised(DenseMatrix x, const Iteration& iteration) {
  const double size = norm(x.values);
  if (!(size > 0)) return x;
  for (double& value : x.values) value /= size;
  for (int round = 0; round < iteration.rounds; ++round) {
    const DenseMatrix gram = product(x, transposed(x)), cubed = product(gram, x), fifth = product(gram, cubed);
    for (std::size_t i = 0; i < x.values.size(); ++i)
      x.values[i] = iteration.a * x.values[i] + iteration.b * cubed.values[i] + iteration.c * fifth.values[i];
  }
  return x;
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  const double sizes = norm(a) * norm(b);
  return sizes > 0 ? dot(a, b) / sizes : 0;
}

/// What lies at a part's place in a matrix.
DenseMatrix cut(const DenseMatrix& whole, const Record& at) {
  DenseMatrix part{static_cast<std::size_t>(at.shape[0]), static_cast<std::size_t>(at.shape[1]), {}};
  const auto row = static_cast<std::size_t>(at.placement->offset[0]), column = static_cast<std::size_t>(at.placement->offset[1]);
  for (std::size_t i = 0; i < part.rows; ++i)
    for (std::size_t j = 0; j < part.columns; ++j) part.values.push_back(whole.at(row + i, column + j));
  return part;
}

/// One parameter of two dimensions: its gradient and both runs' changes.
struct Moved {
  DenseMatrix gradient, expected, actual;
};

std::optional<Moved> moved(const ForcedEvidence& evidence, const std::string& name) {
  if (!evidence.state || !evidence.reference_state) return std::nullopt;
  const NamedTensor *before_a = find_tensor(evidence.reference_state->tensors, name), *before_b = find_tensor(evidence.state->tensors, name),
                    *after_a = find_tensor(evidence.reference.parameters, name), *after_b = find_tensor(evidence.cell.parameters, name);
  const NamedTensor* gradient = find_tensor(evidence.reference.applied.empty() ? evidence.reference.gradients : evidence.reference.applied, name);
  for (const NamedTensor* each : {before_a, before_b, after_a, after_b}) {
    if (!each || !gradient || each->values.size() != gradient->values.size()) return std::nullopt;
  }
  const std::size_t rows = gradient->shape.size() == 2 ? static_cast<std::size_t>(gradient->shape[0]) : 1;
  Moved it;
  it.gradient = it.expected = it.actual = {rows, gradient->values.size() / std::max<std::size_t>(rows, 1), gradient->values};
  for (std::size_t i = 0; i < gradient->values.size(); ++i) {
    it.expected.values[i] = after_a->values[i] - before_a->values[i];
    it.actual.values[i] = after_b->values[i] - before_b->values[i];
  }
  return it;
}

/// Where each part of the parameter lies.
std::vector<const Record*> parts_of_parameter(const StepOfRun& step, const std::string& name) {
  std::map<std::vector<int64_t>, const Record*> places;
  for (std::size_t rank = 0; rank < step.parts.size(); ++rank) {
    if (const Record* part = find_part(step, rank, Phase::parameters, name)) places.emplace(part->placement->offset, part);
  }
  std::vector<const Record*> parts;
  for (const auto& [offset, part] : places) parts.push_back(part);
  return parts;
}

/// Of a parameter that every rank holds whole: equal parts along a dimension, as an optimizer may share them out by itself.
std::vector<Record> even_parts(const NamedTensor& whole, std::size_t dimension, std::size_t ranks) {
  std::vector<Record> parts;
  const auto count = static_cast<int64_t>(ranks);
  if (count < 2 || whole.shape[dimension] % count != 0) return parts;
  for (int64_t rank = 0; rank < count; ++rank) {
    Record part;
    part.shape = whole.shape;
    part.shape[dimension] /= count;
    Placement placement{true, whole.shape, {0, 0}};
    placement.offset[dimension] = rank * part.shape[dimension];
    part.placement = std::make_shared<const Placement>(std::move(placement));
    parts.push_back(std::move(part));
  }
  return parts;
}

/// The change of each part as a multiple of the reference's change there; empty where one is not one.
std::vector<double> factors_by_part(const Moved& it, const std::vector<const Record*>& parts) {
  constexpr double kSameDirection = 1e-5;
  std::vector<double> factors;
  for (const Record* part : parts) {
    const DenseMatrix expected = cut(it.expected, *part), actual = cut(it.actual, *part);
    if (1 - cosine(expected.values, actual.values) > kSameDirection) return {};
    factors.push_back(norm(actual.values) / norm(expected.values));
  }
  return factors;
}

/// Does the reference move along what an iteration makes of its whole gradient, and each part of the cell along what it makes of its own?
bool orthogonalised_by_part(const Moved& it, const std::vector<const Record*>& parts) {
  constexpr double kSame = 1e-3;
  return std::ranges::any_of(kIterations, [&](const Iteration& iteration) {
    const DenseMatrix whole = orthogonalised(it.gradient, iteration);
    if (1 + cosine(whole.values, it.expected.values) > kSame) return false;
    bool other = false;
    for (const Record* part : parts) {
      const DenseMatrix gradient = cut(it.gradient, *part), actual = cut(it.actual, *part);
      if (1 + cosine(orthogonalised(gradient, iteration).values, actual.values) > kSame) return false;
      other = other || 1 + cosine(cut(whole, *part).values, actual.values) > 4 * kSame;
    }
    return other;
  });
}

}  // namespace

std::optional<std::vector<double>> values_at(const NamedTensor& whole, const Record& part) {
  const std::vector<int64_t>&extents = part.placement->whole, &offset = part.placement->offset;
  if (whole.shape != extents) return std::nullopt;
  std::vector<double> values;
  for (std::size_t i = 0; i < whole.values.size(); ++i) {
    std::size_t rest = i;
    bool inside = true;
    for (std::size_t d = extents.size(); d-- > 0;) {
      const auto at = static_cast<int64_t>(rest % static_cast<std::size_t>(extents[d]));
      rest /= static_cast<std::size_t>(extents[d]);
      inside = inside && at >= offset[d] && at < offset[d] + part.shape[d];
    }
    if (inside) values.push_back(whole.values[i]);
  }
  return values;
}

bool shard_stood_still(const StepOfRun& step, const BeforeUpdate& before, std::size_t rank, const std::string& name) {
  const Record* gradient = find_part(step, rank, Phase::reduced_gradients, name);
  const Record* part = find_part(step, rank, Phase::parameters, name);
  if (!part || std::ranges::any_of(part->shape, [](int64_t extent) { return extent == 0; })) return false;
  if (!gradient || !gradient->has_stats || !(gradient->stats.norm > 0) || !kept_bits(step, before, rank, name)) return false;
  if (before.reference_state && before.reference_after) {
    constexpr double kRoundings = 64;
    const NamedTensor* then = find_tensor(before.reference_state->tensors, name);
    const auto moved_there = region_gap(then, find_tensor(*before.reference_after, name), *part);
    if (moved_there && !(moved_there->gap > kRoundings * then->epsilon * moved_there->size)) return false;
  }
  for (std::size_t other = 0; other < step.parts.size(); ++other) {
    if (other != rank && find_part(step, other, Phase::parameters, name) && !kept_bits(step, before, other, name)) return true;
  }
  return false;
}

std::optional<UnlikeUpdate> unlike_update(const ForcedEvidence& evidence) {
  constexpr double kTelling = 1e-3, kBands = 64, kShare = 0.05, kRoundings = 16;
  std::optional<UnlikeUpdate> worst;
  for (const NamedTensor& gradient : evidence.cell.gradients) {
    const auto it = moved(evidence, gradient.name);
    if (!it) continue;
    const auto use = std::ranges::find(evidence.reduced.tensors, gradient.name, &TensorUse::name);
    if (use == evidence.reduced.tensors.end()) continue;
    const double least = std::max(kTelling * largest_of(it->gradient.values), kBands * std::max(use->use.band, use->use.difference));
    const NamedTensor* before = find_tensor(evidence.state->tensors, gradient.name);
    UnlikeUpdate found{gradient.name};
    double size = 0;
    for (std::size_t i = 0; i < it->gradient.values.size(); ++i) {
      if (!(std::abs(it->gradient.values[i]) > least)) continue;
      found.expected = std::hypot(found.expected, it->expected.values[i]);
      found.actual = std::hypot(found.actual, it->actual.values[i]);
      found.gap = std::hypot(found.gap, it->expected.values[i] - it->actual.values[i]);
      size = std::hypot(size, before->values[i]);
    }
    if (found.gap <= kShare * std::max(found.expected, found.actual) + kRoundings * before->epsilon * size) continue;
    if (!worst || found.gap * worst->expected > worst->gap * found.expected) worst = found;
  }
  return worst;
}

ShardUpdates updates_by_shard(const ForcedEvidence& evidence, const StepOfRun& cell) {
  ShardUpdates found;
  for (const NamedTensor& gradient : evidence.cell.gradients) {
    const std::vector<const Record*> parts = parts_of_parameter(cell, gradient.name);
    const auto it = gradient.shape.size() == 2 ? moved(evidence, gradient.name) : std::nullopt;
    if (!it || distance(it->expected.values, it->actual.values) <= 0.01 * norm(it->expected.values)) continue;
    const auto by_even_parts = [&](std::size_t dimension) {
      const std::vector<Record> made = even_parts(gradient, dimension, cell.ranks.size());
      std::vector<const Record*> even;
      for (const Record& part : made) even.push_back(&part);
      return !even.empty() && orthogonalised_by_part(*it, even);
    };
    const std::vector<double> factors = parts.size() > 1 ? factors_by_part(*it, parts) : std::vector<double>();
    const bool unequal = !factors.empty() && *std::ranges::max_element(factors) > 1.01 * *std::ranges::min_element(factors);
    if (unequal) {
      found.how = fmt::format("{} moved by {:.4g} times the reference's change, part by part", gradient.name, fmt::join(factors, ", "));
    } else if (parts.size() > 1 ? orthogonalised_by_part(*it, parts) : by_even_parts(0) || by_even_parts(1)) {
      found.how = fmt::format("each part of {} moved along the orthogonal factor of its own gradient, and the reference's along that of the whole", gradient.name);
    } else {
      return {};
    }
    found.exact = true;
    found.tensors.push_back(gradient.name);
  }
  return found;
}

}  // namespace lockstep
