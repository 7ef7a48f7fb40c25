// Causes of a wrong update, and of a wrong gradient norm: parameters are recomputed from the state, the
// gradient and the hyperparameters with one thing changed.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "harness/judge/causes/gradient.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/forced/update.h"
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
  std::vector<std::string> wrong() const {
    std::vector<std::string> names;
    for (const UpdateUse& use : judged({}))
      if (use.used > 1) names.push_back(use.name);
    return names;
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
  return update.wrong().empty() ? std::nullopt : std::optional(update);
}

bool explains(const Update& update, const UpdateVariant& variant) {
  const std::vector<UpdateUse> uses = update.judged(variant);
  return !uses.empty() && std::ranges::all_of(uses, [](const UpdateUse& use) { return use.used <= 1; });
}

/// A code as an argument of a template.
template <std::size_t size>
struct Code {
  char text[size];
  consteval Code(const char (&code)[size]) { std::copy_n(code, size, text); }
};

/// How a wrong update is made: with one thing changed.
struct UpdateFormula {
  std::string_view code;
  UpdateVariant variant;
  std::string how;
};

std::vector<UpdateFormula> formulas_of(const Update& update, int64_t world) {
  const UpdateFacts& facts = update.optimizer();
  const bool is_sgd = facts.optimizer == OptimizerKind::sgd;
  const int64_t count = static_cast<int64_t>(update.state->updates.value_or(0)) + 1;
  std::vector<UpdateFormula> all;
  if (facts.decays()) {
    all.push_back(
        {"weight-decay-missing", {.decay = 0}, fmt::format("without the weight decay of {}", facts.weight_decay)});
    // By hand before the optimizer's own, what is left of the parameter decays.
    for (const double decay : {2.0, 2 - *update.cell->learning_rate * facts.weight_decay})
      all.push_back({"weight-decay-twice",
                     {.decay = decay},
                     fmt::format("with twice the weight decay of {}", facts.weight_decay)});
    if (facts.optimizer == OptimizerKind::adamw)
      all.push_back({"decay-coupled",
                     {.other_coupling = true},
                     "with the weight decay added to the gradient, as in Adam, not decoupled"});
  }
  if (count > 1 && (!is_sgd || facts.momentum != 0)) {
    all.push_back({"optimizer-state-lost",
                   {.zero_moments = true, .zero_count = true},
                   "with moments of 0 and the first update's bias correction"});
    all.push_back(
        {"optimizer-state-lost", {.zero_moments = true}, fmt::format("with moments of 0 at update {}", count)});
    if (!is_sgd)
      all.push_back({"optimizer-counter-lost",
                     {.zero_count = true},
                     fmt::format("with the bias correction of update 1 instead of {}", count)});
  }
  constexpr int kMostAhead = 16;
  const auto correction = [&](int64_t updates) {
    const auto n = static_cast<double>(updates);
    return std::sqrt(1 - std::pow(facts.adam.beta2, n)) / (1 - std::pow(facts.adam.beta1, n));
  };
  for (int ahead = 1; !is_sgd && update.state->updates && ahead <= kMostAhead; ++ahead) {
    const bool by_each = world > 1 && count + ahead == world * count;
    all.push_back({"optimizer-counter-ahead",
                   {.count_ahead = ahead},
                   fmt::format("with the bias correction of update {} instead of {}{}: {} times smaller steps",
                               count + ahead, count, by_each ? ", as if each rank counted it" : "",
                               short_number(correction(count) / correction(count + ahead)))});
  }
  const double limit = update.inputs.clip_norm, norm = update.inputs.gradient_norm, factor = clip_factor(limit, norm);
  if (factor != 1) {
    all.push_back({"clip-missing",
                   {.clip = 1},
                   fmt::format("without clipping a gradient of norm {} to {}", short_number(norm), limit)});
    all.push_back({"clip-twice",
                   {.clip = factor * factor},
                   fmt::format("with the clip's factor {} applied twice", short_number(factor))});
  }
  const double recorded = *update.cell->learning_rate;
  for (const double rate : update.facts->other_rates) {
    if (rate != recorded)
      all.push_back({"rate-not-applied",
                     {.rate = rate},
                     fmt::format("at the rate {} instead of this step's {}", rate, recorded)});
  }
  return all;
}

/// Does every parameter follow from an update by one of the code's formulas?
template <Code code>
Answer follows(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update) return {};
  for (const UpdateFormula& formula : formulas_of(*update, world_size_of(inputs))) {
    if (formula.code == code.text && explains(*update, formula.variant))
      return told("every parameter follows from an update {}", formula.how);
  }
  return {};
}

