// Causes of a wrong update, and of a wrong gradient norm: parameters are recomputed from the state, the
// gradient and the hyperparameters with one thing changed.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "harness/judge/causes/gradient.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/forced/shards.h"
#include "harness/judge/compare/forced/update.h"
#include "harness/judge/compare/resumed.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/record.h"

namespace lockstep::causes {
namespace {

/// The cell's update at the divergence.
struct Update {
  const ForcedValues* cell = nullptr;
  const Snapshot* state = nullptr;
  const TrainingFacts* facts = nullptr;
  UpdateInputs inputs;

  const UpdateFacts& optimizer() const { return inputs.facts; }
  std::vector<UpdateUse> judged(const UpdateVariant& variant) const {
    return judge_update(inputs, cell->parameters, variant);
  }
};

/// "bits": where everything before the update has equal bits.
bool is_of_update(const CauseInputs& inputs) {
  const DivergenceKind kind = inputs.difference.divergence.kind;
  return inputs.difference.phase == Phase::parameters && (kind == DivergenceKind::update || kind == DivergenceKind::bits || kind == DivergenceKind::replica);
}

std::optional<Update> update_of(const CauseInputs& inputs) {
  if (!is_of_update(inputs)) return std::nullopt;
  if (!inputs.forced || !inputs.forced->state) return std::nullopt;
  const ForcedValues& cell = inputs.forced->cell;
  const auto made_from = update_inputs(*inputs.forced->state, cell, inputs.cell_facts);
  if (!made_from) return std::nullopt;
  const Update update{&cell, &*inputs.forced->state, &inputs.cell_facts, *made_from};
  // Replicas may differ while rank 0, whose parameters are kept, is right.
  const std::vector<UpdateUse> plain = update.judged({});
  const bool wrong =
      std::any_of(plain.begin(), plain.end(), [](const UpdateUse& use) { return use.used > 1; });
  return wrong ? std::optional(update) : std::nullopt;
}

bool explains(const Update& update, const UpdateVariant& variant) {
  const std::vector<UpdateUse> uses = update.judged(variant);
  return !uses.empty() &&
         std::all_of(uses.begin(), uses.end(), [](const UpdateUse& use) { return use.used <= 1; });
}

std::optional<Cause> by_variant(const CauseInputs& inputs, const char* code, const UpdateVariant& variant,
                                const std::string& told) {
  const auto update = update_of(inputs);
  if (!update || !explains(*update, variant)) return std::nullopt;
  return made(code, kExact, "every parameter follows from an update " + told);
}

std::optional<Cause> weight_decay_missing(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update || !update->optimizer().decays()) return std::nullopt;
  return by_variant(inputs, "weight-decay-missing", {.decay = 0},
                    fmt::format("without the weight decay of {}", update->optimizer().weight_decay));
}

std::optional<Cause> weight_decay_twice(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update || !update->optimizer().decays()) return std::nullopt;
  return by_variant(inputs, "weight-decay-twice", {.decay = 2},
                    fmt::format("with twice the weight decay of {}", update->optimizer().weight_decay));
}

std::optional<Cause> decay_coupled(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update || !update->optimizer().decays() || update->optimizer().optimizer != OptimizerKind::adamw) {
    return std::nullopt;
  }
  return by_variant(inputs, "decay-coupled", {.other_coupling = true},
                    "with the weight decay added to the gradient, as in Adam, not decoupled");
}

bool has_moments(const Update& update) {
  return update.state->updates.value_or(0) > 0 &&
         (update.optimizer().optimizer != OptimizerKind::sgd || update.optimizer().momentum != 0);
}

std::optional<Cause> optimizer_state_lost(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update || !has_moments(*update)) return std::nullopt;
  if (auto cause = by_variant(inputs, "optimizer-state-lost", {.zero_moments = true, .zero_count = true},
                              "with moments of 0 and the first update's bias correction")) {
    return cause;
  }
  return by_variant(inputs, "optimizer-state-lost", {.zero_moments = true},
                    fmt::format("with moments of 0 at update {}", *update->state->updates + 1));
}

