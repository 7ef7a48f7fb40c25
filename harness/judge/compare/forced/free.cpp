#include "harness/judge/compare/forced/update.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <utility>

#include "harness/base/json.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/judge/trace/record.h"

namespace lockstep {

void keep_earlier(std::optional<Difference>& first, const std::optional<Difference>& other) {
  if (other && (!first || earlier(*other, *first))) first = other;
}

static void remember_rate(std::map<int64_t, double>& rates, const StepOfRun& step, const std::string& name) {
  const Record* own = find_record(step.ranks[0], Phase::control, name);
  if (!own) own = find_record(step.ranks[0], Phase::control, "learning_rate");
  if (own) rates[step.step] = own->value;
}

static void keep_samples(CauseInputs& inputs, const StepPairs& pairs) {
  inputs.reference_samples = pairs.samples_a();
  inputs.cell_samples = pairs.samples_b();
}

CauseInputs inputs_of(const Difference& difference, const StepOfRun& reference, const StepOfRun& cell, const std::optional<StepOfRun>& before) {
  CauseInputs inputs;
  inputs.difference = difference;
  inputs.reference = reference;
  inputs.cell = cell;
  inputs.cell_before = before;
  return inputs;
}

CauseInputs inputs_at(const StepPairs& pairs, const Difference& difference) {
  CauseInputs inputs = inputs_of(difference, pairs.step_a(), pairs.step_b(), pairs.before_b());
  inputs.reference_before = pairs.before_a();
  keep_samples(inputs, pairs);
  inputs.cell_generators = pairs.generators_b();
  return inputs;
}

/// Goes on with the runs that part at the step before: its samples, and where rates are what differs these to the end.
static void read_on(CauseInputs& inputs, StepPairs& pairs) {
  const std::string& name = inputs.difference.divergence.where;
  const bool of_rates = inputs.difference.phase == Phase::control && name.starts_with("learning_rate");
  const auto remember = [&](const StepOfRun& a, const StepOfRun& b) {
    remember_rate(inputs.reference_rates, a, name);
    remember_rate(inputs.cell_rates, b, name);
  };
  if (of_rates && inputs.reference && inputs.cell) {
    remember(*inputs.reference, *inputs.cell);
    remember(pairs.step_a(), pairs.step_b());  // they may be behind the place where the runs part
  }
  for (bool first = true; (first || of_rates) && pairs.next(); first = false) {
    if (first) keep_samples(inputs, pairs);
    if (of_rates) remember(pairs.step_a(), pairs.step_b());
  }
}

StepRules rules_of(const RunReader& a, const RunReader& b, const ConfigPair& configs, const BandConfig& band) {
  StepRules rules{trainer_of(a, b), configs, band, training_facts(configs.reference, a)};
  rules.cell_facts = facts_to_meet(rules.reference_facts, training_facts(configs.cell, b), configs);
  return rules;
}

void StepRules::tell(CauseInputs& inputs) const {
  inputs.reference_config = configs.reference;
  inputs.cell_config = configs.cell;
  inputs.reference_facts = reference_facts;
  inputs.cell_facts = cell_facts;
  inputs.trainer = trainer;
}

Comparison parted_at(CauseInputs around, StepPairs& pairs, const StepRules& rules, Mechanism result) {
  result.verdict = VerdictKind::divergent;
  result.first_divergence = around.difference.divergence;
  result.sentence = result.first_divergence->sentence + gaps_sentence(pairs.gaps());
  rules.tell(around);
  read_on(around, pairs);
  return {std::move(result), std::move(around)};
}

/// Replica drift as a difference.
static Difference drift_difference(const ReplicaDrift& drift, const StepOfRun& run) {
  Difference found =
      difference_at(run, drift.phase, drift.rank, drift.name, DivergenceKind::replica, drift.expected, drift.actual);
  found.divergence.sentence =
      fmt::format("They first differ at step {}, {}, {}: replicas differ from each other: {}.", run.step,
                  name_of(drift.phase), rank_text(drift.rank, static_cast<int>(run.ranks.size())), drift.sentence);
  return found;
}

namespace {

/// Values of one tensor that are not finite, over all ranks.
struct NotFinite {
  uint64_t count = 0;
  std::vector<int> ranks;  ///< that hold them