/// Parameters that move as another declared group of them would.
Answer wrong_parameter_group(const Update& update) {
  if (update.optimizer().parameters.empty()) return {};
  const UpdateFacts& facts = update.optimizer();
  struct Group {
    std::string name;
    double rate_factor = 1, weight_decay = 0;
    auto operator<=>(const Group&) const = default;
  };
  std::vector<Group> groups = {{"those of no group", 1, facts.weight_decay}};
  for (const DeclaredParameters& each : facts.parameters)
    groups.push_back({fmt::format("\"{}\"", each.prefix), each.rate_factor, each.weight_decay.value_or(facts.weight_decay)});
  const std::vector<std::string> wrong = update.wrong();
  for (const Group& group : groups) {
    const std::vector<UpdateUse> uses =
        update.judged({.rate_factor = group.rate_factor, .weight_decay = group.weight_decay});
    const bool fits = std::ranges::all_of(wrong, [&](const std::string& name) {
      const auto use = std::ranges::find(uses, name, &UpdateUse::name);
      return use != uses.end() && use->used <= 1;
    });
    if (!fits) continue;
    return told("{} moved with the rate factor {} and the weight decay {} of {}", fmt::join(wrong, ", "),
                group.rate_factor, group.weight_decay, group.name);
  }
  return {};
}

Answer parameter_not_updated(const CauseInputs& inputs) {
  if (!is_of_update(inputs) || inputs.difference.divergence.kind == DivergenceKind::replica) return {};
  const ForcedValues& cell = inputs.forced->cell;
  std::vector<std::string> kept, wrong;
  if (const auto update = update_of(inputs)) wrong = update->wrong();
  std::size_t moved = 0;
  for (const NamedTensor& gradient : cell.gradients) {
    const NamedTensor *before = find_tensor(inputs.forced->state->tensors, gradient.name),
                      *after = find_tensor(cell.parameters, gradient.name);
    if (!before || !after || norm(gradient.values) == 0) continue;
    if (before->values == after->values) kept.push_back(gradient.name);
    else ++moved;
  }
  const auto stands = [&](const std::string& name) { return std::ranges::find(kept, name) != kept.end(); };
  if (kept.empty() || moved == 0 || !std::ranges::all_of(wrong, stands)) return {};
  return told("{} did not change in the update, and {} other tensors moved correctly", fmt::join(kept, ", "), moved);
}

Answer update_differs(const CauseInputs& inputs) {
  const auto update = update_of(inputs);
  if (!update) {
    // Of an optimizer that cannot be recomputed, by what the reference's made of the same gradients.
    if (!is_of_update(inputs) || inputs.difference.divergence.kind != DivergenceKind::update) return {};
    return told("{}: {}", inputs.difference.divergence.where,
                expected_found(inputs.difference.divergence.expected, inputs.difference.divergence.actual));
  }
  std::size_t wrong = 0, judged = 0;
  UpdateUse worst;
  for (const UpdateUse& use : update->judged({})) {
    ++judged;
    wrong += use.used > 1;
    if (use.used > worst.used) worst = use;
  }
  return told("{} of {} tensors did not move as their recorded gradients require: {} changed by {} where {} was "
              "expected",
              wrong, judged, worst.name, short_number(worst.actual), short_number(worst.expected));
}

Answer resumed_without_moments(const CauseInputs& inputs) {
  if (inputs.difference.divergence.where != kMoments) return {};
  return told("the run begins step {} with {}, where there were moments of the updates before",
              inputs.difference.divergence.step, inputs.difference.divergence.actual);
}

/// What no weights of this step's gradient and parameter, or of their squares, make of a moment, relative to it;
/// nothing where it is too short to tell, or has no gradient.
std::optional<double> rest_of_moment(const CauseInputs& inputs, const ForcedValues& of, const NamedTensor& moment) {
  const std::size_t slash = moment.name.find('/');
  const std::string name = moment.name.substr(slash + 1);
  const NamedTensor* gradient = find_tensor(of.applied.empty() ? of.gradients : of.applied, name);
  const NamedTensor* parameter = inputs.forced->state ? find_tensor(inputs.forced->state->tensors, name) : nullptr;
  if (!gradient || gradient->values.size() != moment.values.size() ||
      (parameter && parameter->values.size() != moment.values.size()))
    return std::nullopt;
  std::vector<std::vector<double>> columns = {gradient->values}, products;
  if (parameter) columns.push_back(parameter->values);
  for (std::size_t a = 0; moment.name.starts_with("second") && a < columns.size(); ++a) {
    for (std::size_t b = a; b < columns.size(); ++b) {
      products.push_back(columns[a]);
      for (std::size_t i = 0; i < columns[b].size(); ++i) products.back()[i] *= columns[b][i];
    }
  }
  if (!products.empty()) columns = std::move(products);
  if (moment.values.size() < 2 * columns.size()) return std::nullopt;
  WeighedTensor tensor{&moment.values, {}};
  for (const std::vector<double>& column : columns) tensor.parts.push_back(&column);
  return weigh({tensor}, of.epsilon).residual;
}

