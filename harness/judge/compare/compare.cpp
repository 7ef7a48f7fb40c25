#include "harness/judge/compare/compare.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/exact.h"
#include "harness/judge/compare/exact_runs.h"
#include "harness/judge/compare/forced/forced.h"
#include "harness/judge/compare/forced/free.h"
#include "harness/judge/compare/layouts.h"
#include "harness/judge/compare/resumed.h"
#include "harness/judge/compare/step_pairs.h"

namespace lockstep {

Certification certify(const std::string& emulated_dir, const std::string& real_dir, int64_t asked) {
  StepPairs pairs(emulated_dir, real_dir);
  Certification result;
  result.wanted = true;
  result.asked = asked;
  if (!pairs.same_layout()) {
    throw TraceError(fmt::format("{}: {}, where {} has {}: not a prefix of that run", real_dir,
                                 counted(pairs.b().world_size(), "rank"), emulated_dir,
                                 pairs.a().world_size()));
  }
  // A certificate is of the first steps, none left out.
  while (result.steps < asked && pairs.next() && !pairs.has_gap()) {
    if (const auto difference = first_difference(pairs.step_a(), pairs.step_b())) {
      result.divergence = difference->divergence;
      return result;
    }
    result.steps = pairs.compared();
  }
  return result;
}

namespace {

/// Runs of which every bit that both recorded agrees; what neither or one alone recorded is told.
std::string identical_sentence(StepPairs& pairs, const Compared& compared) {
  const std::string lacking = compared.lacking({Looked::samples, Looked::loss, Looked::reduced_gradients, Looked::parameters});
  const std::string steps = counted(pairs.compared(), "step"), ranks = counted(pairs.a().world_size(), "rank");
  if (lacking.empty()) return fmt::format("Identical: every bit of {} on {} agrees", steps, ranks);
  return fmt::format("Identical: every bit of {} on {} agrees in what both recorded: not in {}", steps, ranks, lacking);
}

/// A step's difference, told as replica drift where only the replicas of run B have parted.
void tell_of_replicas(Divergence& divergence, const StepOfRun& a, const StepOfRun& b) {
  const std::optional<ReplicaDrift> drift = replica_drift(b, &a);
  if (!drift || replica_drift(a)) return;
  const bool same_place = divergence.phase == name_of(drift->phase) && divergence.where == drift->name;
  if (same_place) {
    divergence.kind = DivergenceKind::replica;
    if (drift->rank >= 0) divergence.rank = drift->rank;
  }
  divergence.sentence += fmt::format(" The run's replicas differ from each other: {}.", drift->sentence);
}

std::string both_drift(const std::string& drift) {
  return fmt::format(" In both runs the replicas differ from each other: {}.", drift);
}

/// Names of tensors that one of two runs holds in shards.
void note_shards(std::set<std::string>& names, const StepOfRun& a, const StepOfRun& b) {
  for (const Record& record : a.ranks[0].records) {
    if (record.phase != Phase::parameters && record.phase != Phase::reduced_gradients) continue;
    const Record* other = find_record(b.ranks[0], record.phase, record.name);
    if (other && is_in_shards(record, *other)) names.insert(record.name);
  }
}

/// A rule of the ledger that run B breaks by itself, and run A does not.
std::optional<LedgerFinding> broken_ledger(StepPairs& pairs) {
  auto found = audit_ledger(pairs.step_b(), {pointer_to(pairs.before_b()), &pairs.step_a(), false, pointer_to(pairs.before_a())});
  if (!found || audit_ledger(pairs.step_a(), {pointer_to(pairs.before_a()), nullptr, false})) return std::nullopt;
  return found;
}

/// `ours`: both are runs of a trainer of ours, which promises equal bits.
Comparison compare_same_layout(StepPairs& pairs, const CompareOptions& options, bool ours) {
  std::optional<Difference> passed;  // the first difference in bits that of_any_trainer makes none
  std::set<std::string> shards;
  Mechanism result;
  std::optional<CauseInputs> inputs;  // of the first difference
  bool parts = false;                 // not yet by other calls, which count where a value follows them
  std::optional<std::string> drift_of_both;
  std::optional<Difference> zeros;  // the first difference that lies in signs of zeros only
  Compared compared;
  Evaluations evaluations;
  while (pairs.next()) {
    std::optional<Difference> difference = first_difference(pairs.step_a(), pairs.step_b());
    if (difference && differ_in_zeros_alone(pairs.step_a(), pairs.step_b())) {
      if (!zeros) zeros = difference;
      difference.reset();
    }
    if (difference && !ours) {
      if (!passed) passed = difference;
      note_shards(shards, pairs.step_a(), pairs.step_b());
      difference = differences_of_step(pairs.step_a(), pairs.step_b()).counts;
    }
    std::optional<LedgerFinding> of_ledger;
    if (!difference && !ours) of_ledger = broken_ledger(pairs);
    if (of_ledger) difference = ledger_difference(*of_ledger, pairs.step_b());
    if (difference) {
      Divergence& told = difference->divergence;
      if (auto skipped = pairs.skipped_step(*difference)) told = *std::move(skipped);
      tell_of_replicas(told, pairs.step_a(), pairs.step_b());
      const std::optional<double> size = largest_relative_difference(pairs.step_a(), pairs.step_b(), !ours);
      if (told.kind == DivergenceKind::bits && size && *size <= rounding_bound(0))
        told.sentence += " The difference is small enough to be rounding alone: summing in another order may cause it.";
      const std::optional<LedgerFinding> ledger =
          of_ledger ? of_ledger : audit_ledger(pairs.step_b(), {pointer_to(pairs.before_b()), &pairs.step_a(), ours});
      if (!inputs) inputs = inputs_at(pairs, *difference), inputs->ledger = ledger;
      const std::string code = !ours && size == 0 && ledger ? ledger->code : "";
      parts = difference->phase != Phase::collective || (code != "collective-extra" && code != "collective-missing");
      if (parts) break;
      if (!passed) passed = difference;
    }
    compared.add_bits(pairs.step_a(), pairs.step_b());
    evaluations.differ(pairs.step_a(), pairs.step_b(), false, 0);
    if (drift_of_both) continue;
    if (const auto drift = replica_drift(pairs.step_b())) drift_of_both = drift->sentence;
  }
  result.compared_steps = pairs.compared();
  result.facts =
      compared.facts(result.compared_steps, parts ? std::optional(inputs->difference.divergence) : std::nullopt);
  evaluations.tell(result.facts);
  if (parts) {
    Comparison parted =
        parted_at(*std::move(inputs), pairs, rules_of(pairs.a(), pairs.b(), options.configs()), std::move(result));
    if (drift_of_both) parted.mechanism.sentence += both_drift(*drift_of_both);
    return parted;
  }
  VerdictKind verdict = VerdictKind::identical;
  std::string sentence = identical_sentence(pairs, compared);
  const std::string steps = counted(result.compared_steps, "step");
  const auto place = [](const Divergence& at) { return fmt::format("step {}, {}, {}", at.step, at.phase, at.where); };
  if (!shards.empty()) {
    verdict = VerdictKind::inconclusive;
    sentence = fmt::format("Tensors of equal shape agree over {}. Not compared: {} of another shape, which one run may "
                           "hold in shards, {} first",
                           steps, counted(static_cast<int64_t>(shards.size()), "tensor"), *shards.begin());
  } else if (passed) {
    const Divergence& first = passed->divergence;
    // Of updates that neither gradients nor parameters show nothing is known.
    const bool shown = std::max(compared.steps(Looked::reduced_gradients), compared.steps(Looked::parameters)) >= result.compared_steps;
    verdict = shown ? VerdictKind::within_envelope : VerdictKind::inconclusive;
    sentence = fmt::format("Equal bit for bit over {}. What two programs may do in ways of their own differs, first at "
                           "{}: {}",
                           steps, place(first), expected_found(first.expected, first.actual));
  } else if (zeros) {
    verdict = VerdictKind::within_envelope;
    sentence = fmt::format("Equal as numbers over {}; bits first differ at {}: in signs of zeros only", steps,
                           place(zeros->divergence));
  }
  agree_as_far(pairs, verdict, sentence, result);
  if (drift_of_both) result.sentence += both_drift(*drift_of_both);
  return {std::move(result), std::nullopt};
}

/// Of runs that are not ours nobody promises equal bits: another bucket, another kernel rounds otherwise. Where bits
/// may differ by no more than that, or collectives of gradients are others, values decide as between two layouts; and they
/// tell more of what is beyond rounding. `by_bits`: what differed in bits.
Comparison by_values_where_bits_differ(Comparison by_bits, const CompareOptions& options) {
  const Divergence bits = *by_bits.mechanism.first_divergence;
  if (!by_bits.around) return by_bits;
  const CauseInputs& around = *by_bits.around;
  const std::optional<double> size = largest_relative_difference(*around.reference, *around.cell, true);
  const bool of_buckets = around.difference.phase == Phase::collective && !around.ledger;
  const bool is_small = !size || *size <= rounding_bound(0), may_be_rounding = bits.kind == DivergenceKind::bits && is_small;
  StepPairs pairs(options.run_a, options.run_b, options.steps);
  Comparison by_values = compare_layouts(pairs, options);
  const std::optional<Divergence>& first = by_values.mechanism.first_divergence;
  if (first && by_values.around && first->step == bits.step && bits.kind == DivergenceKind::bits && !of_buckets &&
      earlier(around.difference, by_values.around->difference) && !(around.difference.relative <= rounding_bound(0))) {
    // Of what comes before, no values tell that it is rounding alone.
    by_bits.mechanism.sentence += " By values: " + by_values.mechanism.sentence;
    by_bits.by_values = std::move(by_values.around);
    return by_bits;
  }
  if (first) return first->step <= bits.step || may_be_rounding || of_buckets ? by_values : by_bits;
  // A loss that is scaled and gradients that are unscaled by hand are a way of training alike.
  const bool on_the_way = place_of(around.difference.phase) < place_of(Phase::applied_gradients) && takes_alike(*around.reference, *around.cell);
  if (!may_be_rounding && !(of_buckets && is_small) && !on_the_way) return by_bits;
  by_values.mechanism.sentence =
      fmt::format("Bits first differ at step {}, {}, {}, {}. {}", bits.step, bits.phase, bits.where,
                  on_the_way ? "and optimizers take the same gradients" : size ? "by no more than summing in another order changes" : "by an unknown amount: only hashes were recorded",
                  by_values.mechanism.sentence);
  return by_values;
}

/// Is one run's loss the ranks' share of the whole, whose gradients are added up, and the other's a mean? Then no rank's own values are alike.
bool reduce_otherwise(StepPairs& pairs) {
  const auto sums = [](RunReader& run) { return run.header().declared && run.header().declared->gradient_reduction == "sum"; };
  return sums(pairs.a()) != sums(pairs.b());
}

Comparison compare_pairs(StepPairs& pairs, const CompareOptions& options) {
  if (!pairs.same_layout()) return compare_layouts(pairs, options);
  const bool ours = options.reference_config || options.cell_config || trainer_of(pairs.a(), pairs.b());
  Comparison by_bits = compare_same_layout(pairs, options, ours);
  const std::optional<CauseInputs>& around = by_bits.around;
  // Sums over rows in another order, or in other micro-steps, round otherwise, as those of two layouts do.
  const bool reordered = around && around->difference.phase == Phase::samples && rows_reordered(*around->reference, *around->cell);
  const bool parted = around && !ours && !same_partition(*around->reference, *around->cell);
  if (reordered || parted || (around && reduce_otherwise(pairs))) {
    StepPairs again(options.run_a, options.run_b, options.steps);
    return compare_layouts(again, options);
  }
  return ours || !by_bits.mechanism.first_divergence ? by_bits : by_values_where_bits_differ(std::move(by_bits), options);
}

/// A run that was resumed with another state than the reference's of that step, where nothing was found that such a state does not explain: a right
/// resumption differs by rounding, and whatever is compared from equal weights says nothing of it.
std::optional<Comparison> resumed_elsewhere(StepPairs& pairs, const CompareOptions& options, const Comparison& comparison) {
  if (options.reference_config || options.cell_config || trainer_of(pairs.a(), pairs.b())) return std::nullopt;
  auto found = begins_elsewhere(options.run_a, options.run_b);
  if (!found) return std::nullopt;
  const Divergence& told = found->difference.divergence;
  const std::optional<Divergence>& first = comparison.mechanism.first_divergence;
  const bool explains = first && first->step == told.step && comparison.around && !is_exact(comparison.around->difference.phase);
  if ((first && first->step <= told.step && !explains) || (options.steps > 0 && told.step >= options.steps)) return std::nullopt;
  return parted_at(*std::move(found), pairs, rules_of(pairs.a(), pairs.b(), options.configs()));
}

}  // namespace

std::vector<ConfigDifference> differences_of(const CompareOptions& options) {
  if (options.reference_config || options.cell_config) return config_differences(options.configs());
  return declared_differences(RunReader(options.run_a).declared_of_all().get(), RunReader(options.run_b).declared_of_all().get());
}

Comparison compare_traces(const CompareOptions& options) {
  if (!options.repeats.empty()) {
    // Their samples, the steps before and the state at the beginning are in the same folders.
    return compare_forced({options, options.run_a, options.run_b, "", "", options.steps});
  }
  StepPairs pairs(options.run_a, options.run_b, options.steps);
  if (both_exact(options.reference_config, options.cell_config)) {
    return compare_exact_runs(pairs, options.configs());
  }
  Comparison comparison = compare_pairs(pairs, options);
  if (auto elsewhere = resumed_elsewhere(pairs, options, comparison)) comparison = *std::move(elsewhere);
  comparison.mechanism.sentence += pairs.contradictions().sentence();
  // Gradients from equal parameters decide.
  if (comparison.mechanism.verdict == VerdictKind::inconclusive && comparison.mechanism.decide.empty()) {
    comparison.mechanism.decide =
        trainer_of(pairs.a(), pairs.b())
            ? "lockstep run CONFIG --set 'forced_steps=[0,1,2,5]'"
            : fmt::format("lockstep check --ranks {},{} -- COMMAND", pairs.a().world_size(), pairs.b().world_size());
  }
  return comparison;
}

}  // namespace lockstep
