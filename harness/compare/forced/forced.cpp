#include "harness/compare/forced/forced.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "harness/compare/bits.h"
#include "harness/compare/forced/free.h"
#include "harness/compare/forced/step.h"
#include "harness/compare/rounding_bound.h"
#include "harness/compare/trainer_of.h"

namespace lockstep {
namespace {

/// Goes through the forced steps of all runs side by side.
class ForcedJudge {
 public:
  explicit ForcedJudge(const ForcedInputs& inputs)
      : inputs_(inputs),
        reference_(inputs.forced_reference),
        cell_(inputs.forced_cell),
        trainer_(trainer_of(reference_, cell_)),
        scores_(scores_of(trainer_)) {
    for (const std::string& dir : inputs.forced_repeats) repeats_.emplace_back(dir);
  }

  /// `states`: what the reference's free run kept before its steps.
  void run(bool exact_phases_too, const std::map<int64_t, Snapshot>& states) {
    std::optional<StepOfRun> before;
    while (true) {
      const std::optional<StepOfRun> a = reference_.next();
      std::optional<StepOfRun> b = cell_.next();
      if (!a || !b) break;
      if (a->step != b->step) {
        throw TraceError(fmt::format("{}: has forced step {} where {} has step {}", cell_.dir(), b->step,
                                     reference_.dir(), a->step));
      }
      const auto state = states.find(a->step);
      judge_step(*a, *b, before, exact_phases_too, state == states.end() ? nullptr : &state->second);
      every_bit_equal_ = every_bit_equal_ && same_layout() && !first_difference(*a, *b);
      before = std::move(b);
    }
    ends_ = reference_.end().empty() ? cell_.end() : reference_.end();
  }

  const std::optional<CauseInputs>& first() const { return first_; }
  std::vector<ForcedStep>& steps() { return steps_; }
  const TrainerSpec* trainer() const { return trainer_; }
  const std::string& ends() const { return ends_; }
  bool every_bit_equal() const { return every_bit_equal_; }

 private:
  bool same_layout() const { return reference_.world_size() == cell_.world_size(); }

  std::vector<ForcedValues> repeats_at(int64_t step) {
    std::vector<ForcedValues> values;
    for (RunReader& repeat : repeats_) {
      const std::optional<StepOfRun> records = repeat.next();
      if (!records || records->step != step) {
        throw TraceError(fmt::format("{}: a repeat that lacks forced step {}{}", repeat.dir(), step,
                                     repeat.end().empty() ? "" : "; " + repeat.end()));
      }
      values.push_back(forced_values(*records, repeat.dir(), scores_));
    }
    return values;
  }

  void judge_step(const StepOfRun& a, const StepOfRun& b, const std::optional<StepOfRun>& before,
                  bool exact_phases_too, const Snapshot* state) {
    const std::vector<ForcedValues> repeats = repeats_at(a.step);
    ForcedContext context{a, b, repeats, scores_, inputs_.band, inputs_.reference_config, inputs_.cell_config,
                          {}, {}};
    context.at.step = a.step;
    ForcedEvidence& evidence = context.evidence;
    evidence.reference = forced_values(a, reference_.dir(), scores_);
    evidence.reference.working_epsilon =
        working_epsilon(inputs_.reference_config, evidence.reference.epsilon);
    evidence.cell = forced_values(b, cell_.dir(), scores_);
    evidence.reduced = judge_gradients(evidence.reference, evidence.cell, repeats, inputs_.band);
    if (state) evidence.state = *state;

    const OwnFindings own = own_findings(a, b, before ? &*before : nullptr, exact_phases_too);
    std::optional<Difference> first = own.difference;
    for (auto judge : {judge_scores, judge_loss, judge_local_gradients, judge_reduced_gradients,
                       judge_gradient_norm, judge_parameters}) {
      keep_earlier(first, judge(context));
    }
    context.at.groups = evidence.reduced.groups;
    steps_.push_back(context.at);
    if (!first || first_) return;
    first_.emplace();
    first_->difference = *first;
    first_->reference = a;
    first_->cell = b;
    first_->cell_before = before;
    if (first->phase == Phase::collective) first_->ledger = own.ledger;
    if (before) evidence.cell_before = forced_values(*before, cell_.dir(), scores_);
    first_->forced = std::move(evidence);
  }