/// Moments that hold this step's gradient alone, where the reference's, of equal gradients, hold more.
Answer moments_of_one_update(const CauseInputs& inputs) {
  const ForcedValues &reference = inputs.forced->reference, &cell = inputs.forced->cell;
  constexpr double kMore = 1e-3, kAlike = 1e-6;
  const double none = std::max(1e-9, 64 * cell.epsilon);
  std::vector<std::string> anew;
  for (const NamedTensor& moment : cell.optimizer_state) {
    const NamedTensor* expected = find_tensor(reference.optimizer_state, moment.name);
    if (!expected || expected->values.size() != moment.values.size()) continue;
    if (distance(expected->values, moment.values) <= kAlike * norm(expected->values)) continue;
    const auto own = rest_of_moment(inputs, cell, moment), there = rest_of_moment(inputs, reference, *expected);
    if (!own || !there) continue;
    if (*own > none || *there < kMore) return {};
    anew.push_back(moment.name);
  }
  if (anew.empty()) return {};
  return told("{} of the optimizer's tensors hold this step's gradient alone, where the reference's hold those "
              "before, too: {} first",
              anew.size(), anew.front());
}

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
Answer optimizer_counts_otherwise(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  if (it.where != "updates") return {};
  // An optimizer that gets no gradient counts nothing.
  if (lacks_every_gradient(inputs)) return {};
  const double expected = std::strtod(it.expected.c_str(), nullptr), actual = std::strtod(it.actual.c_str(), nullptr);
  const bool anew = actual < expected && moments_begin_anew(inputs);
  return made(anew                ? "optimizer-state-lost"
              : actual > expected ? "optimizer-counter-ahead"
                                  : "optimizer-counter-lost",
              0.9,
              (anew ? "moments are those of the first update; " : "") +
                  fmt::format("the optimizer has counted {} updates, the reference's {}", it.actual, it.expected));
}

bool agrees(const GradientJudgement& judgement) {
  return !judgement.tensors.empty() &&
         std::ranges::none_of(judgement.tensors, [](const TensorUse& each) { return each.use.used() > 1; });
}

/// Parameters that have no gradient and stand still, where all others have the reference's gradients, and move.
Answer without_gradient(const CauseInputs& inputs) {
  const GradientJudgement& judgement = inputs.forced->reduced;
  if (!lacks_a_gradient(inputs) || !agrees(judgement)) return {};
  for (const std::string& name : judgement.missing) {
    if (kept_its_bits(inputs, name) != std::optional(true)) return {};
  }
  const bool others_move = std::ranges::any_of(judgement.tensors, [&](const TensorUse& each) { return kept_its_bits(inputs, each.name) == std::optional(false); });
  if (judgement.missing.empty() || !others_move) return {};
  return told("{} has no gradient on any rank and did not change in the update; the gradients of the {} other tensors "
              "agree",
              fmt::join(judgement.missing, ", "), judgement.tensors.size());
}

// Norms of the gradient, and what it was multiplied by before the optimizer took it.

bool close_to(double a, double b, double room = 1e-5) { return std::abs(a - b) <= room * std::abs(b); }

/// What may be mistaken for the norm of the reduced gradient.
struct OtherNorm {
  std::string code;
  std::string words;
  std::vector<double> of_ranks;
};

struct Norms {
  double whole = 0;  ///< of the reduced gradient
  std::vector<OtherNorm> others;
};

