// Causes of wrong local gradients: the mean over ranks against the reference, group by group, in closed
// forms.

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "harness/compare/forced/flipped_bit.h"
#include "harness/causes/rules.h"
#include "scenarios/energy/config.h"
#include "harness/causes/signatures.h"
#include "harness/compare/forced/step.h"

namespace lockstep::causes {
namespace {

/// The gradients of the divergence's step, if it lies before the reduction.
struct Local {
  const ForcedEvidence* evidence = nullptr;
  std::vector<NamedTensor> mean;
  int world = 1;
  Signatures signatures() const { return {evidence->reference.gradients, mean, evidence->local}; }
  std::string text() const { return signature_text(evidence->local, world); }
};

std::optional<Local> local_of(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::local_gradients || !inputs.forced) return std::nullopt;
  if (inputs.forced->local.tensors.empty()) return std::nullopt;
  return Local{&*inputs.forced, mean_of_local(inputs.forced->cell), world_size_of(inputs)};
}

/// Factors of the groups; roles that are not named have `rest`.
struct Pattern {
  double context = 1, action = 1, head = 1, temperature = 1, rest = 1;
};

/// Does every group have its factor, and is a factor other than 1 told by a gradient that is not mere
/// rounding?
bool fits(const Local& local, const Pattern& pattern) {
  const Signatures signatures = local.signatures();
  const std::pair<Role, double> roles[] = {
      {Role::context, pattern.context},  {Role::action, pattern.action},
      {Role::head, pattern.head},        {Role::temperature, pattern.temperature},
      {Role::action_head, pattern.rest}, {Role::other, pattern.rest}};
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
std::optional<Cause> gather_own_slice_times_world(const CauseInputs& inputs) {
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

/// One factor on every gradient.
std::vector<std::string> outside_of(const Local& local) {
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
  // A few tensors of one group: what scales whole groups has its own pattern.
  if (!signatures.part_of_a_role_fits(factor)) return std::nullopt;
  return made(code, kFits,
              fmt::format("{} times the reference's in {} alone", factor_text(factor, local->world),
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
std::optional<Cause> accumulation_not_scaled(const CauseInputs& inputs) {
  if (!inputs.cell_config || inputs.cell_config->accumulation < 2) return std::nullopt;
  return everywhere(inputs, "accumulation-not-scaled", static_cast<double>(inputs.cell_config->accumulation));
}

std::optional<Cause> gather_backward_sliced(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  if (!local || local->world < 2) return std::nullopt;
  const Signatures signatures = local->signatures();
  for (const Role role : {Role::context, Role::head, Role::temperature, Role::action_head, Role::other}) {
    if (!signatures.inside(role)) return std::nullopt;
  }
  if (!signatures.no_factor_fits(Role::action) || rank_of_local_fault(*local->evidence) >= 0)
    return std::nullopt;
  return made("gather-backward-sliced", kFits, local->text());
}

std::optional<Cause> candidates_not_detached(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  if (!local) return std::nullopt;
  const Signatures signatures = local->signatures();
  if (!signatures.has(Role::action_head) || signatures.inside(Role::action_head)) return std::nullopt;
  // What the predictions are made from may get a gradient too; head and temperature see the same energies.
  if (!signatures.inside(Role::head) || !signatures.inside(Role::temperature)) return std::nullopt;
  const bool none = signatures.zero_in_reference(Role::action_head);
  const bool made_from_predictions =
      inputs.cell_config && (energy(*inputs.cell_config).negatives == Negatives::layer ||
                             energy(*inputs.cell_config).negatives == Negatives::mixed);
  if (!none && !(made_from_predictions && signatures.some_factor_fits_not(Role::action_head)))
    return std::nullopt;
  return made("candidates-not-detached", none ? kExact : kFits,
              (none ? "the action head has a gradient, and in the reference none: " : "") + local->text());
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
        use.name,     *element,          reference->values[*element], mean->values[*element],
        use.use.band, reference->epsilon};
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
              fmt::format("element {} of {} alone differs, and bit {} of rank {}'s value explains it{}",
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
              fmt::format("rank {}: every local gradient is, bit for bit, that of step {}",
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
  if (zero.size() != 1 || (inputs.cell_config && energy(*inputs.cell_config).invalid_rows > 0)) return std::nullopt;
  return made("rank-missing", kFits,
              fmt::format("rank {} has rows, and every local gradient of it is 0", zero.front()));
}

std::optional<Cause> accumulated_before(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  if (!local || !local->evidence->cell_before) return std::nullopt;
  const std::vector<NamedTensor> before = mean_of_local(*local->evidence->cell_before);
  bool any = false;
  for (const TensorUse& use : local->evidence->local.tensors) {
    const NamedTensor* reference = find_tensor(local->evidence->reference.gradients, use.name);
    const NamedTensor *mean = find_tensor(local->mean, use.name), *old = find_tensor(before, use.name);
    if (!reference || !mean || !old || old->values.size() != mean->values.size()) return std::nullopt;
    double rest = 0;
    for (std::size_t i = 0; i < mean->values.size(); ++i) {
      rest = std::hypot(rest, mean->values[i] - reference->values[i] - old->values[i]);
    }
    if (rest > 3 * use.use.band) return std::nullopt;
    any = any || norm(old->values) > 16 * use.use.band;
  }
  if (!any) return std::nullopt;
  return made("gradients-not-zeroed", kExact,
              fmt::format("every gradient is the reference's plus that of step {}",
                          local->evidence->cell_before->step));
}

std::optional<Cause> dropout_not_replayed(const CauseInputs& inputs) {
  const auto local = local_of(inputs);
  if (!local || !inputs.cell_config || energy(*inputs.cell_config).dropout <= 0) return std::nullopt;
  if (energy(*inputs.cell_config).tile_columns >= inputs.cell_config->layout.global_batch()) return std::nullopt;
  const Signatures signatures = local->signatures();
  if (!signatures.has(Role::temperature) || !signatures.inside(Role::temperature)) return std::nullopt;
  for (const Role role : {Role::context, Role::action, Role::head}) {
    if (!signatures.has(role) || signatures.inside(role)) return std::nullopt;
  }
  if (!signatures.no_factor_fits(Role::action) || rank_of_local_fault(*local->evidence) >= 0)
    return std::nullopt;
  return made(
      "dropout-not-replayed", 0.75,
      fmt::format("tiles of {} columns in two passes with dropout {}: energies, loss and the temperature's "
                  "gradient are right and no other gradient is; {}",
                  energy(*inputs.cell_config).tile_columns, energy(*inputs.cell_config).dropout, local->text()));
}

constexpr Rule kRules[] = {gather_without_gradient,
                           gather_own_slice,
                           gather_own_slice_times_world,
                           candidates_detached,
                           gather_averaged,
                           temperature_reduced_twice,
                           head_counted_twice,
                           temperature_detached,
                           context_detached,
                           sign_flipped,
                           gradient_times_world,
                           gradient_over_world,
                           accumulation_not_scaled,
                           gather_backward_sliced,
                           candidates_not_detached,
                           non_finite,
                           bit_flip,
                           stale_local,
                           rank_without_gradient,
                           accumulated_before,
                           dropout_not_replayed};

}  // namespace

std::span<const Rule> gradient_rules() { return kRules; }

}  // namespace lockstep::causes