  int place(const StepOfRun& step) const {
    const int place = first_or_all(ranks, step);
    return place == kAllRanks || ranks.size() == 1 ? place : kRankUnknown;
  }
};

NotFinite not_finite(const StepOfRun& step, Phase phase, const std::string& name) {
  NotFinite found;
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    const Record* record = find_record(step.ranks[rank], phase, name);
    if (!record || !record->has_stats || record->stats.nonfinite == 0) continue;
    found.count += record->stats.nonfinite;
    found.ranks.push_back(static_cast<int>(rank));
  }
  return found;
}

std::string not_finite_text(const NotFinite& found) {
  return found.count == 0 ? "finite values only" : counted(static_cast<int64_t>(found.count), "value") + " not finite";
}

}  // namespace

std::optional<Difference> number_of_one_run(const StepOfRun& a, const StepOfRun& b) {
  std::optional<Difference> first;
  const std::optional<double> expected = mean_loss(a), actual = mean_loss(b);
  if (expected && actual && std::isfinite(*expected) != std::isfinite(*actual)) {
    const auto loss_of = [&](std::size_t rank) { return find_record(b.ranks[rank], Phase::loss, "loss")->value; };
    const auto is_none = [&](std::size_t rank) { return !std::isfinite(loss_of(rank)); };
    const NotFinite losses{0, ranks_where<int>(b.ranks.size(), is_none)};
    first = difference_at(b, Phase::loss, losses.place(b), "loss (mean over ranks)", DivergenceKind::value,
                          exact_number(*expected), exact_number(*actual));
  }
  for (const Phase phase : {Phase::scores, Phase::local_gradients, Phase::reduced_gradients, Phase::parameters}) {
    for (const Record* record : records_of(a.ranks[0], phase)) {
      if (!record->has_stats) continue;
      const auto has_stats = [&](const StepRecords& rank) {
        const Record* found = find_record(rank, phase, record->name);
        return found && found->has_stats;
      };
      if (std::ranges::none_of(b.ranks, has_stats)) continue;
      const NotFinite own = not_finite(a, phase, record->name), other = not_finite(b, phase, record->name);
      if ((own.count == 0) == (other.count == 0)) continue;
      keep_earlier(first, difference_at(b, phase, other.place(b), record->name, DivergenceKind::value,
                                        not_finite_text(own), not_finite_text(other)));
      break;
    }
  }
  return first;
}

namespace {

/// A buffer that one rank begins with otherwise, where rank 0 has the reference's.
std::optional<Difference> buffer_of_another_rank(const StepOfRun& a, const StepOfRun& b) {
  for (const Record* expected : records_of(a.ranks[0], Phase::parameters)) {
    const Record* first =
        is_buffer(expected->name) ? find_record(b.ranks[0], expected->phase, expected->name) : nullptr;
    if (!first || first->stats.hash != expected->stats.hash || !is_floating(expected->dtype)) continue;
    for (std::size_t rank = 1; rank < b.ranks.size(); ++rank) {
      const Record* own = find_record(b.ranks[rank], expected->phase, expected->name);
      if (!own || own->shape != expected->shape || own->stats.hash == expected->stats.hash) continue;
      return difference_at(b, Phase::parameters, static_cast<int>(rank), expected->name, DivergenceKind::bits,
                           "what rank 0 and the reference have", "another value");
    }
  }
  return std::nullopt;
}

/// A buffer that the program has made of rows before its first step, in another order.
bool is_rounded(const Record& a, const Record& b) {
  constexpr double kRounding = 1e-5;
  const bool known = is_buffer(a.name) && is_floating(a.dtype) && a.has_stats && b.has_stats;
  return known && apart(a.stats, b.stats) <= kRounding * a.stats.norm;
}

/// Weights before the first step are drawn or loaded: no layout changes them.
std::optional<Difference> initial_difference(const StepOfRun& a, const StepOfRun& b, bool one_program) {
  for (const Record* record : records_of(a.ranks[0], Phase::parameters)) {
    const Record* other = find_record(b.ranks[0], Phase::parameters, record->name);
    if (!other || is_in_shards(*record, *other) || (!one_program && record->shape != other->shape) || other->stats.hash == record->stats.hash || is_rounded(*record, *other)) continue;
    return difference_at(b, Phase::parameters, kAllRanks, record->name, DivergenceKind::bits, value_text(*record),
                         value_text(*other));
  }
  return buffer_of_another_rank(a, b);
}

/// What the optimizer counted after a step; nothing if the run did not record it.
std::optional<double> updates_after(const StepOfRun& step) {
  const Record* count = find_record(step.ranks[0], Phase::optimizer_state, "updates");
  if (!count) return std::nullopt;
  if (count->is_scalar) return count->value;
  const auto values = values_of(*count);
  return values && values->size() == 1 ? std::optional(values->front()) : std::nullopt;
}

/// Updates are counted alike under every layout.
std::optional<Difference> other_count_of_updates(const StepOfRun& a, const StepOfRun& b) {
  const std::optional<double> expected = updates_after(a), actual = updates_after(b);
  if (!expected || !actual || *expected == *actual) return std::nullopt;
  return difference_at(b, Phase::optimizer_state, kAllRanks, "updates", DivergenceKind::value, exact_number(*expected),
                       exact_number(*actual));
}

bool comes_of_gradients(Phase phase) {
  return phase == Phase::reduced_gradients || phase == Phase::applied_gradients || phase == Phase::gradient_norm;
}

}  // namespace

