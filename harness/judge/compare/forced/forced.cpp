#include "harness/judge/compare/compared.h"

#include <algorithm>

#include <fmt/format.h>

#include "harness/base/text.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/forced/update.h"

namespace lockstep {
namespace {

std::string twins_sentence(const Mechanism& result) {
  double meaning = 0;
  for (const ForcedStep& step : result.forced) meaning = std::max(meaning, step.meaning_used);
  const auto most = std::ranges::max_element(result.forced, {}, &ForcedStep::arithmetic_used);
  const auto otherwise = std::ranges::count_if(result.forced, [](const ForcedStep& step) { return step.chosen_otherwise >= 0; });
  std::string text = fmt::format("From the same weights and batch both compute the same gradients ({}; largest float64 difference {:.2g} % of the tolerance). ",
                                 counted(std::ssize(result.forced), "forced step"), 100 * meaning);
  text += fmt::format("Rounding uses {:.2g} % of its tolerance (step {}).", 100 * most->arithmetic_used, most->step);
  if (otherwise > 0) {
    text += fmt::format(" At {} of these steps rounding alone would select other candidates; at every step the run was given the candidates "
                        "of its float64 twin.",
                        otherwise);
  }
  return text;
}

/// `passed`: of the forced steps, see JudgedStep.
std::string within_sentence(const Mechanism& result, const FreeFindings& free, const ForcedInputs& inputs, const std::optional<Difference>& passed) {
  const double exact = inputs.band.exact;
  const auto most = std::ranges::max_element(result.forced, {}, &ForcedStep::band_used);
  std::string text = result.twins
                         ? twins_sentence(result)
                         : fmt::format("Gradients agree within the {} at {}: {:.2g} % of it is used, most by {} at step {}.",
                                       exact > 0              ? "exact tolerance"
                                       : result.band_measured ? "measured rounding tolerance"
                                                              : "estimated rounding tolerance (not measured)",
                                       counted(std::ssize(result.forced), "forced step"),
                                       100 * result.band_used, most->worst_tensor, most->step);
  text += passed_text(passed ? passed : free.passed);
  if (free.reordered >= 0) text += fmt::format(" From step {} on ranks or micro-steps hold the rows in another order.", free.reordered);
  const auto bits_text = [&](const Divergence& bits, const char* how) {
    text += fmt::format(" The free runs' bits first differ at step {}, {}, {}, {}.", bits.step, bits.phase, bits.where, how);
  };
  if (free.bits) {
    bits_text(free.bits->difference.divergence, free.bits->difference.relative <= rounding_bound(0)
                                                    ? "by no more than rounding"
                                                    : "by an unknown amount: only hashes were recorded");
  } else if (free.zeros) {
    bits_text(*free.zeros, "in signs of zeros only");
  }
  return text;
}

/// The earliest of all findings with what is known around it.
std::optional<CauseInputs> earliest(const std::optional<CauseInputs>& forced, const FreeFindings& free,
                                    const std::vector<ForcedStep>& steps, bool equal_bits) {
  std::optional<CauseInputs> first = forced;
  const auto take = [&](const std::optional<CauseInputs>& other) {
    if (other && (!first || earlier(other->difference, first->difference))) first = other;
  };
  /// What the forced run shows of the step at which another finding lies.
  const auto evidence_at = [&](const CauseInputs& other) {
    const bool same_step = first && first->difference.divergence.step == other.difference.divergence.step;
    return same_step ? first->forced : std::optional<ForcedEvidence>();
  };
  // At the same place the free run tells more: it holds the very step before.
  if (free.found && first && !earlier(first->difference, free.found->difference)) {
    const std::optional<ForcedEvidence> evidence = evidence_at(*free.found);
    const Difference forced_one = first->difference;
    first = free.found;
    first->forced = evidence;
    // Which of the replicas are wrong the forced run may show, whose values are whole.
    const auto same_replicas = [&](const Divergence& x, const Divergence& y) {
      return x.kind == DivergenceKind::replica && y.kind == DivergenceKind::replica && x.step == y.step && x.where == y.where;
    };
    Divergence& told = first->difference.divergence;
    if (told.rank == kRankUnknown && same_replicas(told, forced_one.divergence)) told = forced_one.divergence;
  }
  take(free.found);
  if (!free.bits) return first;
  const Difference& bits = free.bits->difference;
  if (equal_bits) {
    const std::optional<ForcedEvidence> evidence = evidence_at(*free.bits);
    take(free.bits);
    if (!first->forced) first->forced = evidence;
    return first;
  }
  // Else a free run may round otherwise from a step on that was not forced: by more than rounding, that is a
  // divergence too. What bands judge at a forced step they have judged.
  const auto is_its_step = [&](const ForcedStep& step) { return step.step == bits.divergence.step; };
  const bool has_a_band = place_of(bits.phase) <= place_of(Phase::gradient_norm) && std::ranges::any_of(steps, is_its_step);
  if (bits.relative > rounding_bound(0) && !has_a_band) take(free.bits);
  return first;
}

/// Goes through the steps with gradients of all runs side by side.
class ForcedJudge {
 public:
  explicit ForcedJudge(const ForcedInputs& inputs)
      : inputs_(inputs),
        reference_(inputs.forced_reference),
        cell_(inputs.forced_cell),
        rules_(rules_of(reference_, cell_, inputs.configs(), inputs.band)),
        of_cell_(rules_) {
    // Both sides are the cell's: what its config says holds for both.
    of_cell_.reference_facts = of_cell_.cell_facts = training_facts(inputs_.cell_config, cell_);
    if (!inputs.reference_twin.empty()) reference_twin_.emplace(inputs.reference_twin);
    if (!inputs.cell_twin.empty()) cell_twin_.emplace(inputs.cell_twin);
    LOCKSTEP_CHECK(reference_twin_.has_value() == cell_twin_.has_value(), "both sides have a twin, or neither");
    if (!rules_.ours()) cell_.name_like(inputs.forced_reference);
    if (!rules_.ours() && cell_twin_) cell_twin_->name_like(inputs.forced_reference);
    if (has_twins()) return;
    for (const std::string& dir : inputs.repeats) repeats_.emplace_back(dir);
  }