std::optional<Cause> optimizer_counter_lost(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update || !has_moments(*update) || update->optimizer().optimizer == OptimizerKind::sgd)
    return std::nullopt;
  return by_variant(
      inputs, "optimizer-counter-lost", {.zero_count = true},
      fmt::format("with the bias correction of update 1 instead of {}", *update->state->updates + 1));
}

std::optional<Cause> optimizer_counter_ahead(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update || update->optimizer().optimizer == OptimizerKind::sgd || !update->state->updates) return std::nullopt;
  constexpr int kMostAhead = 16;
  const auto count = static_cast<int64_t>(*update->state->updates) + 1;
  const double world = world_size_of(inputs);
  for (int ahead = 1; ahead <= kMostAhead; ++ahead) {
    if (!explains(*update, {.count_ahead = ahead})) continue;
    const AdamNumbers& adam = update->optimizer().adam;
    const auto correction = [&](double n) { return std::sqrt(1 - std::pow(adam.beta2, n)) / (1 - std::pow(adam.beta1, n)); };
    const double ratio = correction(static_cast<double>(count)) / correction(static_cast<double>(count + ahead));
    return made("optimizer-counter-ahead", kExact,
                fmt::format("every parameter follows from an update with the bias correction of update {} instead of {}{}: {} times smaller steps", count + ahead, count,
                            count + ahead == static_cast<int64_t>(world) * count && world > 1 ? ", as if each rank counted it" : "", short_number(ratio)));
  }
  return std::nullopt;
}

/// Parameters that move as another declared group of them would.
std::optional<Cause> wrong_parameter_group(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update || update->optimizer().parameters.empty()) return std::nullopt;
  const UpdateFacts& facts = update->optimizer();
  struct Group {
    std::string name;
    double rate_factor = 1, weight_decay = 0;
    auto operator<=>(const Group&) const = default;
  };
  std::vector<Group> groups = {{"those of no group", 1, facts.weight_decay}};
  for (const DeclaredParameters& each : facts.parameters)
    groups.push_back({fmt::format("\"{}\"", each.prefix), each.rate_factor, each.weight_decay.value_or(facts.weight_decay)});
  std::vector<std::string> wrong;
  for (const UpdateUse& use : update->judged({})) {
    if (use.used > 1) wrong.push_back(use.name);
  }
  for (const Group& group : groups) {
    const std::vector<UpdateUse> uses = update->judged({.rate_factor = group.rate_factor, .weight_decay = group.weight_decay});
    const bool fits = std::ranges::all_of(wrong, [&](const std::string& name) {
      const auto use = std::ranges::find(uses, name, &UpdateUse::name);
      return use != uses.end() && use->used <= 1;
    });
    if (!fits) continue;
    return made("wrong-parameter-group", 0.9,
                fmt::format("{} moved with the rate factor {} and the weight decay {} of {}", fmt::join(wrong, ", "), group.rate_factor, group.weight_decay, group.name));
  }
  return std::nullopt;
}

std::optional<Cause> clip_missing(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update || clip_factor(update->inputs.clip_norm, update->inputs.gradient_norm) == 1) return std::nullopt;
  return by_variant(inputs, "clip-missing", {.clip = 1},
                    fmt::format("without clipping a gradient of norm {} to {}", short_number(update->inputs.gradient_norm),
                                update->inputs.clip_norm));
}

std::optional<Cause> clip_twice(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update) return std::nullopt;
  const double factor = clip_factor(update->inputs.clip_norm, update->inputs.gradient_norm);
  if (factor == 1) return std::nullopt;
  if (auto cause = by_variant(inputs, "clip-twice", {.clip = factor * factor},
                              fmt::format("with the clip's factor {} applied twice", short_number(factor)))) {
    return cause;
  }
  const int world = world_size_of(inputs);
  if (world < 2 || !inputs.cell_config) return std::nullopt;
  const double again = clip_factor(update->inputs.clip_norm, update->inputs.gradient_norm * std::sqrt(world));
  return by_variant(
      inputs, "clip-twice", {.clip = again},
      fmt::format("with a norm that was summed over {} ranks a second time: {} times the reduced one", world,
                  short_number(std::sqrt(world))));
}

