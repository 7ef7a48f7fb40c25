#include "harness/judge/causes/name_cause.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "harness/judge/causes/gradient.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/trainer_spec.h"

// Asks the rules of the divergence's phase, and weighs their answers.

namespace lockstep {

/// Families in the order of a step, and what belongs to no step after them.
constexpr std::array<std::string_view, 12> kFamilies = {"samples",  "random", "control",   "energies",
                                                        "loss",     "gradient", "reduction", "update",
                                                        "replicas", "ledger",   "failed",    "always"};

/// A family that stands nowhere in the order comes before what belongs to no step.
static std::size_t place_of(std::string_view family) {
  const auto at = std::ranges::find(kFamilies, family);
  return static_cast<std::size_t>((at == kFamilies.end() ? kFamilies.end() - 2 : at) - kFamilies.begin());
}

std::span<const CausePage> cause_pages() {
  static const std::vector<CausePage> pages = [] {
    std::vector<CausePage> all;
    for (const causes::RulesOfTrainer& it : causes::all_trainer_rules()) {
      if (!it.rules->pages) continue;
      const auto own = it.rules->pages();
      all.insert(all.end(), own.begin(), own.end());
    }
    for (const auto table : {causes::reward_pages(), causes::pages_of_any()})
      all.insert(all.end(), table.begin(), table.end());
    std::ranges::stable_sort(all, {}, [](const CausePage& page) { return place_of(page.family); });
    return all;
  }();
  return pages;
}

const CausePage* find_cause_page(std::string_view code) {
  const std::span<const CausePage> pages = cause_pages();
  const auto found = std::ranges::find(pages, code, &CausePage::code);
  return found == pages.end() ? nullptr : &*found;
}

namespace causes {

/// Does the header declare roles, and does the trainer know every one?
static bool knows_all_roles(const TrainerRules& rules, const Declared& declared) {
  bool any = false;
  for (const DeclaredParameters& each : declared.parameters) {
    if (each.role.empty()) continue;
    if (!rules.role_named(each.role)) return false;
    any = true;
  }
  return any;
}

const TrainerRules& trainer_rules(std::string_view trainer) {
  static constexpr TrainerRules kNone;
  const auto all = all_trainer_rules();
  const auto at = std::ranges::find(all, trainer, &RulesOfTrainer::trainer);
  return at == all.end() ? kNone : *at->rules;
}

const TrainerRules& trainer_rules(const CauseInputs& inputs) {
  if (inputs.rules) return *inputs.rules;
  if (inputs.trainer) return trainer_rules(inputs.trainer->name);
  static constexpr TrainerRules kNone;
  const Declared* declared = declared_of(inputs);
  if (!declared) return kNone;
  for (const RulesOfTrainer& each : all_trainer_rules())
    if (each.rules->role_named && knows_all_roles(*each.rules, *declared)) return *each.rules;
  return kNone;
}

const Declared* declared_of(const CauseInputs& inputs) {
  return inputs.cell ? inputs.cell->declared.get() : nullptr;
}

Cause made(std::string code, double confidence, std::string evidence) {
  return {std::move(code), confidence, std::move(evidence), ""};
}

int world_size_of(const CauseInputs& inputs) {
  // Of groups of ranks that hold the same parameters, one group is the world.
  if (inputs.forced && !inputs.forced->cell.local.empty()) return static_cast<int>(inputs.forced->cell.local.size());
  if (inputs.cell) return static_cast<int>(inputs.cell->ranks.size());
  return inputs.cell_config ? inputs.cell_config->layout.world_size : 1;
}

double rounded_to(double value, int bits) {
  const auto raw = std::bit_cast<uint32_t>(static_cast<float>(value));
  const int dropped = 23 - bits;
  const uint32_t half = (uint32_t{1} << (dropped - 1)) - 1 + ((raw >> dropped) & 1);
  return std::bit_cast<float>(((raw + half) >> dropped) << dropped);
}

double norm_of(const StepRecords& rank, Phase phase) {
  double norm = 0;
  for (const Record* record : records_of(rank, phase))
    if (!record->is_scalar) norm = std::hypot(norm, record->has_stats ? record->stats.norm : std::nan(""));
  return norm;
}

std::map<std::size_t, std::string> group_sizes(const CauseInputs& inputs) {
  std::map<std::size_t, std::string> sizes = {{static_cast<std::size_t>(world_size_of(inputs)), ""}};
  if (inputs.cell) sizes.emplace(inputs.cell->ranks.size(), "");
  if (const Declared* declared = declared_of(inputs)) {
    for (const auto& [name, ranks] : declared->groups)
      sizes.emplace(ranks.size(), fmt::format(", the ranks of group \"{}\"", name));
  }
  sizes.erase(1);
  return sizes;
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

/// Is one of these words separated by spaces?
static bool is_among(std::string_view words, std::string_view word) {
  return fmt::format(" {} ", words).find(fmt::format(" {} ", word)) != std::string::npos;
}

constexpr std::span<const Hypothesis> (*kTables[])() = {sample_hypotheses,   random_hypotheses,    rate_hypotheses,
                                                        score_hypotheses,    reward_hypotheses,    loss_hypotheses,
                                                        gradient_hypotheses, reduction_hypotheses, update_hypotheses,
                                                        replica_hypotheses};

std::vector<std::span<const Hypothesis>> all_hypotheses() {
  std::vector<std::span<const Hypothesis>> all;
  for (const auto table : kTables) all.push_back(table());
  for (const RulesOfTrainer& each : all_trainer_rules())
    if (each.rules->hypotheses) all.push_back(each.rules->hypotheses());
  return all;
}

namespace {

/// What each is called, and whether it is there.
struct Evidence {
  Need need;
  const char* words;
  bool (*is_there)(const CauseInputs& inputs);
};
constexpr Evidence kEvidence[] = {
    {kRuns, "the step's records of both runs", [](const CauseInputs& it) { return it.reference && it.cell; }},
    {kRanks, "several ranks",
     [](const CauseInputs& it) { return it.reference && it.cell && it.cell->ranks.size() > 1; }},
    {kBefore, "the step before", [](const CauseInputs& it) { return it.cell_before.has_value(); }},
    {kValues, "values of both runs", [](const CauseInputs& it) { return it.forced.has_value(); }},
    {kState, "values before the update", [](const CauseInputs& it) { return it.forced && it.forced->state; }},
    {kLocal, "every rank's local gradients",
     [](const CauseInputs& it) { return it.forced && !it.forced->local.tensors.empty(); }},
    {kReplicas, "replicas that differ",
     [](const CauseInputs& it) { return it.difference.divergence.kind == DivergenceKind::replica; }},
    {kConfigs, "both configs", [](const CauseInputs& it) { return it.reference_config && it.cell_config; }},
    {kScores, "scores by row",
     [](const CauseInputs& it) {
       return it.forced && it.forced->reference.scores && it.forced->cell.scores && !misses_scores(it);
     }},
    {kClip, "the norm to clip to", [](const CauseInputs& it) { return it.cell_facts.clip_norm > 0; }},
    {kCandidates, "rows scored against candidates", scores_candidates},
    {kWorld, "replicas", [](const CauseInputs& it) { return world_size_of(it) > 1; }},
    {kOurs, "a trainer of lockstep", [](const CauseInputs& it) { return it.trainer || it.rules; }},
};

/// What those of the phase answer whose evidence is there.
void ask(std::span<const Hypothesis> table, const CauseInputs& inputs, std::vector<Cause>& answers) {
  Needs have = kNothing;
  for (const Evidence& each : kEvidence) have |= each.is_there(inputs) ? each.need : kNothing;
  for (const Hypothesis& row : table) {
    if (!holds(row.phases, inputs.difference.phase) || (row.needs & ~have) != 0) continue;
    Answer answer = row.predict(inputs);
    if (!answer) continue;
    if (answer->code.empty()) answer->code = row.codes.substr(0, row.codes.find(' '));
    if (answer->confidence == 0) answer->confidence = row.strength;
    answers.push_back(*std::move(answer));
  }
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
  for (const std::string& fact : {ratio_seen(inputs), gradients_seen(inputs)})
    if (!fact.empty()) text += "; " + fact;
  const bool only_hashes = !inputs.forced && inputs.difference.divergence.step >= 0 && !is_exact(inputs.difference.phase);
  if (only_hashes && both_exact(inputs.reference_config, inputs.cell_config))
    text += "; run again with trace: full: it keeps the values, from which most causes can be named";
  return text;
}

/// How near two answers must be for their contradiction to count.
constexpr double kEqualStrength = 0.05;

Cause best_of(std::vector<Cause> answers, const CauseInputs& inputs) {
  std::ranges::stable_sort(answers, std::greater(), &Cause::confidence);
  if (answers.empty()) return made("unexplained", 0, plain_evidence(inputs));
  const Cause& best = answers.front();
  for (const Cause& other : answers) {
    if (other.code == best.code || best.confidence - other.confidence >= kEqualStrength) continue;
    Cause both = made("unexplained", 0, "{} and {} fit equally well: {}; and: {}", best.code, other.code, best.evidence,
                      other.evidence);
    for (const Cause* each : {&best, &other})
      if (const CausePage* page = find_cause_page(each->code))
        both.remedy += fmt::format("{}{}: {}", both.remedy.empty() ? "" : " Or, ", each->code, page->remedy);
    return both;
  }
  return best;
}

constexpr Phases kForward = in(Phase::scores, Phase::loss, Phase::local_gradients, Phase::collective,
                                    Phase::reduced_gradients, Phase::gradient_norm);
// Shapes of the model follow from those of the data.
constexpr Phases kOfData = kForward | in(Phase::samples, Phase::random, Phase::parameters, Phase::evaluation);
constexpr Phases kOfDraws = kForward | in(Phase::random);
constexpr Phases kOfRate = in(Phase::control, Phase::parameters, Phase::optimizer_state);
constexpr Phases kOfUpdate = in(Phase::parameters, Phase::optimizer_state, Phase::snapshot);

struct KeyPhases {
  std::string_view key;  ///< or the beginning of several, up to their dot
  Phases phases;         ///< in which it can first show
};
/// What is not listed, a trainer's own keys above all, may show anywhere.
constexpr auto kKeyPhases = std::to_array<KeyPhases>({
    {"data.", kOfData},
    {"layout", kOfData | kOfRate},
    {"steps", kOfRate | in(Phase::samples)},
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
    {"clip_norm", kOfUpdate | in(Phase::applied_gradients, Phase::gradient_norm)},
    {"lr", kOfRate},
    {"lr_rule", kOfRate},
    {"lr_scale", kOfRate},
    {"schedule", kOfRate},
    {"warmup_steps", kOfRate},
    {"base_rate", kOfRate},
    {"global_batch", kOfData | kOfRate},
    {"watch.nan_guard", kOfUpdate},
    {"update", kOfUpdate | in(Phase::reduced_gradients, Phase::gradient_norm, Phase::applied_gradients)},
    {"average_decay", in(Phase::averaged_weights, Phase::snapshot)},
    {"auxiliary.weight", kForward | in(Phase::parameters)},
    {"activation_checkpointing", in(Phase::random, Phase::local_gradients, Phase::reduced_gradients)},
});

/// Nothing that acts on updates alone has acted before the first step.
bool fits(const std::string& key, const Difference& difference) {
  const auto is = [&](const KeyPhases& it) { return it.key.ends_with('.') ? key.starts_with(it.key) : key == it.key; };
  const auto found = std::ranges::find_if(kKeyPhases, is);
  const Phases phases = found == kKeyPhases.end() ? kAnyPhase : found->phases;
  return holds(phases, difference.phase) && (difference.divergence.step >= 0 || holds(phases, Phase::scores));
}

/// Does the cause say what the key does rather than that something else is wrong?
bool is_consequence(std::string_view code, std::string_view key) {
  return std::ranges::any_of(all_hypotheses(), [&](const auto& table) {
    return std::ranges::any_of(table, [&](const Hypothesis& each) {
      return is_among(each.key, key) && is_among(each.codes, code);
    });
  });
}

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
  const bool is_meant =
      std::ranges::any_of(fitting, [&](const ConfigDifference& it) { return is_consequence(named.code, it.key); });
  const std::string keys = "the configs differ in " + differences_text(fitting);
  if (is_meant) return Cause{named.code, named.confidence, fmt::format("{}; {}", named.evidence, keys), "", named.rank};
  const bool tells = named.code != "unexplained";
  return made("config-differs", kExact, "{}, which can take effect first in {}{}", keys,
              inputs.difference.divergence.phase,
              tells ? fmt::format("; it looks like {}: {}", named.code, named.evidence) : "");
}

}  // namespace
}  // namespace causes

std::string shown_by(std::string_view code) {
  causes::Phases phases = 0;
  std::vector<std::string> ways;
  for (const auto table : causes::all_hypotheses()) {
    for (const causes::Hypothesis& row : table) {
      if (!causes::is_among(row.codes, code)) continue;
      phases |= row.phases;
      std::vector<std::string_view> needs;
      for (const causes::Evidence& each : causes::kEvidence)
        if ((row.needs & each.need) != 0) needs.push_back(each.words);
      const std::string way = needs.empty() ? "the records up to it" : fmt::format("{}", fmt::join(needs, " and "));
      if (std::ranges::find(ways, way) == ways.end()) ways.push_back(way);
    }
  }
  std::vector<std::string_view> names;
  for (const Phase phase : phases_in_order())
    if (causes::holds(phases, phase)) names.push_back(name_of(phase));
  const bool any = phases == 0 || names.size() > 8;
  if (ways.empty()) return std::string(find_cause_page(code)->family);
  return fmt::format("{}; from {}", any ? "any phase" : fmt::format("{}", fmt::join(names, ", ")),
                     fmt::join(ways, ", or "));
}

std::string proved_by(std::string_view code) {
  std::vector<std::string> programs, made;
  for (const MutantEntry& each : mutant_entries())
    if (causes::is_among(each.causes, code)) programs.push_back(fmt::format("mutant {}", each.name));
  for (const causes::Proof& each : causes::proofs()) {
    const bool trains = each.test.starts_with("tests/probe/") || each.test.ends_with(".json");
    const bool expects = each.codes.find(fmt::format("\"{}\"", code)) != std::string_view::npos;
    if (expects) (trains ? programs : made).emplace_back(each.test);
  }
  if (programs.empty()) programs.push_back("no program");
  programs.insert(programs.end(), made.begin(), made.end());
  return fmt::format("{}", fmt::join(programs, ", "));
}

std::optional<Cause> name_cause(const CauseInputs& inputs) {
  std::vector<Cause> answers;
  if (const auto own = causes::trainer_rules(inputs).hypotheses) causes::ask(own(), inputs, answers);
  for (const auto table : causes::kTables) causes::ask(table(), inputs, answers);
  Cause cause = causes::best_of(std::move(answers), inputs);
  if (auto configured = causes::by_config(inputs, cause)) cause = *std::move(configured);
  if (const CausePage* page = find_cause_page(cause.code); page && cause.remedy.empty()) cause.remedy = page->remedy;
  if (cause.code == "unexplained" && !inputs.config_differences.empty())
    cause.remedy += fmt::format(" The runs' settings differ in: {}.", differences_text(inputs.config_differences));
  return cause;
}

namespace {

/// Where the comparison tells no single rank and the cause proves one, the first divergence tells that.
void tell_rank(Mechanism& mechanism, int world_size) {
  if (!mechanism.cause || !mechanism.cause->rank || !mechanism.first_divergence || mechanism.first_divergence->rank >= 0) return;
  Divergence& told = *mechanism.first_divergence;
  const std::string old = fmt::format(", {}: ", rank_text(told.rank, world_size)), now = fmt::format(", {}: ", rank_text(*mechanism.cause->rank, world_size));
  told.rank = *mechanism.cause->rank;
  for (std::string* text : {&told.sentence, &mechanism.sentence}) {
    const std::size_t at = text->find(old);
    if (at != std::string::npos) text->replace(at, old.size(), now);
  }
}

Mechanism named(Comparison comparison, const std::vector<ConfigDifference>& differences) {
  Mechanism& mechanism = comparison.mechanism;
  if (comparison.around) {
    comparison.around->config_differences = differences;
    // What one header alone declares is not known to differ: told, and no cause.
    std::erase_if(comparison.around->config_differences, [](const ConfigDifference& each) { return each.reference == kNotDeclared || each.cell == kNotDeclared; });
    mechanism.cause = name_cause(*comparison.around);
    const std::optional<Cause> by_values = comparison.by_values ? name_cause(*comparison.by_values) : std::nullopt;
    if (by_values && (mechanism.cause->code == "unexplained" || by_values->code == "wrong-reduction-op"))
      mechanism.cause = by_values;
    if (comparison.around->cell) tell_rank(mechanism, static_cast<int>(comparison.around->cell->ranks.size()));
  }
  return std::move(mechanism);
}

/// What is configured otherwise comes first, whatever the verdict.
Mechanism with_differences(Mechanism mechanism, const std::vector<ConfigDifference>& differences) {
  if (!differences.empty()) mechanism.sentence = fmt::format("Configs differ in {}. {}", differences_text(differences), mechanism.sentence);
  return mechanism;
}

/// A difference of runs that are not at the same bits counts only if a closed form explains it.
bool is_explained(const CauseInputs& inputs) {
  constexpr double kCertain = 0.9;
  const auto cause = name_cause(inputs);
  if (!cause || cause->code == "unexplained") return false;
  // One factor on all of several tensors is unlike anything that rounding grows into, though many mistakes have one.
  const bool of_all = cause->code == "constant-factor" && inputs.forced && inputs.forced->reference.gradients.size() > 1;
  return of_all || cause->confidence >= kCertain;
}

/// A class of PyTorch's? Other names do not tell what they compute.
bool is_known_optimizer(const std::string& name) {
  constexpr const char* kNames[] = {"sgd",    "adam",   "adamw",    "adagrad",   "adadelta", "adamax", "asgd",
                                    "nadam",  "radam",  "rmsprop",  "rprop",     "adafactor", "muon",  "lbfgs"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

/// From which step on another setting of the optimizer acts; nothing for other keys, and where one header alone
/// declares it.
std::optional<int64_t> acts_from(const ConfigDifference& difference) {
  if (difference.reference == kNotDeclared || difference.cell == kNotDeclared) return std::nullopt;
  const std::string& key = difference.key;
  if (key == "optimizer") return is_known_optimizer(difference.reference) && is_known_optimizer(difference.cell) ? std::optional<int64_t>(0) : std::nullopt;
  if (key == "weight_decay" || key == "eps") return 0;
  if (key == "momentum" || key == "beta1" || key == "beta2") return 1;
  return std::nullopt;
}

/// Two optimizers with other settings train otherwise, also where no update could be recomputed and rounding hides the
/// difference.
Mechanism parted_by_settings(Mechanism mechanism, const std::vector<ConfigDifference>& differences) {
  if (mechanism.verdict != VerdictKind::within_envelope && mechanism.verdict != VerdictKind::inconclusive) return mechanism;
  const ConfigDifference* first = nullptr;
  for (const ConfigDifference& each : differences)
    if (acts_from(each) && (!first || *acts_from(each) < *acts_from(*first))) first = &each;
  if (!first) return mechanism;
  Divergence told{*acts_from(*first), name_of(Phase::parameters), kAllRanks, first->key, DivergenceKind::value, first->reference, first->cell, ""};
  told.sentence = fmt::format("The optimizers' settings differ, which acts from step {} on: {} {} where the reference has {}.", told.step, first->key, first->cell, first->reference);
  mechanism.verdict = VerdictKind::divergent;
  mechanism.sentence = told.sentence + (mechanism.sentence.empty() ? "" : " What could be compared: " + mechanism.sentence);
  mechanism.first_divergence = std::move(told);
  mechanism.cause = Cause{"config-differs", 0.9, fmt::format("the headers declare {} {} and {}", first->key, first->reference, first->cell), std::string(find_cause_page("config-differs")->remedy)};
  return mechanism;
}

/// Where and why a run ended, and what was trained and not recorded, come before everything else. Where that is as much
/// as what was recorded, nothing good can be said of the training.
Mechanism with_accounts(Mechanism mechanism, const CompareOptions& options) {
  const RunAccount a = read_run_account(options.run_a), b = read_run_account(options.run_b);
  std::string begin;
  for (const auto& [name, account] : {std::pair{"Run A", &a}, std::pair{"Run B", &b}})
    if (!account->ended.empty()) begin += fmt::format("{} {}. ", name, account->ended);
  const bool alike = a.unrecorded == b.unrecorded;
  if (!a.unrecorded.empty()) begin += fmt::format("In {}: {}. ", alike ? "both runs" : "run A", a.unrecorded);
  if (!b.unrecorded.empty() && !alike) begin += fmt::format("In run B: {}. ", b.unrecorded);
  for (const RunAccount* each : {&a, &b})
    if (!each->also.empty() && (each == &a || options.run_a != options.run_b))
      begin += fmt::format("{} {} further training of the run, to be compared by its own name. ", fmt::join(each->also, ", "), each->also.size() == 1 ? "holds a" : "hold each a");
  const bool is_good = mechanism.verdict == VerdictKind::identical || mechanism.verdict == VerdictKind::within_envelope;
  if (is_good && (a.leaves_open || b.leaves_open)) {
    mechanism.verdict = VerdictKind::inconclusive;
    begin += "At least as many steps are unknown as are recorded: record each training by a trace of its own, or choose it by "
             "attach(model, optimizer). What was recorded: ";
    mechanism.decide = "lockstep trace --out DIR -- COMMAND";
  }
  mechanism.sentence = begin + mechanism.sentence;
  return mechanism;
}

}  // namespace

Mechanism compare_runs(const CompareOptions& options) {
  CompareOptions asking = options;
  asking.explains = is_explained;
  const bool alone = !options.reference_config && !options.cell_config && options.repeats.empty();
  const std::vector<ConfigDifference> differences = differences_of(options);
  Mechanism mechanism = named(compare_traces(asking), differences);
  mechanism = with_differences(alone ? parted_by_settings(std::move(mechanism), differences) : std::move(mechanism), differences);
  return alone ? with_accounts(std::move(mechanism), options) : mechanism;
}

Mechanism judge_forced(const ForcedInputs& inputs) {
  if (!inputs.forced_reference.empty()) {
    const std::vector<ConfigDifference> differences = config_differences(inputs.configs());
    Mechanism mechanism = with_differences(named(compare_forced(inputs), differences), differences);
    causes::add_reward_answers(inputs, mechanism);
    return mechanism;
  }
  return compare_runs({.run_a = inputs.run_a, .run_b = inputs.run_b, .steps = inputs.steps});
}

}  // namespace lockstep