  const ForcedInputs& inputs_;
  RunReader reference_, cell_;
  const TrainerSpec* trainer_;
  const ScoreSpec& scores_;
  std::vector<RunReader> repeats_;
  std::vector<ForcedStep> steps_;
  std::optional<CauseInputs> first_;
  bool every_bit_equal_ = true;
  std::string ends_;
};

std::string within_sentence(const Mechanism& result, const FreeFindings& free, double exact) {
  const auto most =
      std::max_element(result.forced.begin(), result.forced.end(),
                       [](const ForcedStep& x, const ForcedStep& y) { return x.band_used < y.band_used; });
  std::string text = fmt::format("Within the {} at {}: {:.2g} % of it used, most by {} at step {}.",
                                 exact > 0              ? "bound of exactness"
                                 : result.band_measured ? "measured floating-point band"
                                                        : "rounding bound (bound, not measured)",
                                 counted(static_cast<int64_t>(result.forced.size()), "forced step"),
                                 100 * result.band_used, most->worst_tensor, most->step);
  if (free.compared > 0) {
    text += fmt::format(" Sample ids, random streams and control values agree exactly over {}.",
                        counted(free.compared, "step"));
  }
  if (free.bits) {
    const Divergence& bits = free.bits->difference.divergence;
    text += fmt::format(" Bits of the free runs first differ at step {}, {}, {}, by rounding.", bits.step,
                        bits.phase, bits.where);
  }
  return text;
}

/// The earliest of all findings with what is known around it.
std::optional<CauseInputs> earliest(const std::optional<CauseInputs>& forced, const FreeFindings& free) {
  std::optional<CauseInputs> first = forced;
  const auto take = [&](const std::optional<CauseInputs>& other) {
    if (other && (!first || earlier(other->difference, first->difference))) first = other;
  };
  // At the same place the free run tells more: it holds the very step before.
  if (free.found && first && !earlier(first->difference, free.found->difference)) {
    const bool same_step = first->difference.divergence.step == free.found->difference.divergence.step;
    const std::optional<ForcedEvidence> evidence = same_step ? first->forced : std::nullopt;
    first = free.found;
    first->forced = evidence;
  }
  take(free.found);
  // At one layout a free run may part at a step that was not forced: by more than rounding, that is a
  // divergence too.
  if (free.bits && free.bits->difference.relative > rounding_bound(0)) take(free.bits);
  return first;
}

}  // namespace

Comparison compare_forced(const ForcedInputs& inputs) {
  const bool has_free = !inputs.reference_free.empty() && !inputs.cell_free.empty();
  FreeFindings free;
  if (has_free) free = read_free_runs(inputs.reference_free, inputs.cell_free);
  ForcedJudge judge(inputs);
  judge.run(!has_free, free.states);

  Mechanism result;
  result.compared_steps = free.compared;
  result.band_measured = !inputs.forced_repeats.empty();
  result.forced = judge.steps();
  for (const ForcedStep& step : result.forced) result.band_used = std::max(result.band_used, step.band_used);

  std::optional<CauseInputs> first = earliest(judge.first(), free);
  const std::string ends = free.ends.empty() ? judge.ends() : free.ends;
  if (first) {
    first->reference_config = inputs.reference_config;
    first->cell_config = inputs.cell_config;
    first->trainer = judge.trainer();
    result.verdict = VerdictKind::divergent;
    result.first_divergence = first->difference.divergence;
    result.sentence = first->difference.divergence.sentence;
  } else if (result.forced.empty()) {
    result.verdict = VerdictKind::inconclusive;
    result.sentence = "No gradients could be compared: the forced runs hold no whole step.";
  } else if (judge.every_bit_equal() && free.compared_bits && free.compared > 0 && !free.bits) {
    result.verdict = VerdictKind::identical;
    result.sentence = fmt::format("Identical: every bit of {} and of the gradients at {} agrees.",
                                  counted(free.compared, "step"),
                                  counted(static_cast<int64_t>(result.forced.size()), "forced step"));
  } else {
    result.verdict = VerdictKind::within_envelope;
    result.sentence = within_sentence(result, free, inputs.band.exact);
  }
  if (!ends.empty()) result.sentence += fmt::format(" Compared as far as the traces go: {}.", ends);
  return {std::move(result), std::move(first)};
}

}  // namespace lockstep