std::optional<Cause> clip_on_local_norm(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update || update->cell->local.size() < 2 || update->inputs.clip_norm <= 0) return std::nullopt;
  const double local = whole_norm(update->cell->local[0]);
  return by_variant(
      inputs, "clip-on-local-norm", {.clip = clip_factor(update->inputs.clip_norm, local)},
      fmt::format("with the clip's factor from rank 0's own norm {}, not from the reduced one {}",
                  short_number(local), short_number(update->inputs.gradient_norm)));
}

std::optional<Cause> rate_not_applied(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update) return std::nullopt;
  const double recorded = *update->cell->learning_rate;
  for (const double rate : update->facts->other_rates) {
    if (rate == recorded) continue;
    if (auto cause = by_variant(inputs, "rate-not-applied", {.rate = rate},
                                fmt::format("at the rate {} instead of this step's {}", rate, recorded))) {
      return cause;
    }
  }
  return std::nullopt;
}

std::optional<Cause> parameter_not_updated(const CauseInputs& inputs) {
  if (!is_of_update(inputs) || inputs.difference.divergence.kind == DivergenceKind::replica) return std::nullopt;
  if (!inputs.forced || !inputs.forced->state) return std::nullopt;
  const ForcedValues& cell = inputs.forced->cell;
  std::vector<std::string> kept, wrong;
  if (const auto update = update_of(inputs)) {
    for (const UpdateUse& use : update->judged({})) {
      if (use.used > 1) wrong.push_back(use.name);
    }
  }
  std::size_t moved = 0;
  for (const NamedTensor& gradient : cell.gradients) {
    const NamedTensor *before = find_tensor(inputs.forced->state->tensors, gradient.name),
                      *after = find_tensor(cell.parameters, gradient.name);
    if (!before || !after || norm(gradient.values) == 0) continue;
    if (before->values == after->values) kept.push_back(gradient.name);
    else ++moved;
  }
  const auto stands = [&](const std::string& name) { return std::ranges::find(kept, name) != kept.end(); };
  if (kept.empty() || moved == 0 || !std::ranges::all_of(wrong, stands)) return std::nullopt;
  return made("parameter-not-updated", kExact,
              fmt::format("{} did not change in the update, and {} other tensors moved correctly",
                          fmt::join(kept, ", "), moved));
}

std::optional<Cause> update_differs(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update) {
    // Of an optimizer that cannot be recomputed, by what the reference's made of the same gradients.
    if (!is_of_update(inputs) || inputs.difference.divergence.kind != DivergenceKind::update) return std::nullopt;
    return made("update-differs", kGeneral, fmt::format("{}: {}", inputs.difference.divergence.where,
                                                        expected_found(inputs.difference.divergence.expected, inputs.difference.divergence.actual)));
  }
  std::size_t wrong = 0, judged = 0;
  UpdateUse worst;
  for (const UpdateUse& use : update->judged({})) {
    ++judged;
    wrong += use.used > 1;
    if (use.used > worst.used) worst = use;
  }
  return made(
      "update-differs", kGeneral,
      fmt::format("{} of {} tensors did not move as their recorded gradients require: {} changed by {} where "
                  "{} was expected",
                  wrong, judged, worst.name, short_number(worst.actual), short_number(worst.expected)));
}

std::optional<Cause> resumed_without_moments(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::snapshot || inputs.difference.divergence.where != kMoments) return std::nullopt;
  return made("optimizer-state-lost", kExact, fmt::format("the run begins step {} with {}, where there were moments of the updates before", inputs.difference.divergence.step,
                                                             inputs.difference.divergence.actual));
}