Norms norms_of(const CauseInputs& inputs) {
  const StepOfRun& cell = *inputs.cell;
  const ForcedValues* values = inputs.forced ? &inputs.forced->cell : nullptr;
  // Squares: of tensors of which ranks hold parts, of those that every rank holds, and of each rank's own parts.
  double sharded = 0, replicated = 0;
  std::size_t holders = 1;
  std::vector<double> parts(cell.ranks.size(), 0);
  for (std::size_t i = 0; values && i < values->gradients.size(); ++i) {
    const NamedTensor& gradient = values->gradients[i];
    std::set<std::vector<int64_t>> places;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const Record* part = find_part(cell, rank, Phase::reduced_gradients, gradient.name);
      if (!part) continue;
      places.insert(part->placement->offset);
      const auto kept = values_of(*part);
      if (kept || part->has_stats) parts[rank] += std::pow(kept ? norm(*kept) : part->stats.norm, 2);
    }
    const double size = norm(gradient.values);
    (places.empty() ? replicated : sharded) += size * size;
    holders = std::max(holders, places.size());
  }
  Norms norms{values ? std::sqrt(sharded + replicated) : norm_of(cell.ranks[0], Phase::reduced_gradients), {}};
  const auto add = [&](const char* code, const std::string& words, const auto& of_rank) {
    norms.others.push_back({code, words, {}});
    for (std::size_t rank = 0; rank < parts.size(); ++rank) norms.others.back().of_ranks.push_back(of_rank(rank));
  };
  const auto times = static_cast<double>(holders);
  if (holders > 1 && replicated > 0)
    add("replicated-counted-in-norm",
        fmt::format("with {} times the squares of what each of {} ranks holds", holders, holders),
        [&](std::size_t) { return std::sqrt(sharded + times * replicated); });
  if (holders > 1) {
    add("norm-of-own-shard", "of its own parts, and of what every rank holds",
        [&](std::size_t rank) { return std::sqrt(parts[rank] + replicated); });
    add("norm-of-own-shard", "of its own parts", [&](std::size_t rank) { return std::sqrt(parts[rank]); });
  }
  if (parts.size() > 1)
    add("clip-on-local-norm", "of its own local gradients", [&](std::size_t rank) {
      return values && values->local.size() == parts.size() ? whole_norm(values->local[rank])
                                                            : norm_of(cell.ranks[rank], Phase::local_gradients);
    });
  // As many micro-steps as ranks: it may be either's number.
  if (const int64_t steps = inputs.cell_facts.accumulation;
      steps > 1 && !group_sizes(inputs).contains(static_cast<std::size_t>(steps)))
    add("normalised-by-another-window", fmt::format("of what was divided by {} micro-steps again", steps),
        [&](std::size_t) { return norms.whole / static_cast<double>(steps); });
  for (const auto& [size, group] : group_sizes(inputs)) {
    const auto ranks = static_cast<double>(size);
    add("norm-of-sum", fmt::format("of the sum over {} ranks{}", size, group),
        [&](std::size_t) { return ranks * norms.whole; });
    add("clip-twice", fmt::format("whose squares were added up over {} ranks{} again", size, group),
        [&](std::size_t) { return std::sqrt(ranks) * norms.whole; });
  }
  return norms;
}

/// Did every rank that recorded a norm record that one? Of local gradients some ranks alone may.
bool recorded(const CauseInputs& inputs, const Norms& norms, const OtherNorm& other) {
  std::size_t own = 0, right = 0;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    for (const Record* record : records_of(inputs.cell->ranks[rank], Phase::gradient_norm)) {
      if (!record->is_scalar || record->name != "gradient_norm") continue;
      if (close_to(record->value, norms.whole))
        ++right;
      else if (close_to(record->value, other.of_ranks[rank]))
        ++own;
      else
        return false;
    }
  }
  const bool is_local = other.code == "clip-on-local-norm";
  return own > 0 && (right > 0 ? is_local : !is_local || inputs.cell_facts.clip_norm > 0);
}

/// Did the optimizer take gradients that were clipped by that norm: as they were recorded, or as the update shows?
bool clipped_by(const CauseInputs& inputs, double norm) {
  const double factor = clip_factor(inputs.cell_facts.clip_norm, norm);
  if (inputs.difference.phase == Phase::applied_gradients) {
    const auto applied = inputs.forced ? applied_factor(inputs.forced->cell) : std::nullopt;
    return applied && inputs.cell_facts.clip_norm > 0 && close_to(*applied, factor);
  }
  const auto update = update_of(inputs);
  return update && update->inputs.clip_norm > 0 && explains(*update, {.clip = factor});
}

