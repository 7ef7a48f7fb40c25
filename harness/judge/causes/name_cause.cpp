#include "harness/judge/causes/name_cause.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "harness/judge/causes/gradient.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/causes/scores.h"
#include "harness/judge/compare/exact_runs.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/trainer_spec.h"

// Asks the rules of the divergence's phase, and weighs their answers.

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

constexpr std::span<const Hypothesis> (*kTables[])() = {gradient_hypotheses};

/// Which evidence there is.
Needs evidence_in(const CauseInputs& it) {
  const ForcedEvidence* forced = it.forced ? &*it.forced : nullptr;
  const std::pair<Need, bool> all[] = {
      {kRuns, it.reference && it.cell},
      {kRanks, it.cell && it.cell->ranks.size() > 1},
      {kBefore, it.cell_before.has_value()},
      {kValues, forced != nullptr},
      {kState, forced && forced->state},
      {kLocal, forced && !forced->local.tensors.empty()},
      {kReplicas, it.difference.divergence.kind == DivergenceKind::replica},
      {kConfigs, it.reference_config && it.cell_config},
      {kScores, forced && forced->reference.scores && forced->cell.scores && !misses_scores(it)},
      {kClip, it.cell_facts.clip_norm > 0},
  };
  Needs have = kNothing;
  for (const auto& [need, is_there] : all) have |= is_there ? need : kNothing;
  return have;
}

/// What those of the phase answer whose evidence is there.
void ask(std::span<const Hypothesis> table, const CauseInputs& inputs, Phase phase, std::vector<Cause>& answers) {
  const Needs have = evidence_in(inputs);
  for (const Hypothesis& row : table) {
    if (!holds(row.phases, phase) || (row.needs & ~have) != 0) continue;
    Answer answer = row.predict(inputs);
    if (!answer) continue;
    if (answer->code.empty()) answer->code = row.codes.substr(0, row.codes.find(' '));
    if (answer->confidence == 0) answer->confidence = row.strength;
    answers.push_back(*std::move(answer));
  }
}