/// Weights that are those of another step of the reference: a checkpoint of that step, or none at all was loaded.
std::optional<Cause> resumed_with_weights_of_another_step(const CauseInputs& inputs) {
  constexpr std::string_view kSame = ", and 0 from those of step ";
  const Divergence& told = inputs.difference.divergence;
  const std::size_t at = told.actual.find(kSame);
  if (inputs.difference.phase != Phase::snapshot || told.where != "weights" || at == std::string::npos)
    return std::nullopt;
  return made("initial-weights-differ", kExact,
              fmt::format("the run begins step {} with the weights of step {}", told.step,
                          told.actual.substr(at + kSame.size())));
}

constexpr Rule kResumedRules[] = {resumed_without_moments, resumed_with_weights_of_another_step};

constexpr Rule kUpdateRules[] = {
    weight_decay_missing,    weight_decay_twice,    decay_coupled, optimizer_state_lost, optimizer_counter_lost,
    optimizer_counter_ahead, wrong_parameter_group, clip_missing,  clip_twice,           clip_on_local_norm,
    rate_not_applied,        parameter_not_updated, update_differs};

/// Did every rank's parameter keep its bits in the step? Nothing where the trace does not tell.
std::optional<bool> kept_its_bits(const CauseInputs& inputs, const std::string& name) {
  const StepOfRun& now = *inputs.cell;
  const bool is_before = inputs.cell_before && inputs.cell_before->step == now.step - 1 && inputs.cell_before->ranks.size() == now.ranks.size();
  bool known = false;
  for (std::size_t rank = 0; rank < now.ranks.size(); ++rank) {
    const Record* after = find_record(now.ranks[rank], Phase::parameters, name);
    const Record* before = is_before ? find_record(inputs.cell_before->ranks[rank], Phase::parameters, name) : nullptr;
    if (!before) before = find_record(now.ranks[rank], Phase::snapshot, name);
    if (!after || !before || after->hashed != before->hashed) continue;
    if (after->stats.hash != before->stats.hash) return false;
    known = true;
  }
  return known ? std::optional(true) : std::nullopt;
}

/// Has no rank of the cell a reduced gradient at the step, where the reference has?
bool lacks_every_gradient(const CauseInputs& inputs) {
  if (!inputs.reference || !inputs.cell) return false;
  const auto has = [](const StepOfRun& step) {
    return std::ranges::any_of(step.ranks, [](const StepRecords& rank) { return !records_of(rank, Phase::reduced_gradients).empty(); });
  };
  return has(*inputs.reference) && !has(*inputs.cell);
}

/// Rank 0's calls by operation: those that reduce gradients, and the others.
std::pair<std::size_t, std::size_t> calls_of(const StepOfRun& step) {
  std::size_t reducing = 0, others = 0;
  for (const Record* record : records_of(step.ranks[0], Phase::collective)) {
    const std::string& op = record->collective.op;
    (op == "reduce_scatter" || op == "all_reduce" || op == "reduce_gradients" ? reducing : others) += 1;
  }
  return {reducing, others};
}

/// A step that reduces nothing, although its forward and backward passes gather what the step before gathered: nothing moves.
std::optional<Cause> no_gradient_reduced(const CauseInputs& inputs) {
  const bool of_gradients = inputs.difference.phase == Phase::reduced_gradients && inputs.difference.divergence.kind == DivergenceKind::missing;
  if ((inputs.difference.phase != Phase::optimizer_state && !of_gradients) || !lacks_every_gradient(inputs) || inputs.cell->ranks.size() < 2) return std::nullopt;
  if (!inputs.cell_before || inputs.cell_before->step != inputs.cell->step - 1) return std::nullopt;
  const auto [reducing, others] = calls_of(*inputs.cell);
  const auto [reducing_before, others_before] = calls_of(*inputs.cell_before);
  if (reducing != 0 || reducing_before == 0 || others == 0 || others != others_before) return std::nullopt;
  std::size_t still = 0;
  for (const Record* record : records_of(inputs.cell->ranks[0], Phase::parameters)) {
    if (record->is_scalar || record->name.starts_with("buffer/")) continue;
    if (kept_its_bits(inputs, record->name) != std::optional(true)) return std::nullopt;
    ++still;
  }
  if (still == 0) return std::nullopt;
  return made("gradient-not-reduced", 0.95,
              fmt::format("step {} makes the {} other calls of the step before and none of the {} that reduce gradients; no parameter has a reduced gradient, and none of {} moves",
                          inputs.cell->step, others, reducing_before, still));
}

