// Asks the rules of the divergence's phase, and weighs their answers.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <optional>

#include <fmt/format.h>

#include "harness/verdict/causes/rules.h"
#include "harness/verdict/causes/score_evidence.h"
#include "harness/verdict/causes/step_gradients.h"
#include "harness/verdict/causes/trainer_rules.h"
#include "harness/verdict/compare/exact_runs.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {
namespace causes {

Cause made(const char* code, double confidence, const std::string& evidence) {
  return {code, confidence, evidence, ""};
}

int world_size_of(const CauseInputs& inputs) {
  // Of groups of ranks that hold the same parameters, one group is the world.
  if (inputs.forced && !inputs.forced->cell.local.empty()) return static_cast<int>(inputs.forced->cell.local.size());
  if (inputs.cell) return static_cast<int>(inputs.cell->ranks.size());
  return inputs.cell_config ? inputs.cell_config->layout.world_size : 1;
}

bool rows_may_not_count(const CauseInputs& inputs) {
  return inputs.cell_config && inputs.trainer && inputs.trainer->rows_may_not_count &&
         inputs.trainer->rows_may_not_count(*inputs.cell_config);
}

std::string factor_text(double factor, int world_size) {
  const double world = world_size;
  const auto is = [&](double value) {
    return std::abs(factor - value) <= 1e-4 * std::max(1e-3, std::abs(value));
  };
  if (is(0)) return "0";
  if (is(1)) return "1";
  if (is(-1)) return "-1";
  if (world_size > 1) {
    if (is(world)) return fmt::format("{} (the world size)", world_size);
    if (is(1 / world)) return fmt::format("1/{} (one over the world size)", world_size);
    if (is(1 / world / world))
      return fmt::format("1/{} (one over the world size squared)", world_size * world_size);
    if (is(world / (world - 1))) return fmt::format("{}/{}", world_size, world_size - 1);
    if (is((world - 1) / world)) return fmt::format("{}/{}", world_size - 1, world_size);
  }
  if (is(std::round(factor))) return fmt::format("{:.0f}", factor);
  return short_number(factor);
}

std::string signature_text(const GradientJudgement& judgement, int world_size) {
  std::string text;
  for (const GradientSignature& group : judgement.groups) {
    if (group.group == "all") continue;
    text += text.empty() ? "" : "; ";
    if (group.difference <= group.band) {
      text += group.group + " agrees";
      continue;
    }
    text += fmt::format("{} {} times the reference's, residual {:.2g}", group.group,
                        factor_text(group.ratio, world_size), group.residual);
  }
  return text;
}

namespace {

constexpr std::pair<Phase, std::span<const Rule> (*)()> kRules[] = {
    {Phase::samples, sample_rules},
    {Phase::random, random_rules},
    {Phase::control, control_rules},
    {Phase::scores, score_rules},
    {Phase::loss, loss_rules},
    {Phase::local_gradients, gradient_rules},
    {Phase::collective, ledger_rules},
    {Phase::reduced_gradients, reduction_rules},
    {Phase::gradient_norm, norm_rules},
    {Phase::applied_gradients, clip_rules},
    {Phase::parameters, update_rules},
    {Phase::snapshot, resumed_rules},
    {Phase::inputs, input_rules},
    {Phase::averaged_weights, average_rules},
    {Phase::evaluation, evaluation_rules},
    {Phase::optimizer_state, state_rules},
};

std::span<const Rule> rules_for(Phase phase) {
  const auto found = std::ranges::find(kRules, phase, [](const auto& each) { return each.first; });
  return found == std::end(kRules) ? std::span<const Rule>{} : found->second();
}

/// "local gradients: head 8 (the world size) times the reference's, residual 6.5e-08": of the first of both that
/// differs.
std::string gradients_seen(const CauseInputs& inputs) {
  if (!inputs.forced) return "";
  const auto differs = [](const GradientSignature& group) { return group.difference > group.band; };
  std::string alike;
  for (const auto& [name, judgement] : {std::pair("local gradients", &inputs.forced->local), std::pair("reduced gradients", &inputs.forced->reduced)}) {
    if (judgement->groups.empty()) continue;
    if (std::ranges::any_of(judgement->groups, differs))
      return fmt::format("{}: {}", name, signature_text(*judgement, world_size_of(inputs)));
    alike += fmt::format("{}{}", alike.empty() ? "" : " and ", name);
  }
  return alike.empty() ? "" : alike + " agree";
}

/// "found is 8 (the world size) times what was expected", of two single values.
std::string ratio_seen(const CauseInputs& inputs) {
  const auto number = [](const std::string& text) -> std::optional<double> {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && (end == text.data() + text.size() || *end == ';');
    return whole && std::isfinite(value) && value != 0 ? std::optional(value) : std::nullopt;
  };
  const Divergence& divergence = inputs.difference.divergence;
  if (is_exact(inputs.difference.phase) || (divergence.kind != DivergenceKind::band && divergence.kind != DivergenceKind::value)) return "";
  const auto expected = number(divergence.expected), found = number(divergence.actual);
  if (!expected || !found) return "";
  return fmt::format("the found value is {} times the expected one", factor_text(*found / *expected, world_size_of(inputs)));
}

/// What is known beside the divergence's own sentence, where nothing fits.
std::string plain_evidence(const CauseInputs& inputs) {
  std::string text = "no known cause fits";
  // With which weights a resumed run begins.
  if (inputs.difference.phase == Phase::snapshot && inputs.difference.divergence.kind == DivergenceKind::value)
    text += "; " + expected_found(inputs.difference.divergence.expected, inputs.difference.divergence.actual);
  for (const std::string& fact : {ratio_seen(inputs), gradients_seen(inputs), functions_seen(inputs)}) {
    if (!fact.empty()) text += "; " + fact;
  }
  const bool only_hashes = !inputs.forced && inputs.difference.divergence.step >= 0 && !is_exact(inputs.difference.phase);
  if (only_hashes && both_exact(inputs.reference_config, inputs.cell_config)) {
    text += "; run again with trace: full: it keeps the values, from which most causes can be named";
  }
  return text;
}

/// How near two answers must be for their contradiction to count.
constexpr double kEqualStrength = 0.05;

Cause weighed(std::vector<Cause> answers, const CauseInputs& inputs) {
  std::stable_sort(answers.begin(), answers.end(),
                   [](const Cause& x, const Cause& y) { return x.confidence > y.confidence; });
  if (answers.empty()) return made("unexplained", 0, plain_evidence(inputs));
  const Cause& best = answers.front();
  for (const Cause& other : answers) {
    if (other.code == best.code || best.confidence - other.confidence >= kEqualStrength) continue;
    return made("unexplained", 0,
                fmt::format("{} and {} fit equally well: {}; and: {}", best.code, other.code, best.evidence,
                            other.evidence));
  }
  return best;
}

/// Phases as a set.
using Phases = uint32_t;
constexpr Phases set_of(std::initializer_list<Phase> phases) {
  Phases set = 0;
  for (const Phase phase : phases) set |= Phases{1} << static_cast<unsigned>(phase);
  return set;
}
constexpr bool holds(Phases set, Phase phase) { return (set >> static_cast<unsigned>(phase) & 1U) != 0; }

constexpr Phases kForward = set_of({Phase::scores, Phase::loss, Phase::local_gradients, Phase::collective,
                                    Phase::reduced_gradients, Phase::gradient_norm});
// Shapes of the model follow from those of the data.
constexpr Phases kOfData = kForward | set_of({Phase::samples, Phase::random, Phase::parameters, Phase::evaluation});
constexpr Phases kOfDraws = kForward | set_of({Phase::random});
constexpr Phases kOfRate = set_of({Phase::control, Phase::parameters, Phase::optimizer_state});
constexpr Phases kOfUpdate = set_of({Phase::parameters, Phase::optimizer_state, Phase::snapshot});
constexpr Phases kAll = ~Phases{0};

struct KeyPhases {
  std::string_view key;  ///< or the beginning of several, up to their dot
  Phases phases;         ///< in which it can first show
};
/// What is not listed, a trainer's own keys above all, may show anywhere.
constexpr auto kKeyPhases = std::to_array<KeyPhases>({
    {"data.", kOfData},
    {"layout", kOfData | kOfRate},
    {"steps", kOfRate | set_of({Phase::samples})},
    {"accumulation", kOfDraws},
    {"rank_seed", kOfDraws},
    {"precision", kForward | kOfUpdate},
    {"parameters.", kOfUpdate | kOfRate},
    {"optimizer", kOfUpdate},
    {"momentum", kOfUpdate},
    {"beta1", kOfUpdate},
    {"beta2", kOfUpdate},
    {"eps", kOfUpdate},
    {"weight_decay", kOfUpdate},
    {"clip_norm", kOfUpdate | set_of({Phase::applied_gradients, Phase::gradient_norm})},
    {"lr", kOfRate},
    {"lr_rule", kOfRate},
    {"lr_scale", kOfRate},
    {"schedule", kOfRate},
    {"warmup_steps", kOfRate},
    {"base_rate", kOfRate},
    {"global_batch", kOfData | kOfRate},
    {"watch.nan_guard", kOfUpdate},
    {"update", kOfUpdate | set_of({Phase::reduced_gradients, Phase::gradient_norm, Phase::applied_gradients})},
    {"average_decay", set_of({Phase::averaged_weights, Phase::snapshot})},
    {"auxiliary.weight", kForward | set_of({Phase::parameters})},
    {"activation_checkpointing", set_of({Phase::random, Phase::local_gradients, Phase::reduced_gradients})},
});

/// Nothing that acts on updates alone has acted before the first step.
bool fits(const std::string& key, const Difference& difference) {
  const auto is = [&](const KeyPhases& it) { return it.key.ends_with('.') ? key.starts_with(it.key) : key == it.key; };
  const auto found = std::ranges::find_if(kKeyPhases, is);
  const Phases phases = found == kKeyPhases.end() ? kAll : found->phases;
  return holds(phases, difference.phase) && (difference.divergence.step >= 0 || holds(phases, Phase::scores));
}

struct Consequence {
  std::string_view key, code;
};
/// Causes that say what a key does rather than that something else is wrong. Those of updates are closed forms that
/// reproduce every parameter.
constexpr auto kConsequences = std::to_array<Consequence>({
    {"lr_rule", "rate-scaled-linear"},
    {"lr_rule", "rate-scaled-sqrt"},
    {"parameters.weight_decay", "wrong-parameter-group"},
    {"parameters.weight_decay", "weight-decay-missing"},
    {"parameters.weight_decay", "parameter-not-updated"},
    {"parameters.rate_factor", "parameter-not-updated"},
    {"parameters.rate_factor", "wrong-parameter-group"},
    {"parameters.rate_factor", "rate-differs"},
    {"weight_decay", "weight-decay-missing"},
    {"weight_decay", "weight-decay-twice"},
    {"optimizer", "decay-coupled"},
    {"rank_seed", "same-stream-on-all-ranks"},
    {"rank_seed", "stream-keyed-by-rank"},
    {"negatives", "negatives-missing"},
    {"negatives", "local-negatives"},
    {"statistics", "local-advantage-statistics"},
    {"mask_duplicates", "duplicates-not-masked"},
});

/// The cause `config-differs` where keys differ that first act in the divergence's phase; nothing where none does.
/// `named`: what the rules of the phase answer. Where that is just what one of these keys is for (a scaled rate of
/// `lr_rule`, missing negatives of `negatives`), it stays, and its evidence tells the key.
std::optional<Cause> by_config(const CauseInputs& inputs, const Cause& named) {
  std::vector<ConfigDifference> fitting;
  for (const ConfigDifference& it : inputs.config_differences) {
    // Another precision explains little of what has a name of its own, and micro-steps are a way of computing the same
    // step.
    const bool is_a_way = it.key == "precision" || it.key == "accumulation";
    const bool of_any_trainer = !inputs.reference_config && !inputs.cell_config;
    // By their declarations the runs are compared: a mean with a sum over as many.
    if (of_any_trainer && it.key == "gradient_reduction") continue;
    const bool explains = !is_a_way || (named.confidence <= kGeneral && !(of_any_trainer && it.key == "accumulation"));
    if (explains && fits(it.key, inputs.difference)) fitting.push_back(it);
  }
  if (fitting.empty()) return std::nullopt;
  const bool is_meant = std::ranges::any_of(fitting, [&](const ConfigDifference& it) {
    return std::ranges::any_of(kConsequences,
                               [&](const Consequence& each) { return each.key == it.key && each.code == named.code; });
  });
  const std::string keys = "the configs differ in " + differences_text(fitting);
  if (is_meant) return Cause{named.code, named.confidence, fmt::format("{}; {}", named.evidence, keys), "", named.rank};
  const bool tells = named.code != "unexplained";
  return made("config-differs", kExact,
              fmt::format("{}, which can take effect first in {}{}", keys, inputs.difference.divergence.phase,
                          tells ? fmt::format("; it looks like {}: {}", named.code, named.evidence) : ""));
}

}  // namespace
}  // namespace causes

