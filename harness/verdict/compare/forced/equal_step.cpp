#include "harness/verdict/compare/forced/equal_step.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "harness/verdict/compare/averages.h"
#include "harness/verdict/compare/bits.h"
#include "harness/verdict/compare/forced/free.h"
#include "harness/verdict/compare/forced/gradients.h"
#include "harness/verdict/compare/forced/step.h"
#include "harness/verdict/compare/forced/update.h"
#include "harness/verdict/compare/resumed.h"
#include "harness/verdict/compare/step_pairs.h"

namespace lockstep {

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

/// A replay takes the mean of gradients that the run itself adds up, each rank's being of its share of the loss.
void add_up(ForcedValues& cell) {
  const std::vector<ReductionUse> uses = judge_reduction(cell);
  if (cell.reduced_by_sum || cell.local.size() < 2 || uses.empty() || std::ranges::any_of(uses, [](const ReductionUse& use) { return use.used > 1; })) return;
  for (NamedTensor& tensor : cell.gradients) {
    for (double& value : tensor.values) value *= static_cast<double>(cell.local.size());
  }
  cell.reduced_by_sum = true;
}

ForcedContext context_of(const EqualStep& step, const StepRules& rules) {
  ForcedContext context{step.a, step.b, step.repeats, rules.scores, rules.band, rules.reference_facts,
                        rules.cell_facts, rules.loss_is_differentiated, step.free, step.twins, {}, {}, step.compared};
  context.at.step = step.a.step;
  context.before = pointer_to(step.before_b);
  context.before_a = step.before_a;
  context.begins_equal = !step.twins;
  ForcedEvidence& evidence = context.evidence;
  evidence.reference = forced_values(step.a, step.dir_a, rules.scores);
  evidence.reference.working_epsilon = working_epsilon(rules.reference_facts, evidence.reference.epsilon);
  evidence.cell = forced_values(step.b, step.dir_b, rules.scores);
  evidence.reduced = judge_gradients(evidence.reference, evidence.cell, step.repeats, rules.band, step.twins);
  if (step.adds_gradients) add_up(evidence.cell);
  if (step.adds_gradients) evidence.reduced = judge_gradients(evidence.reference, evidence.cell, step.repeats, rules.band, step.twins);
  if (!step.twins || !rules.loss_is_differentiated) note_reduction_by_sum(evidence);
  evidence.reference_state = step.state;
  evidence.state = step.cell_state ? step.cell_state : step.state;
  return context;
}

/// Each phase's first difference beyond its band, the earliest of all; fills in what the evidence tells of the bands. `passed` takes what is
/// none, which neither counts as compared nor uses a band.
void judge_phases(ForcedContext& context, const StepRules& rules, std::optional<Difference>& first, std::vector<Difference>& passed) {
  const ForcedEvidence& evidence = context.evidence;
  const bool joins = !rules.loss_is_differentiated && !context.twins && joins_updates(context.a, context.before_a, context.b, context.before);
  const bool taken = !rules.loss_is_differentiated && agree_as_taken(evidence);
  const bool alike = !rules.loss_is_differentiated && (joins || all_within(evidence.reduced) || taken);
  for (auto judge : {judge_scores, judge_loss, judge_local_gradients, judge_reduced_gradients,
                     judge_gradient_norm, judge_applied_gradients, judge_buffers, judge_parameters, judge_moments}) {
    const ForcedStep at = context.at;
    const std::optional<Compared> compared = context.compared ? std::optional(*context.compared) : std::nullopt;
    std::optional<Difference> found = judge(context);
    // Local gradients that were not what was reduced say nothing of their reduction, either.
    const bool local_passed = !passed.empty() && passed.back().phase == Phase::local_gradients;
    // What all optimizers take is the reference's, however it came about, such as from a loss that is scaled by hand.
    const bool on_the_way = taken && found && (found->phase == Phase::reduced_gradients || found->phase == Phase::applied_gradients);
    const bool joined = on_the_way || (joins && found && !found->divergence.where.starts_with("buffer/"));
    const bool of_one_rank = joined || (found && (is_of_one_rank(found->phase) || (local_passed && found->divergence.kind == DivergenceKind::reduction)));
    if (alike && of_one_rank) {
      context.at = at;
      if (compared) *context.compared = *compared;
      if (joined || is_of_one_rank(found->phase)) passed.push_back(*std::move(found));
      continue;
    }
    keep_earlier(first, found);
  }
  keep_earlier(first, averages_difference({context.a, nullptr, evidence.reference_state.get()}, {context.b, nullptr, evidence.state.get()}));
  context.at.groups = evidence.reduced.groups;
}

void add_step_before(const EqualStep& step, const StepRules& rules, ForcedEvidence& evidence) {
  if (step.before_b && keeps_gradients(*step.before_b)) {
    evidence.cell_before = forced_values(*step.before_b, step.dir_b, rules.scores);
  }
}

}  // namespace