/// Are the first moments after the step what one update makes of its own gradient, where the reference's hold more? By their lengths.
bool moments_begin_anew(const CauseInputs& inputs) {
  constexpr double kNear = 1e-3, kOther = 0.02;
  const double beta = inputs.cell_facts.update ? inputs.cell_facts.update->adam.beta1 : 0;
  std::size_t anew = 0;
  for (const Record* moment : records_of(inputs.cell->ranks[0], Phase::optimizer_state)) {
    if (!moment->name.starts_with("first_moment/") || !moment->has_stats) continue;
    const std::string name = moment->name.substr(moment->name.find('/') + 1);
    const Record* taken = find_record(inputs.cell->ranks[0], Phase::applied_gradients, name);
    if (!taken) taken = find_record(inputs.cell->ranks[0], Phase::reduced_gradients, name);
    const Record* expected = find_record(inputs.reference->ranks[0], Phase::optimizer_state, moment->name);
    if (!taken || !taken->has_stats || !expected || !expected->has_stats) continue;
    if (std::abs(moment->stats.norm - (1 - beta) * taken->stats.norm) > kNear * moment->stats.norm) return false;
    anew += std::abs(moment->stats.norm - expected->stats.norm) > kOther * expected->stats.norm;
  }
  return anew > 0;
}

/// Of what the optimizer counted, where that is what differs.
std::optional<Cause> counted_otherwise(const CauseInputs& inputs) {
  const Divergence& told = inputs.difference.divergence;
  if (inputs.difference.phase != Phase::optimizer_state || told.where != "updates") return std::nullopt;
  // An optimizer that gets no gradient counts nothing.
  if (lacks_every_gradient(inputs) || !inputs.cell || !inputs.reference) return std::nullopt;
  const double expected = std::strtod(told.expected.c_str(), nullptr), actual = std::strtod(told.actual.c_str(), nullptr);
  const bool anew = actual < expected && moments_begin_anew(inputs);
  return made(anew ? "optimizer-state-lost" : actual > expected ? "optimizer-counter-ahead" : "optimizer-counter-lost", 0.9,
              (anew ? "moments are those of the first update; " : "") + fmt::format("the optimizer has counted {} updates, the reference's {}", told.actual, told.expected));
}

/// Parameters that have no gradient and stand still, where all others have the reference's gradients, and move.
std::optional<Cause> without_gradient(const CauseInputs& inputs) {
  if (!lacks_a_gradient(inputs) || !inputs.cell) return std::nullopt;
  const GradientJudgement& judgement = inputs.forced->reduced;
  if (judgement.tensors.empty() || std::ranges::any_of(judgement.tensors, [](const TensorUse& each) { return each.use.used() > 1; })) return std::nullopt;
  for (const std::string& name : judgement.missing) {
    if (kept_its_bits(inputs, name) != std::optional(true)) return std::nullopt;
  }
  const bool others_move = std::ranges::any_of(judgement.tensors, [&](const TensorUse& each) { return kept_its_bits(inputs, each.name) == std::optional(false); });
  if (judgement.missing.empty() || !others_move) return std::nullopt;
  return made("parameter-not-updated", kFits,
              fmt::format("{} has no gradient on any rank and did not change in the update; the gradients of the {} other tensors agree", fmt::join(judgement.missing, ", "),
                          judgement.tensors.size()));
}

constexpr Rule kMissingGradientRules[] = {without_gradient, no_gradient_reduced};