/// Another norm than the reduced gradient's was recorded, or was clipped by: that of another window, or any else.
template <bool of_window>
Answer another_norm(const CauseInputs& inputs) {
  const Norms norms = norms_of(inputs);
  const bool is_norm = inputs.difference.phase == Phase::gradient_norm;
  const OtherNorm* found = nullptr;
  for (const OtherNorm& other : norms.others) {
    const std::string& code = other.code;
    // What counts ranks again looks as another limit would: only a config rules that out.
    const bool is_limit = code == "norm-of-sum" || code == "normalised-by-another-window" ||
                          (code == "clip-twice" && !inputs.cell_config);
    const double of_rank0 = other.of_ranks[0];
    if (is_norm ? !recorded(inputs, norms, other)
                : is_limit || close_to(of_rank0, norms.whole) || !clipped_by(inputs, of_rank0))
      continue;
    if (found && code != found->code) return {};
    if (!found) found = &other;
  }
  if (!found || of_window != (found->code == "normalised-by-another-window")) return {};
  const double strength = is_norm && found->code == "clip-twice" ? kStrong : kExact;
  return made(found->code, strength, "{} the norm {}, {:.4g}, where that of the reduced gradient is {}",
              is_norm ? "ranks record" : fmt::format("gradients were clipped to {} by", inputs.cell_facts.clip_norm),
              found->words, fmt::join(is_norm ? found->of_ranks : std::vector{found->of_ranks[0]}, ", "),
              short_number(norms.whole));
}

/// Replicas that part where each clips by a norm, and the norms are several.
Answer several_norms(const CauseInputs& inputs) {
  std::set<double> norms;
  for (const StepRecords& rank : inputs.cell->ranks) {
    for (const Record* record : records_of(rank, Phase::gradient_norm))
      if (record->is_scalar) norms.insert(record->value);
  }
  if (norms.size() < 2) return {};
  return told("gradients are clipped to {}, and ranks use {} different norms", inputs.cell_facts.clip_norm,
              norms.size());
}

/// What else multiplied the gradients, told from their factor: by clipping, or by ranks.
template <bool clips>
Answer another_factor(const CauseInputs& inputs) {
  const ForcedValues& cell = inputs.forced->cell;
  const std::optional<double> factor = applied_factor(cell);
  if (!factor) return {};
  const double clip = inputs.cell_facts.clip_norm, whole = reduced_norm(cell), right = clip_factor(clip, whole);
  const double world = world_size_of(inputs);
  const std::tuple<const char*, double, const char*, bool> all[] = {
      {"mean-taken-twice", right / world, "divided by the ranks once more after the reduction", false},
      {"gradient-sum-not-mean", right * world, "multiplied by the ranks after the reduction", false},
      {"clip-missing", 1, "not clipped", true},
      {"clip-twice", right * right, "clipped twice", true}};
  for (const auto& [code, wanted, how, by_clip] : all) {
    if (by_clip == clips && wanted != right && close_to(*factor, wanted))
      return made(code, kExact,
                  "gradients of norm {} were multiplied by {} where the clip's factor is {}: they were {}",
                  short_number(whole), short_number(*factor), short_number(right), how);
  }
  return {};
}

using MayBeValues = std::optional<std::vector<double>>;

/// The factor between values; nothing of gradients that are 0, and NaN where they have several.
std::optional<double> factor_between(const MayBeValues& before, const MayBeValues& after) {
  if (!before || !after || before->size() != after->size()) return std::nan("");
  if (!(norm(*before) > 0)) return std::nullopt;
  const Weights weights = weigh({{&*after, {&*before}}}, 0);
  return weights.residual <= 1e-5 ? weights.of[0] : std::nan("");
}

/// Of two records, between their norms where values were not kept.
std::optional<double> factor_between(const Record* reduced, const Record& applied) {
  if (!reduced) return std::nan("");
  const auto before = values_of(*reduced), after = values_of(applied);
  if (before && after && before->size() == after->size()) return factor_between(before, after);
  if (!reduced->has_stats || !applied.has_stats) return std::nan("");
  return reduced->stats.norm > 0 ? std::optional(applied.stats.norm / reduced->stats.norm) : std::nullopt;
}

/// The factor of all of a rank's tensors, of parts where it holds parts; NaN where they have several, or were not kept.
/// Of what it took, or of what it holds of `means`, those of local gradients: by hand nothing shows between.
double factor_of(const StepOfRun& step, std::size_t rank, const std::vector<NamedTensor>* means = nullptr) {
  double seen = 0;
  const Phase phase = means ? Phase::reduced_gradients : Phase::applied_gradients;
  for (const Record* taken : records_of(step.ranks[rank], phase)) {
    const Record* part = means ? nullptr : find_part(step, rank, Phase::applied_gradients, taken->name);
    const NamedTensor* mean = means ? find_tensor(*means, taken->name) : nullptr;
    const auto factor =
        means  ? factor_between(mean ? std::optional(mean->values) : std::nullopt, values_of(*taken))
        : part ? factor_between(find_part(step, rank, Phase::reduced_gradients, taken->name), *part)
               : factor_between(find_record(step.ranks[rank], Phase::reduced_gradients, taken->name), *taken);
    if (factor && seen != 0 && !close_to(*factor, seen)) return std::nan("");
    if (factor && seen == 0) seen = *factor;
  }
  return seen > 0 ? seen : std::nan("");
}