  Comparison compare() {
    const bool has_free = !inputs_.run_a.empty() && !inputs_.run_b.empty();
    FreeFindings free;
    if (has_free) {
      free = read_free_runs(inputs_.run_a, inputs_.run_b, inputs_.steps,
                            working_epsilon(rules_.reference_facts, std::numeric_limits<float>::epsilon()));
    }
    run(!has_free, free.states);

    Mechanism result;
    result.compared_steps = free.compared;
    result.twins = has_twins();
    result.band_measured = !result.twins && !inputs_.repeats.empty();
    result.forced = steps_;
    for (const ForcedStep& step : result.forced) result.band_used = std::max(result.band_used, step.band_used);

    std::optional<CauseInputs> first = earliest(first_, free, result.forced, equal_bits_promised());
    if (first) result.first_divergence = first->difference.divergence;
    // Of what both show the forced steps say more.
    result.facts = compared_.facts(std::ssize(steps_), result.first_divergence, "forced step");
    std::vector<Fact> of_free = free.looked_at.facts(free.compared, result.first_divergence);
    std::erase_if(of_free, [&](const Fact& fact) { return std::ranges::find(result.facts, fact.name, &Fact::name) != result.facts.end(); });
    result.facts.insert(result.facts.begin(), of_free.begin(), of_free.end());
    free.evaluations.tell(result.facts);
    const std::string ends = free.ends.empty() ? ends_ : free.ends;
    if (first) {
      rules_.tell(*first);
      result.verdict = VerdictKind::divergent;
      result.sentence = first->difference.divergence.sentence;
    } else if (result.forced.empty()) {
      result.verdict = VerdictKind::inconclusive;
      result.sentence = "No gradients could be compared: the forced runs have no complete step.";
    } else if (every_bit_equal_ && free.compared_bits && free.compared > 0 && !free.bits && !free.zeros && free.reordered < 0) {
      result.verdict = VerdictKind::identical;
      result.sentence = fmt::format("Identical: every bit of {} and of the gradients at {} agrees.",
                                    counted(free.compared, "step"),
                                    counted(std::ssize(result.forced), "forced step"));
    } else {
      result.verdict = VerdictKind::within_envelope;
      result.sentence = within_sentence(result, free, inputs_, passed_);
    }
    if (!ends.empty()) result.sentence += fmt::format(" Compared as far as the traces go: {}.", ends);
    if (!free.missing_end.empty() && result.verdict != VerdictKind::divergent) {
      result.verdict = VerdictKind::inconclusive;
      tell_of_missing_end(free.missing_end, ends, result);
    }
    if (!free_ && !missing_end_.empty() && result.verdict != VerdictKind::divergent) {
      result.verdict = VerdictKind::inconclusive;
      result.sentence += fmt::format(" {}.", missing_end_);
    }
    result.sentence += gaps_sentence(free.gaps);
    return {std::move(result), std::move(first)};
  }