bool joins_updates(const StepOfRun& a, const StepOfRun* before_a, const StepOfRun& b, const StepOfRun* before_b) {
  constexpr double kOfTheMove = 1e-3, kRoundings = 8;
  const auto drift = replica_drift(b, &a);
  if (!drift || !comes_of_gradients(drift->phase)) return false;
  const auto state = [](const StepOfRun& step, const StepOfRun* before) { return state_before(step, before ? std::optional(*before) : std::nullopt); };
  const KnownState from_a = state(a, before_a), from_b = state(b, before_b);
  if (!from_a || !from_b) return false;
  bool any = false;
  for (const Record* record : records_of(a.ranks[0], Phase::parameters)) {
    if (record->is_scalar || is_buffer(record->name)) continue;
    const Record* own = find_record(b.ranks[0], record->phase, record->name);
    if (own && is_in_shards(*record, *own)) continue;
    const auto expected = whole_tensor(*record);
    const NamedTensor *old_a = find_tensor(from_a->tensors, record->name), *old_b = find_tensor(from_b->tensors, record->name);
    const auto actual = whole_tensor(own);
    if (!expected || !actual || !old_a || !old_b || expected->shape != actual->shape) return false;
    const bool on_all = std::ranges::all_of(b.ranks, [&](const StepRecords& rank) {
      const Record* held = find_record(rank, record->phase, record->name);
      return held && held->stats.hash == own->stats.hash;
    });
    const double apart = distance(old_a->values, old_b->values), moved = distance(old_a->values, expected->values);
    const double room = 2 * apart + kOfTheMove * moved + kRoundings * expected->epsilon * norm(expected->values);
    if (!on_all || !(distance(expected->values, actual->values) <= room)) return false;
    any = true;
  }
  return any;
}

OwnFindings own_findings(const StepOfRun& reference, const StepOfRun& cell, const StepOfRun* before,
                         bool exact_phases, bool one_program, Compared* compared, const StepOfRun* reference_before) {
  OwnFindings found;
  if (exact_phases) {
    found.difference = same_partition(reference, cell) ? first_difference(reference, cell, {.exact_phases_only = true, .of_any_trainer = !one_program})
                                                       : first_exact_difference(reference, cell, one_program);
  }
  if (cell.step < 0) found.keep_earlier(initial_difference(reference, cell, one_program));
  if (compared) compared->add_exact(reference, cell);
  found.keep_earlier(other_count_of_updates(reference, cell));
  if (const auto ledger = audit_ledger(cell, {before, &reference, one_program, reference_before})) {
    found.keep_earlier(ledger_difference(*ledger, cell), ledger);
  }
  const auto drift = replica_drift(cell, &reference);
  const bool joins = drift && !one_program && comes_of_gradients(drift->phase) && joins_updates(reference, reference_before, cell, before);
  if (drift && !joins && !replica_drift(reference)) found.keep_earlier(drift_difference(*drift, cell));
  return found;
}

static void keep_state(std::map<int64_t, KnownState>& states, const StepOfRun& reference) {
  if (KnownState kept = snapshot_of(reference.ranks[0])) states.emplace(reference.step, std::move(kept));
}