/// Has it two digits, as limits have that are written by hand?
bool is_round(double limit) {
  const double digits = limit / std::pow(10, std::floor(std::log10(limit)) - 1);
  return std::abs(digits - std::round(digits)) <= 1e-5 * digits;
}

/// Ranks that took different multiples of one reduced gradient, each clipped by the norm of what is its own.
Answer clipped_by_own_norms(const CauseInputs& inputs) {
  constexpr double kSame = 1e-4;
  const bool by_hand = inputs.difference.phase == Phase::reduced_gradients;
  if (by_hand && (!inputs.forced || inputs.forced->cell.reduced_by_sum)) return {};
  const std::vector<NamedTensor> means = by_hand ? mean_of_local(inputs.forced->cell) : std::vector<NamedTensor>();
  std::vector<double> factors;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank)
    factors.push_back(factor_of(*inputs.cell, rank, by_hand ? &means : nullptr));
  const auto [least, most] = std::ranges::minmax(factors);
  if (std::ranges::any_of(factors, [](double factor) { return std::isnan(factor); })) return {};
  for (const auto& [code, words, of_ranks] : norms_of(inputs).others) {
    double limit = 0, most_clipped = 0;
    for (std::size_t rank = 0; rank < factors.size(); ++rank) {
      if (factors[rank] > 1 - kSame) continue;
      limit = std::max(limit, factors[rank] * of_ranks[rank]);
      most_clipped = std::max(most_clipped, factors[rank]);
    }
    // One factor alone is that of any limit.
    const double declared = inputs.reference_facts.clip_norm;
    const bool is_known = declared > 0 ? close_to(limit, declared, kSame) : is_round(limit);
    bool fits = limit > 0 && (!close_to(least, most_clipped, 10 * kSame) || (most > 1 - kSame && is_known));
    for (std::size_t rank = 0; rank < factors.size(); ++rank)
      fits = fits && (factors[rank] > 1 - kSame ? of_ranks[rank] <= (1 + kSame) * limit
                                                : close_to(factors[rank] * of_ranks[rank], limit, kSame));
    if (fits)
      return made(code, kExact,
                  "the ranks' optimizers took {:.4g} times the reduced gradient: each clipped to {} by the norm {}, "
                  "{:.4g}",
                  fmt::join(factors, ", "), short_number(limit), words, fmt::join(of_ranks, ", "));
  }
  return {};
}

/// Ranks that each clip some tensors of their own, those that their part of the optimizer updates: together these have
/// the length of the limit.
Answer clipped_in_parts(const CauseInputs& inputs) {
  const double limit = std::max(inputs.reference_facts.clip_norm, inputs.cell_facts.clip_norm);
  std::set<std::string> all, clipped;
  std::vector<std::size_t> sizes;
  for (const StepRecords& rank : inputs.cell->ranks) {
    double squares = 0, seen = 1;
    sizes.push_back(0);
    for (const Record* applied : records_of(rank, Phase::applied_gradients)) {
      const auto factor = factor_between(find_record(rank, Phase::reduced_gradients, applied->name), *applied);
      all.insert(applied->name);
      if (!factor || close_to(*factor, 1)) continue;
      const auto values = values_of(*applied);
      // No tensor is two ranks'.
      if (!(*factor < 1) || !(values || applied->has_stats) || (seen != 1 && !close_to(*factor, seen)) ||
          !clipped.insert(applied->name).second)
        return {};
      seen = *factor;
      squares += std::pow(values ? norm(*values) : applied->stats.norm, 2);
      ++sizes.back();
    }
    if (seen != 1 && !close_to(std::sqrt(squares), limit, 1e-4)) return {};
  }
  if (clipped.empty() || std::ranges::find(sizes, all.size()) != sizes.end()) return {};
  return told("the ranks clip {} of {} tensors, each rank other ones, to {} by the norm of these alone",
              fmt::join(sizes, ", "), all.size(), limit);
}

