#include "harness/judge/causes/gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/exact_runs.h"
#include "harness/judge/compare/forced/gradients.h"

// Causes of wrong local gradients that any trainer may have: the mean over ranks against the reference, and
// the ranks' own.

namespace lockstep::causes {
namespace {

double w(const CauseInputs& inputs) { return world_size_of(inputs); }

/// One factor on every gradient.
std::vector<std::string> outside_of(const StepGradients& local) {
  std::vector<std::string> names;
  for (const TensorUse& use : local.evidence->local.tensors) {
    if (use.use.used() > 1) names.push_back(use.name);
  }
  return names;
}

std::optional<Cause> everywhere(const CauseInputs& inputs, const char* code, double factor) {
  const auto local = local_of(inputs);
  if (!local || factor == 1) return std::nullopt;
  const Signatures signatures = local->signatures();
  if (signatures.all_fit(factor)) return made(code, kExact, local->text());
  // A few tensors of one group: what scales whole groups has its own pattern. Of two ranks 2 is any 2 there: a sum of two losses, a use too many.
  const bool is_any_2 = local->world == 2 && (factor == 2 || factor == 0.5);
  if (is_any_2 || !signatures.part_of_a_role_fits(factor)) return std::nullopt;
  return made(code, kFits,
              fmt::format("{} times the reference's in {} only", factor_text(factor, local->world),
                          fmt::join(outside_of(*local), ", ")));
}

std::optional<Cause> sign_flipped(const CauseInputs& inputs) {
  return everywhere(inputs, "sign-flipped", -1);
}
std::optional<Cause> gradient_times_world(const CauseInputs& inputs) {
  return everywhere(inputs, "gradient-times-world", w(inputs));
}
std::optional<Cause> gradient_over_world(const CauseInputs& inputs) {
  return everywhere(inputs, "gradient-over-world", 1 / w(inputs));
}
std::optional<Cause> gradient_not_scaled_by_accumulation(const CauseInputs& inputs) {
  if (inputs.cell_facts.accumulation < 2) return std::nullopt;
  return everywhere(inputs, "accumulation-not-scaled", static_cast<double>(inputs.cell_facts.accumulation));
}

std::optional<Cause> non_finite(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  if (!local) return std::nullopt;
  const auto& ranks = local->evidence->cell.local;
  for (const NamedTensor& tensor : local->evidence->reference.gradients) {
    for (const double value : tensor.values) {
      if (!std::isfinite(value)) return std::nullopt;
    }
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const NamedTensor& tensor : ranks[rank]) {
      for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        if (std::isfinite(tensor.values[i])) continue;
        return made("non-finite", 0.9,
                    fmt::format("rank {}: element {} of {} is {}", rank, i, tensor.name, tensor.values[i]));
      }
    }
  }
  return std::nullopt;
}

/// The same from statistics, wherever a run stopped being numbers: which rank's gradients did alone.
std::optional<Cause> non_finite_on_a_rank(const CauseInputs& inputs) {
  if (!inputs.cell || !inputs.reference || inputs.difference.divergence.kind != DivergenceKind::value) return std::nullopt;
  const auto first_of = [](const StepRecords& rank) -> const Record* {
    const auto found = std::ranges::find_if(rank.records, [](const Record& record) {
      return record.phase == Phase::local_gradients && record.has_stats && record.stats.nonfinite > 0;
    });
    return found == rank.records.end() ? nullptr : &*found;
  };
  for (const StepRecords& rank : inputs.reference->ranks) {
    if (first_of(rank)) return std::nullopt;
  }
  std::vector<std::size_t> ranks;
  const Record* first = nullptr;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    const Record* own = first_of(inputs.cell->ranks[rank]);
    if (!own) continue;
    if (!first) first = own;
    ranks.push_back(rank);
  }
  if (ranks.empty()) return std::nullopt;
  return made("non-finite", 0.9,
              fmt::format("{} of {} is not finite on rank {}", counted(static_cast<int64_t>(first->stats.nonfinite), "value"),
                          first->name, fmt::join(ranks, ", ")));
}