FreeFindings read_free_runs(const std::string& reference, const std::string& cell, int64_t most_steps, double epsilon) {
  FreeFindings free;
  StepPairs pairs(reference, cell, most_steps);
  EqualParameters parameters;
  free.compared_bits = pairs.same_layout();
  const bool one_program = trainer_of(pairs.a(), pairs.b()) != nullptr;
  bool beyond = false;  // The step after a finding is read for its samples and snapshots alone.
  while (pairs.next()) {
    const StepOfRun &a = pairs.step_a(), &b = pairs.step_b();
    keep_state(free.states, a);
    if (!free.found) {
      free.compared = pairs.compared();
      OwnFindings own = own_findings(a, b, pointer_to(pairs.before_b()), true, one_program, &free.looked_at, pointer_to(pairs.before_a()));
      if (pairs.same_layout() && free.reordered < 0 && !same_partition(a, b)) free.reordered = a.step;
      if (pairs.after_gap()) parameters.lost();
      parameters.after(a, b);
      own.keep_earlier(free.evaluations.differ(a, b, parameters.hold(), epsilon));
      own.keep_earlier(number_of_one_run(a, b));
      own.keep_earlier(averages_difference({a, pointer_to(pairs.before_a())}, {b, pointer_to(pairs.before_b())}));
      if (own.difference) {
        free.found = inputs_at(pairs, *own.difference);
        free.found->ledger = own.ledger;
      }
      if (pairs.same_layout() && !free.bits && free.reordered < 0) {
        const StepDifferences step = one_program ? StepDifferences{first_difference(a, b), std::nullopt} : differences_of_step(a, b);
        if (!free.passed) free.passed = step.passed;
        if (const auto& bits = step.counts; bits && !differ_in_zeros_alone(a, b)) {
          free.bits = inputs_at(pairs, *bits);
        } else if (bits && !free.zeros) {
          free.zeros = bits->divergence;
        }
        if (const auto skipped = free.bits ? pairs.skipped_step(free.bits->difference) : std::nullopt; skipped && !free.found)
          free.found.emplace().difference.divergence = *skipped;
      }
    } else if (!beyond) {
      beyond = true;
      keep_samples(*free.found, pairs);
      if (free.found->difference.divergence.where.starts_with("learning_rate")) read_on(*free.found, pairs);
      break;
    }
  }
  if (free.bits) keep_samples(*free.bits, pairs);
  free.ends = pairs.ends();
  free.missing_end = pairs.missing_end();
  free.gaps = pairs.gaps();
  return free;
}

bool keeps_gradients(const StepOfRun& step) {
  const std::vector<const Record*> gradients = records_of(step.ranks[0], Phase::reduced_gradients);
  return !gradients.empty() &&
         std::ranges::all_of(gradients, [](const Record* record) { return whole_tensor(*record).has_value(); });
}

std::optional<StepOfRun> next_with_gradients(RunReader& run, std::optional<StepOfRun>& before) {
  while (std::optional<StepOfRun> step = run.next()) {
    if (!records_of(step->ranks[0], Phase::reduced_gradients).empty()) return step;
    before = std::move(step);
  }
  return std::nullopt;
}