 private:
  /// `states`: what the reference's free run kept before its steps.
  void run(bool exact_phases_too, const std::map<int64_t, KnownState>& states) {
    std::optional<StepOfRun> before, before_a, before_twin;
    if (has_twins()) read_errors();
    while (true) {
      std::optional<StepOfRun> a = next_with_gradients(reference_, before_a);
      std::optional<StepOfRun> b = next_with_gradients(cell_, before);
      while (free_ && steps_.empty() && a && b && a->step < b->step) {
        before_a = std::move(a);
        a = next_with_gradients(reference_, before_a);
      }
      if (!a || !b) {
        if (a || b) {
          missing_end_ = fmt::format("{} has no forced step {}, which {} has", (a ? cell_ : reference_).dir(), (a ? a : b)->step,
                                     (a ? reference_ : cell_).dir());
        }
        break;
      }
      if (inputs_.forced_steps > 0 && a->step >= inputs_.forced_steps) break;
      if (a->step != b->step) {
        throw TraceError(fmt::format("{}: has forced step {} where {} has step {}", cell_.dir(), b->step,
                                     reference_.dir(), a->step));
      }
      const auto kept = states.find(a->step);
      KnownState state, cell_state;
      if (kept != states.end()) {
        state = kept->second;
      } else if (free_) {
        state = state_before(*a, before_a);
        cell_state = state_before(*b, before);
      }
      if (has_twins()) {
        const StepOfRun a_twin = twin_step(*reference_twin_, *a);
        StepOfRun b_twin = twin_step(*cell_twin_, *b);
        judge_twins({*a, *b, a_twin, b_twin, before, before_twin, state}, exact_phases_too);
        before_twin = std::move(b_twin);
      } else {
        const std::vector<ForcedValues> repeats = repeats_of(*a);
        JudgedStep judged = judge_equal_step({*a, reference_.dir(), *b, cell_.dir(), before, repeats, state, cell_state,
                                              exact_phases_too, free_, nullptr, nullptr, &compared_},
                                             rules_);
        steps_.push_back(std::move(judged.at));
        note_passed(judged);
        if (!first_) first_ = std::move(judged.first);
      }
      if (const auto bits = same_layout() ? first_difference(*a, *b) : std::nullopt; bits || !same_layout()) {
        every_bit_equal_ = false;
        if (bits && !first_ && equal_bits_promised() && !differ_in_zeros_alone(*a, *b)) first_ = inputs_of(*bits, *a, *b, before);
      }
      before = std::move(b);
      before_a = std::move(a);
    }
    ends_ = reference_.end().empty() ? cell_.end() : reference_.end();
  }

  bool has_twins() const { return reference_twin_.has_value(); }
  bool same_layout() const { return reference_.world_size() == cell_.world_size(); }
  /// Is every differing bit of the two runs, and of their forced ones, a finding?
  bool equal_bits_promised() const {
    return inputs_.one_build && inputs_.reference_config && inputs_.cell_config && same_layout() &&
           promise_equal_bits(*inputs_.reference_config, *inputs_.cell_config);
  }

  void note_passed(const JudgedStep& judged) {
    if (!passed_ && !judged.passed.empty()) passed_ = judged.passed.front();
  }

  /// Throws TraceError if the twin has not computed the step.
  static StepOfRun twin_step(RunReader& twin, const StepOfRun& step) {
    std::optional<StepOfRun> passed, found = next_with_gradients(twin, passed);
    if (found && found->step == step.step) return *std::move(found);
    throw TraceError(fmt::format("{}: the float64 twin lacks forced step {}{}", twin.dir(), step.step,
                                 twin.end().empty() ? "" : "; " + twin.end()));
  }

  /// Of all the reference's forced steps, before the first is judged.
  void read_errors() {
    RunReader narrow(inputs_.forced_reference), wide(inputs_.reference_twin);
    std::optional<StepOfRun> passed;
    while (true) {
      const std::optional<StepOfRun> a = next_with_gradients(narrow, passed), twin = next_with_gradients(wide, passed);
      if (!a || !twin || a->step != twin->step) return;
      if (!keeps_gradients(*a) || !keeps_gradients(*twin)) return;
      add_errors(errors_, forced_values(*a, narrow.dir(), rules_.scores()),
                 forced_values(*twin, wide.dir(), rules_.scores()));
    }
  }

  struct TwinSteps {
    const StepOfRun &a, &b, &a_twin, &b_twin;
    const std::optional<StepOfRun>&before, &before_twin;  ///< the cell's
    const KnownState& state;
  };

  /// See ForcedStep.
  int64_t chosen_otherwise(const TwinSteps& steps) const {
    if (!inputs_.cell_config || !rules_.scores().takes_some(*inputs_.cell_config)) return -1;
    const ForcedValues wide = forced_values(steps.b_twin, cell_twin_->dir(), rules_.scores()),
                       narrow = forced_values(steps.b, cell_.dir(), rules_.scores());
    if (!wide.scores || !narrow.scores) return -1;
    return row_taken_otherwise(*wide.scores, *narrow.scores,
                               [&](int64_t columns) { return rules_.scores().taken(*inputs_.cell_config, columns); });
  }