/// Ranks that report the norm of their own gradients where all should report that of the reduced ones.
std::optional<Cause> norm_of_local(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::gradient_norm || !inputs.forced || !inputs.cell) return std::nullopt;
  const auto& local = inputs.forced->cell.local;
  if (local.size() < 2 || inputs.cell_facts.clip_norm <= 0) return std::nullopt;
  std::vector<double> norms;
  for (std::size_t rank = 0; rank < local.size(); ++rank) {
    const double own = whole_norm(local[rank]);
    for (const Record& record : inputs.cell->ranks[rank].records) {
      if (record.phase != Phase::gradient_norm || !record.is_scalar) continue;
      if (std::abs(record.value - own) > 1e-5 * own) return std::nullopt;
      norms.push_back(record.value);
    }
  }
  if (norms.size() != local.size()) return std::nullopt;
  return made(
      "clip-on-local-norm", kExact,
      fmt::format("each rank's norm is that of its own local gradients: {:.4g}; the reduced gradient's is {}",
                  fmt::join(norms, ", "), short_number(whole_norm(inputs.forced->cell.gradients))));
}

/// Some ranks report the norm of their own gradients, and the others that of the reduced ones; from statistics.
std::optional<Cause> norm_of_local_on_some(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::gradient_norm || !inputs.cell || inputs.cell->ranks.size() < 2 || norm_of_local(inputs)) return std::nullopt;
  std::vector<std::size_t> own_alone;
  std::size_t right = 0;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    double local = 0, reduced = 0;
    std::optional<double> norm;
    for (const Record& record : inputs.cell->ranks[rank].records) {
      if (record.phase == Phase::gradient_norm && record.is_scalar) norm = record.value;
      if (!record.has_stats) continue;
      if (record.phase == Phase::local_gradients) local = std::hypot(local, record.stats.norm);
      if (record.phase == Phase::reduced_gradients) reduced = std::hypot(reduced, record.stats.norm);
    }
    if (!norm || local == 0 || reduced == 0) return std::nullopt;
    if (std::abs(*norm - reduced) <= 1e-5 * reduced) ++right;
    else if (std::abs(*norm - local) <= 1e-5 * local) own_alone.push_back(rank);
    else return std::nullopt;
  }
  if (own_alone.empty() || right == 0) return std::nullopt;
  return made("clip-on-local-norm", kExact, fmt::format("the norm of rank {} is that of its own local gradients, where the other ranks' is that of the reduced one", fmt::join(own_alone, ", ")));
}

constexpr Rule kNormRules[] = {norm_of_local, norm_of_local_on_some};

/// The one factor that every gradient was multiplied by before the optimizer took it; nothing if they have several.
std::optional<double> applied_factor(const ForcedValues& cell) {
  double dot = 0, own = 0, taken = 0;
  for (const NamedTensor& applied : cell.applied) {
    const NamedTensor* reduced = find_tensor(cell.gradients, applied.name);
    if (!reduced || reduced->values.size() != applied.values.size()) return std::nullopt;
    for (std::size_t i = 0; i < applied.values.size(); ++i) {
      dot += applied.values[i] * reduced->values[i];
      own += reduced->values[i] * reduced->values[i];
      taken += applied.values[i] * applied.values[i];
    }
  }
  if (!(own > 0)) return std::nullopt;
  const double factor = dot / own, rest = taken - factor * factor * own;
  return rest <= 1e-10 * taken ? std::optional(factor) : std::nullopt;
}

/// What clipped the gradients, told from their factor.
std::optional<Cause> clip_fault(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::applied_gradients || !inputs.forced) return std::nullopt;
  const ForcedValues& cell = inputs.forced->cell;
  const double clip = inputs.cell_facts.clip_norm, whole = reduced_norm(cell), right = clip_factor(clip, whole);
  const std::optional<double> factor = applied_factor(cell);
  if (!factor) return std::nullopt;
  const auto is = [&](double wanted) { return std::abs(*factor - wanted) <= 1e-5 * wanted; };
  if (const double world = world_size_of(inputs); world > 1 && (is(right / world) || is(right * world))) {
    return made(is(right / world) ? "mean-taken-twice" : "gradient-sum-not-mean", kExact,
                fmt::format("the optimizer took {} times the reduced gradient: it was {} the ranks once more after the reduction", short_number(*factor / right),
                            is(right / world) ? "divided by" : "multiplied by"));
  }
  if (clip <= 0) return std::nullopt;
  const std::string text = fmt::format("gradients of norm {} were multiplied by {} where clipping to {} gives {}",
                                       short_number(whole), short_number(*factor), clip, short_number(right));
  std::vector<Cause> fitting;
  if (is(1)) fitting.push_back(made("clip-missing", kExact, text));
  // A norm that was summed over ranks once more looks as another max_norm would: only a config rules that out.
  const bool again = inputs.cell_config && is(clip_factor(clip, whole * std::sqrt(world_size_of(inputs))));
  if (is(right * right) || again) fitting.push_back(made("clip-twice", kExact, text));
  if (cell.local.size() > 1 && is(clip_factor(clip, whole_norm(cell.local[0])))) {
    fitting.push_back(made("clip-on-local-norm", kExact, text + ", as the norm of rank 0's own gradients would"));
  }
  return fitting.size() == 1 ? std::optional(fitting.front()) : std::nullopt;
}