namespace {

bool all_within(const GradientJudgement& judgement) {
  return !judgement.tensors.empty() && judgement.missing.empty() && judgement.misshapen.empty() &&
         std::ranges::all_of(judgement.tensors, [](const TensorUse& use) { return use.use.used() <= 1; });
}

/// Replicas that part into two, of which nothing tells who is wrong: rank 0's value is what its own gradient gives, or it is not.
void place_by_update(const EqualStep& step, const StepRules& rules, const ForcedEvidence& evidence, Difference& found) {
  Divergence& told = found.divergence;
  if (told.kind != DivergenceKind::replica || told.rank != kRankUnknown || !evidence.state || !evidence.reference_state) return;
  const Record* record = find_record(step.b.ranks[0], Phase::parameters, told.where);
  if (!record || found.phase != Phase::parameters) return;
  const Holders holders = holders_of(step.b, *record, &step.a);
  if (holders.groups.size() != 2) return;
  const auto used = [&](const Snapshot& state, const ForcedValues& values, const TrainingFacts& facts) -> std::optional<double> {
    const auto inputs = update_inputs(state, values, facts);
    const NamedTensor* after = find_tensor(values.parameters, told.where);
    if (!inputs || !after) return std::nullopt;
    const std::vector<UpdateUse> uses = judge_update(*inputs, {*after});
    return uses.empty() ? std::nullopt : std::optional(uses.front().used);
  };
  const auto of_reference = used(*evidence.reference_state, evidence.reference, rules.reference_facts),
             of_cell = used(*evidence.state, evidence.cell, rules.cell_facts);
  if (!of_reference || !of_cell || *of_reference > 1) return;
  const bool fits = *of_cell <= 1;
  const std::vector<int>& wrong = holders.groups[(holders.groups[0].front() == 0) == fits ? 1 : 0];
  told.rank = wrong.front();
  told.sentence = fmt::format("They first differ at step {}, {}, {}: replicas differ from each other: rank 0's {} {} from its own gradient.",
                              told.step, told.phase, ranks_text(wrong), told.where, fits ? "follows" : "does not follow");
}

ForcedContext context_of(const EqualStep& step, const StepRules& rules) {
  ForcedContext context{step, rules};
  context.at.step = step.a.step;
  context.begins_equal = !step.twins;
  ForcedEvidence& evidence = context.evidence;
  evidence.reference = forced_values(step.a, step.dir_a, rules.scores());
  evidence.reference.working_epsilon = working_epsilon(rules.reference_facts, evidence.reference.epsilon);
  evidence.cell = forced_values(step.b, step.dir_b, rules.scores());
  evidence.reduced = judge_gradients(evidence.reference, evidence.cell, step.repeats, rules.band, step.twins);
  if (!step.twins || !rules.ours()) note_reduction_by_sum(evidence);
  evidence.reference_state = step.state;
  evidence.state = step.cell_state ? step.cell_state : step.state;
  return context;
}

/// Each phase's first difference beyond its band, the earliest of all; fills in what the evidence tells of the bands. `passed` takes what is
/// none, which neither counts as compared nor uses a band.
void judge_phases(ForcedContext& context, std::optional<Difference>& first, std::vector<Difference>& passed) {
  const ForcedEvidence& evidence = context.evidence;
  const EqualStep& step = context.step;
  const StepRules& rules = context.rules;
  const bool joins =
      !rules.ours() && !step.twins && joins_updates(step.a, step.before_a, step.b, pointer_to(step.before_b));
  const bool taken = !rules.ours() && agree_as_taken(evidence);
  const bool alike = !rules.ours() && (joins || all_within(evidence.reduced) || taken);
  for (auto judge : {judge_scores, judge_loss, judge_local_gradients, judge_reduced_gradients,
                     judge_gradient_norm, judge_applied_gradients, judge_buffers, judge_parameters, judge_moments}) {
    const ForcedStep at = context.at;
    const std::optional<Compared> compared = step.compared ? std::optional(*step.compared) : std::nullopt;
    std::optional<Difference> found = judge(context);
    // Local gradients that were not what was reduced say nothing of their reduction, either.
    const bool local_passed = !passed.empty() && passed.back().phase == Phase::local_gradients;
    // What all optimizers take is the reference's, however it came about, such as from a loss that is scaled by hand.
    const bool on_the_way = taken && found && (found->phase == Phase::reduced_gradients || found->phase == Phase::applied_gradients);
    const bool joined = on_the_way || (joins && found && !is_buffer(found->divergence.where));
    const bool of_one_rank = joined || (found && (is_of_one_rank(found->phase) || (local_passed && found->divergence.kind == DivergenceKind::reduction)));
    if (alike && of_one_rank) {
      context.at = at;
      if (compared) *step.compared = *compared;
      if (joined || is_of_one_rank(found->phase)) passed.push_back(*std::move(found));
      continue;
    }
    keep_earlier(first, found);
  }
  keep_earlier(first, averages_difference({context.a, nullptr, evidence.reference_state.get()}, {context.b, nullptr, evidence.state.get()}));
  context.at.groups = evidence.reduced.groups;
}

void add_step_before(ForcedContext& context) {
  const EqualStep& step = context.step;
  if (step.before_b && keeps_gradients(*step.before_b))
    context.evidence.cell_before = forced_values(*step.before_b, step.dir_b, context.rules.scores());
}

CauseInputs found_at(ForcedContext& context, const Difference& found) {
  add_step_before(context);
  CauseInputs inputs = inputs_of(found, context.a, context.b, context.step.before_b);
  inputs.forced = std::move(context.evidence);
  return inputs;
}

}  // namespace