/// To what the reference clips: as it declares or, of a clip made by hand, as the norm of what its optimizer took shows.
double limit_of_reference(const CauseInputs& inputs) {
  const double declared = inputs.reference_facts.clip_norm;
  const auto factor = declared > 0 ? std::nullopt : applied_factor(inputs.forced->reference);
  const double limit = factor && *factor < 0.999 ? *factor * reduced_norm(inputs.forced->reference) : 0;
  return limit > 0 && is_round(limit) ? limit : declared;
}

/// The reference clips, and the cell, which declares nothing of it, takes the same gradients as they are.
Answer not_clipped_to(const CauseInputs& inputs, double limit) {
  const ForcedEvidence& forced = *inputs.forced;
  if (!(limit > 0) || inputs.cell_facts.clip_norm > 0 || !agrees(forced.reduced)) return {};
  const auto of_reference = applied_factor(forced.reference), of_cell = applied_factor(forced.cell);
  const double whole = reduced_norm(forced.reference), right = clip_factor(limit, whole);
  if (!of_reference || !of_cell || right > 0.999 || !close_to(*of_reference, right, 1e-4) ||
      !close_to(*of_cell, 1, 1e-6))
    return {};
  return told("the optimizer took the reduced gradients, of norm {}, as they are; the reference's, clipped to {}, "
              "took {} times them",
              short_number(whole), limit, short_number(right));
}

Answer clip_not_made(const CauseInputs& inputs) { return not_clipped_to(inputs, inputs.reference_facts.clip_norm); }

/// Where no rank's own norm reaches the limit, who clips by that takes gradients as they are, too.
Answer own_norms_below_limit(const CauseInputs& inputs) {
  const double limit = limit_of_reference(inputs);
  if (!not_clipped_to(inputs, limit)) return {};
  for (const auto& [code, words, of_ranks] : norms_of(inputs).others) {
    const bool of_own = code == "norm-of-own-shard" || code == "clip-on-local-norm";
    if (of_own && std::ranges::max(of_ranks) <= limit)
      return made(code, kExact, "no rank's norm {}, {:.4g}, is above {}", words, fmt::join(of_ranks, ", "),
                  short_number(limit));
  }
  return {};
}

/// A parameter that no gradient moves: an average of others.
Answer average_stands_still(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  if (it.actual != kNoChange || is_buffer(it.where)) return {};
  return told(kFits, "{} has no gradient, moves in the reference's step and stands still on {}", it.where,
              it.rank < 0 ? std::string("every rank") : fmt::format("rank {}", it.rank));
}

}  // namespace

std::optional<double> applied_factor(const ForcedValues& cell) {
  const std::vector<std::vector<NamedTensor>> reduced = {cell.gradients};
  const std::vector<WeighedTensor> tensors = weighed_tensors(cell.applied, reduced);
  const Weights weights = weigh(tensors, cell.epsilon);
  const bool is_one = tensors.size() == cell.applied.size() && weights.of.size() == 1 && weights.all_known();
  return is_one && weights.residual <= 1e-5 ? std::optional(weights.of[0]) : std::nullopt;
}