JudgedStep judge_equal_step(const EqualStep& step, const StepRules& rules) {
  const StepOfRun &a = step.a, &b = step.b;
  ForcedContext context = context_of(step, rules);
  ForcedEvidence& evidence = context.evidence;
  const OwnFindings own = own_findings(step.ledger_of ? *step.ledger_of : a, b, pointer_to(step.before_b),
                                       step.exact_phases, rules.loss_is_differentiated, nullptr, step.before_a);
  std::optional<Difference> first = own.difference;
  if (first) place_by_update(step, rules, evidence, *first);
  std::vector<Difference> passed;
  judge_phases(context, rules, first, passed);
  JudgedStep judged{context.at, std::nullopt, evidence.cell.reduced_by_sum, std::move(passed)};
  if (!first) return judged;
  CauseInputs& inputs = judged.first.emplace();
  inputs.difference = *first;
  inputs.reference = a;
  inputs.cell = b;
  inputs.cell_before = step.before_b;
  if (first->phase == Phase::collective) inputs.ledger = own.ledger;
  add_step_before(step, rules, evidence);
  inputs.forced = std::move(evidence);
  return judged;
}

namespace {

bool is_joined_later(const Difference& passed) { return place_of(passed.phase) > place_of(Phase::local_gradients) && !is_of_one_rank(passed.phase); }

/// "; the reported loss is 1/4 of the reference's: ranks may report shares".
std::string share_text(const Difference& passed) {
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

}  // namespace

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
  judge_phases(context, rules, first, passed);
  add_step_before(step, rules, context.evidence);
  return std::move(context.evidence);
}

namespace {

/// Do two runs that are not at the same bits begin the step so close together, and have gradients so much alike, that an update
/// that is another one shows?
bool nearly_equal(const ForcedEvidence& evidence) {
  constexpr double kNear = 1e-4, kAlike = 1e-3;
  const auto apart = relative_distance(evidence.reference_state, evidence.state);
  if (evidence.reduced.tensors.empty() || !apart || !(*apart <= kNear)) return false;
  return std::ranges::all_of(evidence.reduced.tensors, [](const TensorUse& use) { return use.use.difference <= kAlike * use.norm_reference; });
}

}  // namespace

std::optional<CauseInputs> judge_own_step(const EqualStep& step, const StepRules& rules, bool reduced_by_sum, bool of_local) {
  ForcedContext context{step.a, step.b, step.repeats, rules.scores, rules.band, rules.reference_facts,
                        rules.cell_facts, rules.loss_is_differentiated, true, nullptr, {}, {}, step.compared};
  ForcedEvidence& evidence = context.evidence;
  evidence.reference = forced_values(step.a, step.dir_a, rules.scores);
  evidence.cell = forced_values(step.b, step.dir_b, rules.scores);
  evidence.cell.reduced_by_sum = evidence.cell.reduced_by_sum || reduced_by_sum;
  evidence.reference_state = step.state;
  evidence.state = step.cell_state;
  context.before = pointer_to(step.before_b);
  context.before_a = step.before_a;
  if (!evidence.cell.local.empty()) {
    evidence.local = judge_gradients(evidence.reference, {evidence.reference.gradients, mean_of_local(evidence.cell)}, step.repeats, rules.band);
  }
  evidence.reduced = judge_gradients(evidence.reference, evidence.cell, step.repeats, rules.band);
  context.begins_equal = nearly_equal(evidence);
  std::optional<Difference> first = judge_local_forms(context);
  if (!first) first = judge_lost_moments(context);
  if (!first) first = judge_stale_local(context);
  if (!first && of_local && !is_clipped_by_hand(evidence)) first = judge_own_reduction(context);
  if (!first) first = judge_own_norm(context);
  if (!first) first = judge_taken_by_hand(context);
  if (!first) first = judge_applied_gradients(context);
  if (!first) first = judge_parameters(context);
  if (!first) return std::nullopt;
  CauseInputs inputs;
  inputs.difference = *first;
  inputs.reference = step.a;
  inputs.cell = step.b;
  inputs.cell_before = step.before_b;
  add_step_before(step, rules, evidence);
  inputs.forced = std::move(evidence);
  return inputs;
}

}  // namespace lockstep