JudgedStep judge_equal_step(const EqualStep& step, const StepRules& rules) {
  const StepOfRun &a = step.a, &b = step.b;
  ForcedContext context = context_of(step, rules);
  ForcedEvidence& evidence = context.evidence;
  const OwnFindings own = own_findings(step.ledger_of ? *step.ledger_of : a, b, pointer_to(step.before_b),
                                       step.exact_phases, rules.ours(), nullptr, step.before_a);
  std::optional<Difference> first = own.difference;
  if (first) place_by_update(step, rules, evidence, *first);
  std::vector<Difference> passed;
  judge_phases(context, first, passed);
  JudgedStep judged{context.at, std::nullopt, evidence.cell.reduced_by_sum, std::move(passed)};
  if (!first) return judged;
  judged.first = found_at(context, *first);
  if (first->phase == Phase::collective) judged.first->ledger = own.ledger;
  return judged;
}

static bool is_joined_later(const Difference& passed) { return place_of(passed.phase) > place_of(Phase::local_gradients) && !is_of_one_rank(passed.phase); }

/// "; the reported loss is 1/4 of the reference's: ranks may report shares".
static std::string share_text(const Difference& passed) {
  constexpr double kAlike = 1e-4, kMost = 65536;
  if (passed.phase != Phase::loss) return "";
  const double expected = std::strtod(passed.divergence.expected.c_str(), nullptr), found = std::strtod(passed.divergence.actual.c_str(), nullptr);
  for (const bool is_part : {true, false}) {
    const double factor = is_part ? expected / found : found / expected, whole = std::round(factor);
    if (!(whole > 1 && whole <= kMost && std::abs(factor - whole) <= kAlike * whole)) continue;
    return is_part ? fmt::format("; the reported loss is 1/{:.0f} of the reference's: ranks report their shares of it", whole)
                   : fmt::format("; the reported loss is {:.0f} times the reference's: a sum is reported, not a mean", whole);
  }
  return "";
}

std::string passed_text(const std::optional<Difference>& passed) {
  if (!passed) return "";
  const Divergence& it = passed->divergence;
  return fmt::format(" Not compared, since all ranks {} the same {}: at step {}, {}, {} {}{}.", is_joined_later(*passed) ? "end the step with" : "reduce",
                     is_joined_later(*passed) ? "parameters, which are the reference's" : "gradients", it.step, it.phase, it.where,
                     expected_found(it.expected, it.actual), share_text(*passed));
}

ForcedEvidence evidence_of_step(const EqualStep& step, const StepRules& rules) {
  ForcedContext context = context_of(step, rules);
  std::optional<Difference> first;
  std::vector<Difference> passed;
  judge_phases(context, first, passed);
  add_step_before(context);
  return std::move(context.evidence);
}

/// Do two runs that are not at the same bits begin the step so close together, and have gradients so much alike, that an update
/// that is another one shows?
static bool nearly_equal(const ForcedEvidence& evidence) {
  constexpr double kNear = 1e-4, kAlike = 1e-3;
  const auto apart = relative_distance(evidence.reference_state, evidence.state);
  if (evidence.reduced.tensors.empty() || !apart || !(*apart <= kNear)) return false;
  return std::ranges::all_of(evidence.reduced.tensors, [](const TensorUse& use) { return use.use.difference <= kAlike * use.norm_reference; });
}

std::optional<CauseInputs> judge_own_step(const EqualStep& step, const StepRules& rules, bool reduced_by_sum, bool of_local) {
  ForcedContext context = context_of(step, rules);
  ForcedEvidence& evidence = context.evidence;
  evidence.cell.reduced_by_sum = evidence.cell.reduced_by_sum || reduced_by_sum;
  evidence.state = step.cell_state;
  if (!evidence.cell.local.empty()) {
    evidence.local = judge_gradients(evidence.reference, {evidence.reference.gradients, mean_of_local(evidence.cell)}, step.repeats, rules.band);
  }
  context.begins_equal = nearly_equal(evidence);
  const bool reduces = of_local && !is_clipped_by_hand(evidence);
  for (auto judge : {judge_local_forms, judge_lost_moments, judge_stale_local, reduces ? judge_own_reduction : nullptr,
                     judge_own_norm, judge_taken_by_hand, judge_applied_gradients, judge_parameters}) {
    if (const auto found = judge ? judge(context) : std::nullopt) return found_at(context, *found);
  }
  return std::nullopt;
}