std::span<const Hypothesis> update_hypotheses() {
  static constexpr Hypothesis kTable[] = {
      {"weight-decay-missing", kInParameters, kState, kExact, follows<"weight-decay-missing">,
       "weight_decay parameters.weight_decay"},
      {"weight-decay-twice", kInParameters, kState, kExact, follows<"weight-decay-twice">, "weight_decay"},
      {"decay-coupled", kInParameters, kState, kExact, follows<"decay-coupled">, "optimizer"},
      {"optimizer-state-lost", kInParameters, kState, kExact, follows<"optimizer-state-lost">},
      {"optimizer-counter-lost", kInParameters, kState, kExact, follows<"optimizer-counter-lost">},
      {"optimizer-counter-ahead", kInParameters, kState, kExact, follows<"optimizer-counter-ahead">},
      {"clip-missing", kInParameters, kState | kClip, kExact, follows<"clip-missing">},
      {"clip-twice", kInParameters, kState | kClip, kExact, follows<"clip-twice">},
      {"rate-not-applied", kInParameters, kState, kExact, follows<"rate-not-applied">},
      {"wrong-parameter-group", kInParameters, kState, kStrong, given<update_of, wrong_parameter_group>,
       "parameters.weight_decay parameters.rate_factor"},
      {"parameter-not-updated", kInParameters, kState, kExact, parameter_not_updated,
       "parameters.weight_decay parameters.rate_factor"},
      {"update-differs", kInParameters, kNothing, kGeneral, update_differs},
      {"optimizer-state-lost", kInSnapshot, kNothing, kExact, resumed_without_moments},
      {"optimizer-state-lost", kInParameters | kInState, kValues | kRuns, kExact, moments_of_one_update},
      {"parameter-not-updated", kInGradients, kRuns | kValues, kFits, without_gradient},
      {"parameter-not-updated", kInSamples, kRuns, kFits, some_parameters_not_updated},
      {"parameter-not-updated", kInParameters, kReplicas, kStrong, replica_stood_still},
      {"clip-on-local-norm replicated-counted-in-norm norm-of-own-shard norm-of-sum clip-twice",
       kInNorm | kInApplied | kInParameters, kRuns, kExact, another_norm<false>},
      {"norm-of-own-shard", kInEvaluation, kRuns, kExact, metric_is_norm_of_own_shard},
      {"clip-on-local-norm", kInParameters, kReplicas | kRanks | kClip, kStrong, several_norms},
      {"clip-missing clip-twice", kInApplied, kValues, kExact, another_factor<true>},
      {"clip-on-local-norm norm-of-own-shard", kInApplied | kInReduced, kRanks, kExact, clipped_by_own_norms},
      {"norm-of-own-shard", kInApplied | kInParameters, kRanks, kExact, clipped_in_parts},
      {"optimizer-counter-lost optimizer-counter-ahead optimizer-state-lost", kInState, kRuns, kStrong,
       optimizer_counts_otherwise},
      {"clip-missing", kInParameters | kInState, kValues, kExact, clip_not_made},
      {"norm-of-own-shard clip-on-local-norm", kInParameters | kInState, kValues | kRanks, kExact,
       own_norms_below_limit},
      {"parameter-not-updated", kInParameters, kNothing, kFits, average_stands_still},
  };
  return kTable;
}

Answer no_gradient_reduced(const CauseInputs& inputs) {
  const bool of_gradients = inputs.difference.phase == Phase::reduced_gradients && inputs.difference.divergence.kind == DivergenceKind::missing;
  if ((inputs.difference.phase != Phase::optimizer_state && !of_gradients) || !lacks_every_gradient(inputs)) return {};
  if (inputs.cell_before->step != inputs.cell->step - 1) return {};
  const auto [reducing, others] = calls_of(*inputs.cell);
  const auto [reducing_before, others_before] = calls_of(*inputs.cell_before);
  if (reducing != 0 || reducing_before == 0 || others == 0 || others != others_before) return {};
  std::size_t still = 0;
  for (const Record* record : records_of(inputs.cell->ranks[0], Phase::parameters)) {
    if (record->is_scalar || is_buffer(record->name)) continue;
    if (kept_its_bits(inputs, record->name) != std::optional(true)) return {};
    ++still;
  }
  if (still == 0) return {};
  return told("step {} makes the {} other calls of the step before and none of the {} that reduce gradients; no "
              "parameter has a reduced gradient, and none of {} moves",
              inputs.cell->step, others, reducing_before, still);
}

Answer norm_of_another_window(const CauseInputs& inputs) { return another_norm<true>(inputs); }

Answer some_reduced_again(const CauseInputs& inputs) {
  const ForcedValues& cell = inputs.forced->cell;
  const int world = world_size_of(inputs);
  std::map<std::string, double> factors;
  for (const NamedTensor& applied : cell.applied) {
    const NamedTensor* reduced = find_tensor(cell.gradients, applied.name);
    const auto factor = factor_between(reduced ? std::optional(reduced->values) : std::nullopt, applied.values);
    if (factor && std::isnan(*factor)) return {};
    if (factor) factors[applied.name] = *factor;
  }
  for (const auto& [first, common] : factors) {
    for (const double again : {static_cast<double>(world), 1.0 / world}) {
      std::vector<std::string> names;
      bool fits = world > 1;
      for (const auto& [name, factor] : factors) {
        if (close_to(factor, common * again)) names.push_back(name);
        else fits = fits && close_to(factor, common);
      }
      if (fits && !names.empty() && 2 * names.size() < factors.size())
        return made(again > 1 ? "gradient-sum-not-mean" : "mean-taken-twice", kExact,
                    "{}: {} times what the {} other tensors were multiplied by after the reduction",
                    fmt::join(names, ", "), factor_text(again, world), factors.size() - names.size());
    }
  }
  return {};
}

Answer taken_by_another_count(const CauseInputs& inputs) { return another_factor<false>(inputs); }

}  // namespace lockstep::causes