std::optional<Cause> name_cause(const CauseInputs& inputs) {
  std::vector<Cause> answers;
  const auto ask = [&](std::span<const causes::Rule> rules) {
    for (const causes::Rule rule : rules) {
      if (std::optional<Cause> answer = rule(inputs)) answers.push_back(std::move(*answer));
    }
  };
  const Phase phase = inputs.difference.phase;
  const causes::TrainerRules& own = causes::trainer_rules(inputs);
  const bool is_ours = inputs.trainer || inputs.rules;
  if (const auto rules = is_ours ? own.rules : own.rules_of_roles) {
    ask(rules(phase));
    if (phase != Phase::local_gradients && causes::lacks_a_gradient(inputs)) ask(rules(Phase::local_gradients));
  }
  ask(causes::rules_for(phase));
  for (const auto rules : {causes::missing_gradient_rules, causes::buffer_rules, causes::forward_draw_rules}) ask(rules());
  for (const auto rules : {causes::accumulation_rules, causes::named_loss_rules, causes::shard_rules}) ask(rules(phase));
  ask(causes::factor_rules());
  ask(causes::rows_apart_rules());
  if (causes::scores_candidates(inputs)) {
    if (phase == Phase::scores) ask(causes::candidate_rules());
    if (phase == Phase::loss) ask(causes::contrast_rules());
  }
  ask(causes::initial_rules());
  if (inputs.difference.divergence.kind == DivergenceKind::replica) ask(causes::replica_rules());
  if (!is_exact(phase)) ask(causes::finite_rules());
  Cause cause = causes::weighed(std::move(answers), inputs);
  if (auto configured = causes::by_config(inputs, cause)) cause = *std::move(configured);
  if (const CausePage* page = find_cause_page(cause.code)) cause.remedy = page->remedy;
  if (cause.code == "unexplained" && !inputs.config_differences.empty())
    cause.remedy += fmt::format(" The runs' settings differ in: {}.", differences_text(inputs.config_differences));
  return cause;
}

}  // namespace lockstep