/// In exact arithmetic nothing rounds, so that the reduced gradients have equal bits but for what a fault has changed.
std::optional<Cause> one_element_alone(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  if (!local || !both_exact(inputs.reference_config, inputs.cell_config)) return std::nullopt;
  const NamedTensor* changed = nullptr;
  std::size_t element = 0;
  double gap = 0;
  for (const NamedTensor& tensor : local->evidence->cell.gradients) {
    const NamedTensor* reference = find_tensor(local->evidence->reference.gradients, tensor.name);
    if (!reference || reference->values.size() != tensor.values.size()) return std::nullopt;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      if (distance(reference->values[i], tensor.values[i]) == 0) continue;
      if (changed) return std::nullopt;
      changed = &tensor, element = i, gap = tensor.values[i] - reference->values[i];
    }
  }
  // Of a tensor of one element a factor changes no more.
  if (!changed || changed->values.size() < 2) return std::nullopt;
  return made("bit-flip", 0.9,
              fmt::format("only element {} of {} differs, by {}; in exact arithmetic every other element of every gradient is equal bit for bit",
                          element, changed->name, short_number(gap)));
}

std::optional<Cause> bit_flip(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  if (!local) return std::nullopt;
  std::vector<FlippedBit> flips;
  for (const TensorUse& use : local->evidence->local.tensors) {
    if (use.use.used() <= 1) continue;
    const NamedTensor* reference = find_tensor(local->evidence->reference.gradients, use.name);
    const NamedTensor* mean = find_tensor(local->mean, use.name);
    if (!reference || !mean) return std::nullopt;
    const auto element = single_difference(reference->values, mean->values, use.use.band);
    if (!element) return std::nullopt;
    const WrongElement wrong{
        use.name,     *element,           reference->values[*element],       mean->values[*element],
        use.use.band, reference->epsilon, local->evidence->cell.is_wide()};
    const std::vector<FlippedBit> here = flips_in_values(wrong, local->evidence->cell.local);
    std::set<int> bits;
    for (const FlippedBit& flip : here) bits.insert(flip.bit);
    // A change that several bits would explain says nothing of a bit.
    if (bits.size() != 1) return std::nullopt;
    flips.insert(flips.end(), here.begin(), here.end());
  }
  if (flips.empty()) return std::nullopt;
  std::set<int> ranks;
  for (const FlippedBit& flip : flips) ranks.insert(flip.rank);
  const FlippedBit& first = flips.front();
  return made("bit-flip", 0.96,
              fmt::format("only element {} of {} differs, and bit {} of rank {}'s value explains it{}",
                          first.element, first.tensor, first.bit, fmt::join(ranks, " or "),
                          ranks.size() > 1 ? " (their values share the exponent)" : ""));
}

/// Ranks whose local gradients are, in every tensor, those of the step before.
std::optional<Cause> stale_local(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  if (!local || !local->evidence->cell_before) return std::nullopt;
  const auto &now = local->evidence->cell.local, &before = local->evidence->cell_before->local;
  if (before.size() != now.size()) return std::nullopt;
  std::vector<std::size_t> stale;
  for (std::size_t rank = 0; rank < now.size(); ++rank) {
    bool same = !now[rank].empty(), any = false;
    for (const NamedTensor& tensor : now[rank]) {
      const NamedTensor* old = find_tensor(before[rank], tensor.name);
      same = same && old && old->values == tensor.values;
      any = any || norm(tensor.values) > 0;
    }
    if (same && any) stale.push_back(rank);
  }
  if (stale.empty()) return std::nullopt;
  return made("stale-gradient", kExact,
              fmt::format("rank {}: every local gradient equals that of step {} bit for bit",
                          fmt::join(stale, ", "), local->evidence->cell_before->step));
}

std::optional<Cause> rank_without_gradient(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  if (!local || !inputs.cell || local->world < 2) return std::nullopt;
  std::vector<std::size_t> zero;
  const auto& ranks = local->evidence->cell.local;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    bool has_rows = false;
    for (const Record& record : inputs.cell->ranks[rank].records) {
      if (record.phase == Phase::samples) has_rows = has_rows || !record.ids.empty();
    }
    const bool any = std::any_of(ranks[rank].begin(), ranks[rank].end(),
                                 [](const NamedTensor& tensor) { return norm(tensor.values) != 0; });
    if (has_rows && !any) zero.push_back(rank);
  }
  if (zero.size() != 1 || rows_may_not_count(inputs)) return std::nullopt;
  return made("rank-missing", kFits,
              fmt::format("rank {} has rows, but all its local gradients are 0", zero.front()));
}