/// What one rank's optimizer took of the reduced gradients: the factor that all of its tensors have, and the norms that it may have clipped by.
struct RankClip {
  double factor = 1, local = 0, own_parts = 0;
};

/// The factor between two records' values, or between their norms where values were not kept; nothing of gradients that are 0, and NaN where the values
/// have several.
std::optional<double> factor_between(const Record& reduced, const Record& applied) {
  const auto before = values_of(reduced), after = values_of(applied);
  if (!before || !after || before->size() != after->size()) {
    if (!reduced.has_stats || !applied.has_stats) return std::nan("");
    return reduced.stats.norm > 0 ? std::optional(applied.stats.norm / reduced.stats.norm) : std::nullopt;
  }
  const double own = norm(*before);
  if (!(own > 0)) return std::nullopt;
  const double factor = std::inner_product(before->begin(), before->end(), after->begin(), 0.0) / (own * own);
  double rest = 0;
  for (std::size_t i = 0; i < before->size(); ++i) rest = std::hypot(rest, (*after)[i] - factor * (*before)[i]);
  return rest <= 1e-5 * own ? std::optional(factor) : std::nan("");
}

/// Of every rank, from its own records: of parts where it holds parts. Empty where a rank's tensors have several factors, or were not kept.
std::vector<RankClip> clips_by_rank(const StepOfRun& step) {
  constexpr double kSame = 1e-5;
  std::vector<RankClip> clips;
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    RankClip clip;
    std::optional<double> seen;
    const auto add = [&](const Record& applied, const Record* reduced) {
      const std::optional<double> factor = reduced ? factor_between(*reduced, applied) : std::nan("");
      if (factor && seen && !(std::abs(*factor - *seen) <= kSame * *seen)) seen = std::nan("");
      else if (factor && !seen) seen = factor;
    };
    for (const Record* local : records_of(step.ranks[rank], Phase::local_gradients)) clip.local = std::hypot(clip.local, local->has_stats ? local->stats.norm : std::nan(""));
    for (const Record* applied : records_of(step.ranks[rank], Phase::applied_gradients)) {
      const Record* part = find_part(step, rank, Phase::applied_gradients, applied->name);
      const Record* part_before = find_part(step, rank, Phase::reduced_gradients, applied->name);
      if (part_before && part_before->has_stats) clip.own_parts = std::hypot(clip.own_parts, part_before->stats.norm);
      if (part) add(*part, part_before);
      else add(*applied, find_record(step.ranks[rank], Phase::reduced_gradients, applied->name));
    }
    if (!seen || !(*seen > 0)) return {};
    clip.factor = *seen;
    clips.push_back(clip);
  }
  return clips;
}