constexpr std::pair<Phase, std::span<const Rule> (*)()> kRulesByPhase[] = {
    {Phase::samples, sample_rules},
    {Phase::random, random_rules},
    {Phase::control, control_rules},
    {Phase::scores, score_rules},
    {Phase::loss, loss_rules},
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
  const auto found = std::ranges::find(kRulesByPhase, phase, [](const auto& each) { return each.first; });
  return found == std::end(kRulesByPhase) ? std::span<const Rule>{} : found->second();
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
  for (const std::string& fact : {ratio_seen(inputs), gradients_seen(inputs)}) {
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

Cause best_of(std::vector<Cause> answers, const CauseInputs& inputs) {
  std::stable_sort(answers.begin(), answers.end(),
                   [](const Cause& x, const Cause& y) { return x.confidence > y.confidence; });
  if (answers.empty()) return made("unexplained", 0, plain_evidence(inputs));
  const Cause& best = answers.front();
  for (const Cause& other : answers) {
    if (other.code == best.code || best.confidence - other.confidence >= kEqualStrength) continue;
    Cause both = made("unexplained", 0, fmt::format("{} and {} fit equally well: {}; and: {}", best.code, other.code,
                                                    best.evidence, other.evidence));
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
  for (const auto table : causes::kTables) causes::ask(table(), inputs, phase, answers);
  ask(causes::rules_for(phase));
  for (const auto rules : {causes::missing_gradient_rules, causes::buffer_rules, causes::forward_draw_rules}) ask(rules());
  for (const auto rules : {causes::named_loss_rules, causes::shard_rules}) ask(rules(phase));
  if (phase == Phase::scores) ask(causes::reward_rules());
  if (causes::scores_candidates(inputs)) {
    if (phase == Phase::scores) ask(causes::candidate_rules());
    if (phase == Phase::loss) ask(causes::contrast_rules());
  }
  ask(causes::initial_rules());
  if (inputs.difference.divergence.kind == DivergenceKind::replica) ask(causes::replica_rules());
  Cause cause = causes::best_of(std::move(answers), inputs);
  if (auto configured = causes::by_config(inputs, cause)) cause = *std::move(configured);
  if (const CausePage* page = find_cause_page(cause.code); page && cause.remedy.empty()) cause.remedy = page->remedy;
  if (cause.code == "unexplained" && !inputs.config_differences.empty())
    cause.remedy += fmt::format(" The runs' settings differ in: {}.", differences_text(inputs.config_differences));
  return cause;
}

}  // namespace lockstep

// Causes of wrong scores of rows against candidates, in any trainer: which rows and columns differ, and whether the reference has the values
// elsewhere.

namespace lockstep::causes {
namespace {

/// [rows, columns] of a rank's scores, as recorded.
std::pair<int64_t, int64_t> shape_of(const StepRecords& rank) {
  for (const Record& record : rank.records) {
    if (record.phase == Phase::scores && record.name == "energies" && record.shape.size() == 2) return {record.shape[0], record.shape[1]};
  }
  return {-1, -1};
}

/// Ranks whose rows have, of all rows of the batch, those of their own rank alone as candidates, beside candidates that belong to no row. Nothing where
/// ids are not known, or another rank lacks candidates, too.
std::optional<std::vector<int>> ranks_with_own_alone(const CauseInputs& inputs) {
  if (!inputs.forced || !inputs.forced->reference.scores || !inputs.forced->cell.scores) return std::nullopt;
  const Scores& scores = *inputs.forced->cell.scores;
  std::set<int64_t> batch;
  std::vector<std::set<int64_t>> own(scores.columns.size());
  for (const ScoreRow& row : inputs.forced->reference.scores->rows) batch.insert(row.row_id);
  for (const ScoreRow& row : scores.rows) own[static_cast<std::size_t>(row.rank)].insert(row.row_id);
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    std::set<int64_t> candidates;
    for (const int64_t id : scores.columns[rank]) {
      if (batch.contains(id)) candidates.insert(id);
    }
    if (candidates == batch) continue;
    if (candidates != own[rank]) return std::vector<int>{};
    ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

/// By numbers alone: as many candidates as the rank has rows, where the reference has as many as all ranks.
bool are_own_alone_by_number(const CauseInputs& inputs) {
  int64_t rows = 0;
  for (const StepRecords& rank : inputs.cell->ranks) {
    const auto [own, columns] = shape_of(rank);
    if (own < 1 || own != columns) return false;
    rows += own;
  }
  return shape_of(inputs.reference->ranks[0]).second == rows;
}

std::optional<Cause> local_negatives(const CauseInputs& inputs) {
  if (!misses_scores(inputs) || !inputs.cell || !inputs.reference || inputs.cell->ranks.size() < 2) return std::nullopt;
  const auto ranks = ranks_with_own_alone(inputs);
  if (ranks ? ranks->empty() : !are_own_alone_by_number(inputs)) return std::nullopt;
  const bool on_all = !ranks || ranks->size() == inputs.cell->ranks.size();
  const std::size_t first = on_all ? 0 : static_cast<std::size_t>(ranks->front());
  const int64_t own = shape_of(inputs.cell->ranks[first]).second - 1, expected = shape_of(inputs.reference->ranks[0]).second - 1;
  return made("local-negatives", kExact,
              fmt::format("a row of {} has {} negative{} instead of {}: of the batch those of its own rank alone", on_all ? "rank 0" : fmt::format("rank {}", fmt::join(*ranks, ", ")),
                          own, own == 1 ? "" : "s", expected));
}

/// Passes whose scores the rank recorded: micro-steps, each with candidates of its own.
std::ptrdiff_t passes_of(const StepRecords& rank) {
  return std::ranges::count_if(rank.records, [](const Record& record) {
    return record.phase == Phase::scores && (record.name == "energies" || record.name.starts_with("energies."));
  });
}

std::optional<Cause> negatives_missing(const CauseInputs& inputs) {
  if (!misses_scores(inputs) || local_negatives(inputs) || !inputs.cell || !inputs.reference)
    return std::nullopt;
  // Of more micro-steps each has fewer rows, and none of them is missing.
  if (passes_of(inputs.cell->ranks[0]) != passes_of(inputs.reference->ranks[0])) return std::nullopt;
  const int64_t expected = shape_of(inputs.reference->ranks[0]).second;
  std::vector<std::size_t> ranks;
  int64_t fewest = expected;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    const int64_t columns = shape_of(inputs.cell->ranks[rank]).second;
    if (columns < 0 || columns >= expected) continue;
    ranks.push_back(rank);
    fewest = std::min(fewest, columns);
  }
  if (ranks.empty()) return std::nullopt;
  return made("negatives-missing", 0.95,
              fmt::format("rank {}: {} candidates a row where the reference has {}", fmt::join(ranks, ", "),
                          fewest, expected));
}

/// The columns of a rank's rows that carry another candidate's energies in every row; nothing if some column
/// carries no candidate's.
std::optional<std::map<int64_t, int64_t>> permutation_of(const std::vector<AlignedRow>& rows, int rank,
                                                         double band) {
  std::vector<const AlignedRow*> own;
  for (const AlignedRow& row : rows) {
    if (row.rank == rank) own.push_back(&row);
  }
  std::map<int64_t, int64_t> moved;
  if (own.empty()) return moved;
  std::set<std::size_t> taken;
  const std::size_t width = own[0]->columns.size();
  for (std::size_t j = 0; j < width; ++j) {
    const auto carries = [&](std::size_t k) {
      return std::all_of(own.begin(), own.end(), [&](const AlignedRow* row) {
        return distance(row->actual[j], row->expected[k]) <= band;
      });
    };
    std::size_t found = j;
    if (!carries(j)) {
      found = 0;
      while (found < width && !(carries(found) && taken.count(found) == 0)) ++found;
      if (found == width) return std::nullopt;
      moved[own[0]->columns[j]] = own[0]->columns[found];
    }
    taken.insert(found);
  }
  return taken.size() == width ? std::optional(moved) : std::nullopt;
}

std::optional<Cause> candidates_misordered(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.empty() || misses_scores(inputs)) return std::nullopt;
  std::size_t moved = 0;
  std::pair<int64_t, int64_t> example;
  std::set<int> ranks;
  for (const AlignedRow& row : rows) ranks.insert(row.rank);
  for (const int rank : ranks) {
    const auto permutation = permutation_of(rows, rank, inputs.forced->score_band);
    if (!permutation) return std::nullopt;
    moved += permutation->size();
    if (!permutation->empty()) example = *permutation->begin();
  }
  if (moved < 2) return std::nullopt;
  return made(
      "candidates-misordered", kExact,
      fmt::format("all {} are the reference's, in a different column: those of candidate {} are in the column of {}; {} columns moved", score_name(inputs),
                  example.second, example.first, moved));
}

/// Ids of candidates shifted by a constant number of places explain most of what differs, and no other shift
/// does. Dropout belongs to the pair of row and id, so the values themselves need not be found again.
std::optional<Cause> candidates_shifted(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.size() < 4 || misses_scores(inputs) || candidates_misordered(inputs)) return std::nullopt;
  const std::size_t width = rows.front().columns.size();
  if (width < 4) return std::nullopt;
  std::vector<double> rest(width, 0);
  for (const AlignedRow& row : rows) {
    if (row.columns != rows.front().columns) return std::nullopt;
    for (std::size_t shift = 0; shift < width; ++shift) {
      for (std::size_t j = 0; j < width; ++j) {
        const double gap = row.actual[j] - row.expected[(j + shift) % width];
        rest[shift] += gap * gap;
      }
    }
  }
  const auto best = std::min_element(rest.begin(), rest.end());
  const auto shift = best - rest.begin();
  double next = rest[0];
  for (std::size_t k = 0; k < width; ++k) {
    if (static_cast<std::ptrdiff_t>(k) != shift) next = std::min(next, rest[k]);
  }
  if (shift == 0 || *best > 0.3 * next) return std::nullopt;
  return made(
      "candidates-misordered", 0.9,
      fmt::format("{} shifted by {} places explain {:.3g} % of the squared difference, and no other order does", score_name(inputs),
                  shift, 100 * (1 - *best / rest[0])));
}

std::optional<Cause> padding_is_candidate(const CauseInputs& inputs) {
  if (!misses_scores(inputs) || !inputs.forced || !inputs.forced->cell.scores ||
      !inputs.forced->reference.scores) {
    return std::nullopt;
  }
  const Scores &reference = *inputs.forced->reference.scores, &cell = *inputs.forced->cell.scores;
  std::vector<int64_t> wanted = reference.columns.front();
  std::sort(wanted.begin(), wanted.end());
  std::size_t padded = 0;
  for (std::vector<int64_t> own : cell.columns) {
    padded += static_cast<std::size_t>(std::count(own.begin(), own.end(), -1));
    std::erase(own, -1);
    std::sort(own.begin(), own.end());
    if (!own.empty() && own != wanted) return std::nullopt;
  }
  if (padded == 0) return std::nullopt;
  return made(
      "padding-not-masked", kExact,
      fmt::format("in addition to the reference's {} candidates there are {} padded columns, on all ranks together",
                  wanted.size(), padded));
}

std::optional<Cause> sample_content(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.size() < 2 || misses_scores(inputs)) return std::nullopt;
  const WrongScores wrong = wrong_in(rows, inputs.forced->score_band);
  if (wrong.count == 0) return std::nullopt;
  std::vector<int64_t> explains;
  for (const auto& [id, width] : wrong.row_width) {
    const auto in_row = wrong.by_row.count(id) ? wrong.by_row.at(id) : 0;
    const auto in_column = wrong.by_column.count(id) ? wrong.by_column.at(id) : 0;
    bool crossing = false;
    for (const AlignedRow& row : rows) {
      for (std::size_t j = 0; row.id == id && j < row.columns.size(); ++j) {
        crossing = crossing || (row.columns[j] == id &&
                                distance(row.expected[j], row.actual[j]) > inputs.forced->score_band);
      }
    }
    if (in_row + in_column - (crossing ? 1 : 0) != wrong.count) continue;
    // A whole row, or a whole column: content that is wrong shows against nearly every other.
    const auto height = wrong.column_height.count(id) ? wrong.column_height.at(id) : 0;
    if (10 * in_row >= 9 * width || 10 * in_column >= 9 * height) explains.push_back(id);
  }
  if (explains.size() != 1) return std::nullopt;
  const int64_t id = explains.front();
  const bool column = wrong.by_column.count(id) && wrong.by_column.at(id) > 1;
  return made("sample-content", column ? 0.95 : 0.75,
              fmt::format("sample {}: {} of {} {} differ, all in its row or its column", id, wrong.count, wrong.total, score_name(inputs)));
}

std::optional<Cause> candidates_in_low_precision(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.empty() || misses_scores(inputs)) return std::nullopt;
  const WrongScores wrong = wrong_in(rows, inputs.forced->score_band);
  double squares = 0, difference = 0, largest = 0, mean = 0;
  for (const AlignedRow& row : rows) {
    for (const double value : row.expected) mean += value / static_cast<double>(wrong.total);
  }
  for (const AlignedRow& row : rows) {
    for (std::size_t j = 0; j < row.columns.size(); ++j) {
      const double gap = distance(row.expected[j], row.actual[j]);
      squares += (row.expected[j] - mean) * (row.expected[j] - mean);
      difference += gap * gap;
      largest = std::max(largest, gap);
    }
  }
  const auto total = static_cast<double>(wrong.total);
  const double spread = std::sqrt(squares / total), typical = std::sqrt(difference / total);
  // Small, everywhere and even: as 8 or 11 bits of mantissa in the candidates would do it.
  const bool everywhere = 10 * wrong.count >= 8 * wrong.total;
  if (!everywhere || !(typical > 0) || typical > 0.02 * spread || typical < 1e-5 * spread ||
      largest > 8 * typical) {
    return std::nullopt;
  }
  return made(
      "candidates-in-low-precision", kFits,
      fmt::format("{} of {} {} differ, by {} of their spread on average and by no more than {} times that anywhere",
                  wrong.count, wrong.total, score_name(inputs), short_number(typical / spread), short_number(largest / typical)));
}

constexpr Rule kCandidateRules[] = {local_negatives,      negatives_missing, candidates_misordered,      candidates_shifted,
                                    padding_is_candidate, sample_content,    candidates_in_low_precision};

}  // namespace

std::span<const Rule> candidate_rules() { return kCandidateRules; }

}  // namespace lockstep::causes

namespace lockstep {
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
    if (mechanism.cause && mechanism.cause->code == "unexplained" && comparison.by_values)
      mechanism.cause = name_cause(*comparison.by_values);
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
  for (const ConfigDifference& each : differences) {
    if (acts_from(each) && (!first || *acts_from(each) < *acts_from(*first))) first = &each;
  }
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
  CompareOptions free;
  free.run_a = inputs.reference_free;
  free.run_b = inputs.cell_free;
  free.steps = inputs.steps;
  return compare_runs(free);
}

}  // namespace lockstep