namespace {

bool is_moment(const std::string& name) { return name.starts_with("first_moment/") || name.starts_with("second_moment/"); }

/// The first step that a run made, and what it began with.
struct Begin {
  StepOfRun step;
  KnownState state;
  std::vector<std::string> without;  ///< moments that the step left, and that were 0 or not there when it began
};

/// Of moments whose values were not kept the statistics tell, or that they were recorded.
std::vector<std::string> moments_begun(const StepOfRun& step, const StepRecords& began, Phase phase) {
  std::vector<std::string> names;
  for (const Record* left : records_of(step.ranks[0], Phase::optimizer_state)) {
    if (!is_moment(left->name)) continue;
    const Record* before = find_record(began, phase, left->name);
    if (!before || (before->has_stats && before->stats.norm == 0 && before->stats.nonfinite == 0)) names.push_back(left->name);
  }
  return names;
}

/// Nothing of a run whose first step is the first of all.
std::optional<Begin> begin_of(const std::string& dir) {
  RunReader run(dir);
  std::optional<StepOfRun> before, step = run.next();
  // What a resumed run wrote first may be the state that it begins with.
  if (step && records_of(step->ranks[0], Phase::samples).empty() && records_of(step->ranks[0], Phase::loss).empty()) {
    before = std::move(step);
    step = run.next();
  }
  if (!step || step->step <= 0) return std::nullopt;
  KnownState state = state_before(*step, before);
  if (!state) return std::nullopt;
  const bool of_step = snapshot_of(step->ranks[0]) != nullptr;
  std::vector<std::string> without = of_step ? moments_begun(*step, step->ranks[0], Phase::snapshot) : moments_begun(*step, before->ranks[0], Phase::optimizer_state);
  return Begin{*std::move(step), std::move(state), std::move(without)};
}

/// How far the weights of two states are apart, whatever their size; nothing unless both hold the same tensors.
std::optional<double> apart(const KnownState& a, const KnownState& b) {
  const auto is_weight = [](const NamedTensor& tensor) { return tensor.name.find('/') == std::string::npos; };
  std::size_t weights = 0;
  for (const NamedTensor& own : b->tensors) {
    if (!is_weight(own)) continue;
    const NamedTensor* other = find_tensor(a->tensors, own.name);
    if (!other || other->values.size() != own.values.size()) return std::nullopt;
    ++weights;
  }
  return weights > 0 ? relative_distance(a, b) : std::nullopt;
}

/// The reference's step of the same number, and the step whose weights are nearest.
struct Nearest {
  std::optional<StepOfRun> same;
  KnownState same_state;
  double same_gap = 0;
  int64_t step = -1;
  double gap = 0;
};

Nearest nearest_in(const std::string& dir, const Begin& begin) {
  Nearest found;
  RunReader run(dir);
  std::optional<StepOfRun> before;
  const auto take = [&](const KnownState& state, int64_t step) {
    const auto gap = state ? apart(state, begin.state) : std::nullopt;
    if (!gap) return;
    if (step == begin.step.step) {
      found.same_gap = *gap;
    } else if (found.step < 0 || *gap < found.gap) {
      found.step = step;
      found.gap = *gap;
    }
  };
  while (std::optional<StepOfRun> step = run.next()) {
    const KnownState state = step->step >= 0 ? state_before(*step, before) : nullptr;
    take(state, step->step);
    if (state && step->step == begin.step.step) {
      found.same_state = state;
      found.same = step;
    }
    before = std::move(step);
  }
  if (before && before->step >= 0) take(state_before({.step = before->step + 1, .ranks = {StepRecords{}}}, before), before->step + 1);
  return found;
}

bool keeps_moments(const KnownState& state) { return std::ranges::any_of(state->tensors, is_moment, &NamedTensor::name); }

bool has_moments_beside_0(const KnownState& state) {
  return std::ranges::any_of(state->tensors, [](const NamedTensor& tensor) { return is_moment(tensor.name) && norm(tensor.values) > 0; });
}

/// A tensor that is far from the reference's of the step, where most are as near to it as rounding and training leave them.
struct Stranger {
  std::string name;
  double gap = 0, middle = 0;  ///< relative to its size; of the tensor in the middle of all
};

std::optional<Stranger> stranger_in(const KnownState& reference, const KnownState& state) {
  constexpr double kFar = 0.25, kTimesFarther = 1000;
  constexpr std::size_t kFewest = 4;
  std::vector<double> gaps;
  Stranger worst;
  for (const NamedTensor& own : state->tensors) {
    const NamedTensor* expected = own.name.find('/') == std::string::npos ? find_tensor(reference->tensors, own.name) : nullptr;
    if (!expected || expected->values.size() != own.values.size() || norm(expected->values) == 0) continue;
    gaps.push_back(distance(own.values, expected->values) / norm(expected->values));
    if (gaps.back() > worst.gap) worst = {own.name, gaps.back(), 0};
  }
  if (gaps.size() < kFewest) return std::nullopt;
  std::ranges::sort(gaps);
  worst.middle = gaps[gaps.size() / 2];
  return worst.gap >= kFar && worst.gap >= kTimesFarther * worst.middle ? std::optional(worst) : std::nullopt;
}

CauseInputs part_at(Nearest nearest, const Begin& begin, const std::string& where, const std::string& expected, const std::string& found) {
  CauseInputs inputs;
  inputs.difference =
      difference_at(begin.step, Phase::snapshot, kAllRanks, where, DivergenceKind::value, expected, found);
  inputs.reference = std::move(nearest.same);
  inputs.cell = begin.step;
  return inputs;
}

}  // namespace