/// Is every gradient the reference's plus `old`?
bool adds(const StepGradients& local, const std::vector<NamedTensor>& old) {
  bool any = false;
  for (const TensorUse& use : local.evidence->local.tensors) {
    const NamedTensor* reference = find_tensor(local.evidence->reference.gradients, use.name);
    const NamedTensor *mean = find_tensor(local.mean, use.name), *before = find_tensor(old, use.name);
    if (!reference || !mean || !before || before->values.size() != mean->values.size()) return false;
    double rest = 0;
    for (std::size_t i = 0; i < mean->values.size(); ++i) {
      rest = std::hypot(rest, mean->values[i] - reference->values[i] - before->values[i]);
    }
    if (rest > 3 * use.use.band) return false;
    any = any || norm(before->values) > 16 * use.use.band;
  }
  return any;
}

std::optional<Cause> accumulated_before(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  if (!local || !local->evidence->cell_before) return std::nullopt;
  // What stands in a gradient after a step: the rank's own, the reduced one, or what clipping made of it.
  const ForcedValues& before = *local->evidence->cell_before;
  if (!adds(*local, mean_of_local(before)) && !adds(*local, before.gradients) && !adds(*local, before.applied)) {
    return std::nullopt;
  }
  return made("gradients-not-zeroed", kExact, fmt::format("every gradient is the reference's plus that of step {}", before.step));
}

/// One rank's local gradient has another form than those that it is to be reduced with.
std::optional<Cause> forms_differ(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  const bool shape = it.kind == DivergenceKind::shape && it.rank >= 0, dtype = it.kind == DivergenceKind::dtype;
  if (inputs.difference.phase != Phase::local_gradients || (!shape && !dtype)) return std::nullopt;
  return made(shape ? "shapes-differ" : "dtype-differs", 0.9,
              fmt::format("rank {}'s gradient of {} is {}, other ranks' {}", it.rank, it.where, it.actual, it.expected));
}

constexpr Rule kGradientRules[] = {sign_flipped, gradient_times_world, gradient_over_world,
                           gradient_not_scaled_by_accumulation, non_finite, bit_flip, one_element_alone,
                           stale_local, rank_without_gradient, accumulated_before, forms_differ};
constexpr Rule kFiniteRules[] = {non_finite_on_a_rank};

}  // namespace

std::span<const Rule> finite_rules() { return kFiniteRules; }
std::span<const Rule> gradient_rules() { return kGradientRules; }

std::vector<RankParts> parts_of(const ForcedValues& values, std::string_view kind) {
  std::vector<RankParts> by_rank;
  for (const std::vector<GradientPart>& own : values.parts) {
    RankParts parts;
    for (const GradientPart& each : own) {
      if (!each.part.starts_with(kind)) continue;
      const auto at = static_cast<std::size_t>(std::ranges::find(parts.names, each.part) - parts.names.begin());
      if (at == parts.names.size()) {
        parts.names.push_back(each.part);
        parts.gradients.emplace_back();
      }
      parts.gradients[at].push_back(&each);
    }
    if (parts.names.empty()) return {};
    by_rank.push_back(std::move(parts));
  }
  return by_rank;
}

std::optional<std::vector<NamedTensor>> weighed(const RankParts& parts, std::span<const double> factors) {
  std::vector<NamedTensor> sum;
  for (std::size_t k = 0; k < parts.names.size(); ++k) {
    for (const GradientPart* part : parts.gradients[k]) {
      const NamedTensor& own = part->values;
      if (own.values.empty()) return std::nullopt;
      auto place = std::ranges::find(sum, part->parameter, &NamedTensor::name);
      if (place == sum.end()) {
        sum.push_back(own);
        place = sum.end() - 1;
        std::ranges::fill(place->values, 0);
      }
      if (place->values.size() != own.values.size()) return std::nullopt;
      for (std::size_t i = 0; i < own.values.size(); ++i) place->values[i] += factors[k] * own.values[i];
    }
  }
  return sum;
}

std::vector<NamedTensor> reduced_of(const std::vector<std::vector<NamedTensor>>& by_rank, bool by_sum) {
  ForcedValues values;
  values.local = by_rank;
  values.reduced_by_sum = by_sum;
  return mean_of_local(values);
}

bool agree(const std::vector<NamedTensor>& expected, const std::vector<NamedTensor>& gradients, const GradientJudgement& judgement, double room) {
  if (judgement.tensors.empty()) return false;
  return std::ranges::all_of(judgement.tensors, [&](const TensorUse& use) {
    const NamedTensor *x = find_tensor(expected, use.name), *y = find_tensor(gradients, use.name);
    // A parameter that no part reaches has no gradient.
    if (x && !y) return norm(x->values) <= room * use.use.band;
    return x && y && x->values.size() == y->values.size() && distance(x->values, y->values) <= room * use.use.band;
  });
}

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