/// The limit to which each rank has clipped by its own norm; nothing unless two ranks or more are clipped by factors of their own.
std::optional<double> own_limit(const std::vector<RankClip>& clips, double RankClip::*norm) {
  constexpr double kSame = 1e-4;
  std::optional<double> limit;
  std::set<double> factors;
  for (const RankClip& clip : clips) {
    if (!(clip.*norm > 0)) return std::nullopt;
    if (clip.factor > 1 - kSame) continue;
    const double own = clip.factor * (clip.*norm);
    if (limit && std::abs(own - *limit) > kSame * *limit) return std::nullopt;
    if (!limit) limit = own;
    if (std::ranges::none_of(factors, [&](double other) { return std::abs(other - clip.factor) <= 10 * kSame * other; })) factors.insert(clip.factor);
  }
  if (!limit || factors.size() < 2) return std::nullopt;
  const bool others_below = std::ranges::all_of(clips, [&](const RankClip& clip) { return clip.factor <= 1 - kSame || clip.*norm <= (1 + kSame) * *limit; });
  return others_below ? limit : std::nullopt;
}

/// Ranks that took different multiples of one reduced gradient, each clipped by the norm of what is its own.
std::optional<Cause> clipped_by_own_norms(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::applied_gradients || !inputs.cell || inputs.cell->ranks.size() < 2) return std::nullopt;
  const std::vector<RankClip> clips = clips_by_rank(*inputs.cell);
  for (const auto& [code, norm, whose] : {std::tuple{"norm-of-own-shard", &RankClip::own_parts, "parts"}, {"clip-on-local-norm", &RankClip::local, "local gradients"}}) {
    const auto limit = own_limit(clips, norm);
    if (!limit) continue;
    std::vector<double> factors, norms;
    for (const RankClip& clip : clips) factors.push_back(clip.factor), norms.push_back(clip.*norm);
    return made(code, kExact,
                fmt::format("the optimizers of the ranks took {:.4g} times the reduced gradient: each clipped to {} by the norm of its own {}, {:.4g}", fmt::join(factors, ", "),
                            short_number(*limit), whose, fmt::join(norms, ", ")));
  }
  return std::nullopt;
}

constexpr Rule kClipRules[] = {clip_fault, clipped_by_own_norms};

/// The reference clips, as it declares, and the cell, which declares nothing of it, takes the same gradients as they are.
std::optional<Cause> clip_not_made(const CauseInputs& inputs) {
  const double limit = inputs.reference_facts.clip_norm;
  if (inputs.difference.phase != Phase::optimizer_state || !inputs.forced || !(limit > 0) || inputs.cell_facts.clip_norm > 0) return std::nullopt;
  const ForcedEvidence& forced = *inputs.forced;
  if (forced.reduced.tensors.empty() || std::ranges::any_of(forced.reduced.tensors, [](const TensorUse& each) { return each.use.used() > 1; })) return std::nullopt;
  const auto of_reference = applied_factor(forced.reference), of_cell = applied_factor(forced.cell);
  const double whole = reduced_norm(forced.reference), right = clip_factor(limit, whole);
  if (!of_reference || !of_cell || right > 0.999 || std::abs(*of_reference - right) > 1e-4 * right || std::abs(*of_cell - 1) > 1e-6) return std::nullopt;
  return made("clip-missing", kExact,
              fmt::format("the optimizer took the reduced gradients, of norm {}, as they are; the reference's, clipped to {}, took {} times them", short_number(whole), limit,
                          short_number(right)));
}

constexpr Rule kStateRules[] = {counted_otherwise, clip_not_made};

}  // namespace

bool clipped_by(const CauseInputs& inputs, double norm) {
  const double factor = clip_factor(inputs.cell_facts.clip_norm, norm);
  if (inputs.difference.phase == Phase::applied_gradients) {
    const auto applied = inputs.forced ? applied_factor(inputs.forced->cell) : std::nullopt;
    return applied && std::abs(*applied - factor) <= 1e-5 * factor;
  }
  const auto update = update_of(inputs);
  return update && update->inputs.clip_norm > 0 && explains(*update, {.clip = factor});
}

std::span<const Rule> update_rules() { return kUpdateRules; }
std::span<const Rule> resumed_rules() { return kResumedRules; }
std::span<const Rule> state_rules() { return kStateRules; }
std::span<const Rule> missing_gradient_rules() { return kMissingGradientRules; }
std::span<const Rule> norm_rules() { return kNormRules; }
std::span<const Rule> clip_rules() { return kClipRules; }

}  // namespace lockstep::causes
