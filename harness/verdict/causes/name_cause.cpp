// Asks the rules of the divergence's phase, and weighs their answers.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "harness/verdict/causes/config_keys.h"
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

std::span<const Rule> rules_for(Phase phase) {
  switch (phase) {
    case Phase::samples:
      return sample_rules();
    case Phase::random:
      return random_rules();
    case Phase::control:
      return control_rules();
    case Phase::scores:
      return score_rules();
    case Phase::loss:
      return loss_rules();
    case Phase::local_gradients:
      return gradient_rules();
    case Phase::collective:
      return ledger_rules();
    case Phase::reduced_gradients:
      return reduction_rules();
    case Phase::gradient_norm:
      return norm_rules();
    case Phase::applied_gradients:
      return clip_rules();
    case Phase::parameters:
      return update_rules();
    case Phase::snapshot:
      return resumed_rules();
    case Phase::inputs:
      return input_rules();
    case Phase::averaged_weights:
      return average_rules();
    case Phase::evaluation:
      return evaluation_rules();
    case Phase::optimizer_state:
      return state_rules();
    default:
      return {};
  }
}

/// "local gradients: head 8 (the world size) times the reference's, residual 6.5e-08": of the first of both that differs.
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