std::optional<Difference> judge_lost_moments(ForcedContext& context) {
  const KnownState& now = context.evidence.state;
  if (!context.step.before_b || context.step.before_b->step != context.b.step - 1 || !now ||
      records_of(context.b.ranks[0], Phase::snapshot).empty())
    return std::nullopt;
  const auto has_left = [](const Record* record) { return is_moment(record->name) && record->has_stats && record->stats.norm > 0; };
  if (has_moments_beside_0(now) ||
      std::ranges::none_of(records_of(context.step.before_b->ranks[0], Phase::optimizer_state), has_left))
    return std::nullopt;
  return difference_at(context.b, Phase::snapshot, kAllRanks, kMoments, DivergenceKind::value,
                       "moments of the updates before", keeps_moments(now) ? "moments of 0" : "none");
}

std::optional<CauseInputs> begins_elsewhere(const std::string& reference_dir, const std::string& cell_dir) {
  constexpr double kNearer = 4, kRounding = 1e-6;
  const std::optional<Begin> begin = begin_of(cell_dir);
  if (!begin) return std::nullopt;
  Nearest nearest = nearest_in(reference_dir, *begin);
  if (!nearest.same) return std::nullopt;
  const std::string those = fmt::format("those with which the reference begins step {}", begin->step.step);
  if (nearest.step >= 0 && nearest.same_gap > kRounding && nearest.same_gap >= kNearer * nearest.gap) {
    const std::string found = fmt::format("weights {} from them, by their size, and {} from those of step {}", short_number(nearest.same_gap), short_number(nearest.gap), nearest.step);
    return part_at(std::move(nearest), *begin, "weights", those, found);
  }
  if (const auto stranger = stranger_in(nearest.same_state, begin->state)) {
    const std::string found = fmt::format("weights {} from them, by their size, where the tensor in the middle of all is {}", short_number(stranger->gap), short_number(stranger->middle));
    return part_at(std::move(nearest), *begin, stranger->name, those, found);
  }
  // A tracer finds moments in an optimizer that has made them: before its first update there are none.
  std::vector<std::string> lost;
  std::size_t all = 0;
  for (const NamedTensor& tensor : nearest.same_state->tensors) {
    if (!is_moment(tensor.name) || norm(tensor.values) == 0) continue;
    ++all;
    if (std::ranges::find(begin->without, tensor.name) != begin->without.end()) lost.push_back(tensor.name);
  }
  if (lost.empty()) return std::nullopt;
  const std::string found = lost.size() == all ? "moments of 0" : fmt::format("moments of 0 in {} of {}: {}", lost.size(), counted(static_cast<int64_t>(all), "tensor"), fmt::join(lost, ", "));
  return part_at(std::move(nearest), *begin, kMoments, "moments of the updates before", found);
}

}  // namespace lockstep