  /// The twins against each other, then the cell against its own.
  void judge_twins(const TwinSteps& steps, bool exact_phases_too) {
    ForcedValues single = forced_values(steps.a, reference_.dir(), rules_.scores());
    single.working_epsilon = working_epsilon(rules_.reference_facts, single.epsilon);
    const ForcedValues wide = forced_values(steps.a_twin, reference_twin_->dir(), rules_.scores());
    const TwinBounds of_meaning(TwinQuestion::meaning, single, wide, errors_), of_rounding(TwinQuestion::arithmetic, single, wide, errors_);
    const std::vector<ForcedValues> no_repeats;
    JudgedStep meaning =
        judge_equal_step({steps.a_twin, reference_twin_->dir(), steps.b_twin, cell_twin_->dir(), steps.before_twin, no_repeats,
                          steps.state, nullptr, exact_phases_too, false, &of_meaning, nullptr, &compared_},
                         rules_);
    JudgedStep arithmetic = judge_equal_step({steps.b_twin, cell_twin_->dir(), steps.b, cell_.dir(), steps.before,
                                              no_repeats, steps.state, nullptr, false, false, &of_rounding, &steps.a},
                                             of_cell_);
    ForcedStep at = std::move(meaning.at);
    at.meaning_used = at.band_used;
    note_passed(meaning);
    at.chosen_otherwise = chosen_otherwise(steps);
    at.arithmetic_used = arithmetic.at.band_used;
    if (at.arithmetic_used > at.band_used) {
      at.band_used = at.arithmetic_used;
      at.worst_tensor = arithmetic.at.worst_tensor;
    }
    steps_.push_back(std::move(at));
    if (first_) return;
    // What is meant otherwise is computed otherwise in every precision; a cell's own rounding is no part of it.
    const bool rounds = arithmetic.first && (!meaning.first || earlier(arithmetic.first->difference, meaning.first->difference));
    first_ = std::move(rounds ? arithmetic.first : meaning.first);
    if (!first_) return;
    Divergence& told = first_->difference.divergence;
    told.parted = rounds ? "arithmetic" : "meaning";
    told.sentence += rounds ? " In float64 they agree here, so it is rounding or arithmetic, not a different computation."
                            : " float64 shows the same difference, so it is not rounding.";
  }

  std::vector<ForcedValues> repeats_of(const StepOfRun& reference) {
    std::vector<ForcedValues> values;
    for (RunReader& repeat : repeats_) {
      std::optional<StepOfRun> passed, records = next_with_gradients(repeat, passed);
      while (free_ && steps_.empty() && records && records->step < reference.step) {
        records = next_with_gradients(repeat, passed);
      }
      if (!records || records->step != reference.step) {
        throw TraceError(fmt::format("{}: the repeat lacks forced step {}{}", repeat.dir(), reference.step,
                                     repeat.end().empty() ? "" : "; " + repeat.end()));
      }
      if (free_) require_repeat_of(reference, *records, repeat.dir());
      values.push_back(forced_values(*records, repeat.dir(), rules_.scores()));
    }
    return values;
  }

  /// A repeat of run A differs from it in the order of rows alone. What else differs would widen the band, and hide what
  /// run B does wrong. Throws TraceError.
  static void require_repeat_of(const StepOfRun& reference, const StepOfRun& repeat, const std::string& dir) {
    if (reference.ranks.size() != repeat.ranks.size()) {
      throw TraceError(fmt::format("{}: not a repeat of the reference: it has {}, and the reference {}", dir,
                                   counted(std::ssize(repeat.ranks), "rank"), reference.ranks.size()));
    }
    if (const auto difference = first_exact_difference(reference, repeat, true);
        difference && difference->phase != Phase::random) {
      throw TraceError(fmt::format("{}: not a repeat of the reference: {}", dir, difference->divergence.sentence));
    }
  }

  const ForcedInputs& inputs_;
  /// Do the runs go on from their own steps, so that each begins a step where it ended the one before?
  const bool free_ = inputs_.forced_reference == inputs_.run_a && inputs_.forced_cell == inputs_.run_b;
  RunReader reference_, cell_;
  StepRules rules_, of_cell_;
  std::vector<RunReader> repeats_;
  std::optional<RunReader> reference_twin_, cell_twin_;
  LargestErrors errors_;
  std::vector<ForcedStep> steps_;
  std::optional<CauseInputs> first_;
  std::optional<Difference> passed_;
  Compared compared_;
  bool every_bit_equal_ = true;
  std::string ends_, missing_end_;
};

}  // namespace

Comparison compare_forced(const ForcedInputs& inputs) { return ForcedJudge(inputs).compare(); }

}  // namespace lockstep
