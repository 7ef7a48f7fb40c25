#include "harness/judge/compare/compared.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/json.h"
#include "harness/base/numbers.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/forced/update.h"
#include "harness/judge/trace/record.h"

namespace lockstep {

// Free runs in exact arithmetic: no layout changes a bit, so every step is compared bit for bit, row by row.

namespace {

/// One row of a step as the rank that had it saw it.
struct Row {
  int64_t position = 0, id = 0;
  int rank = 0;
  uint64_t inputs = 0, scores = 0, gradient = 0;
  double loss = 0;
};

std::vector<int64_t> integers(const StepRecords& rank, const char* name) {
  const Record* record = find_record(rank, Phase::loss, name);
  return record && record->dtype == DType::int64 ? whole_numbers_of(*record) : std::vector<int64_t>();
}

std::vector<double> losses_of(const StepRecords& rank) {
  return values_of(find_record(rank, Phase::loss, "row_losses")).value_or(std::vector<double>{});
}

/// In the order of the whole batch; empty if a rank's records of its rows do not fit together.
std::vector<Row> rows_of(const StepOfRun& step) {
  std::vector<Row> rows;
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const StepRecords& rank = step.ranks[r];
    const Record* named = find_record(rank, Phase::loss, "row_gradients");
    const std::vector<int64_t> positions = integers(rank, "row_positions"), inputs = integers(rank, "row_inputs"),
                               scores = integers(rank, "row_scores"),
                               gradients = integers(rank, "row_gradients");
    const std::vector<double> losses = losses_of(rank);
    if (named == nullptr) continue;
    const std::size_t own = positions.size();
    if (inputs.size() != own || scores.size() != own || gradients.size() != own || losses.size() != own || named->ids.size() != own) return {};
    for (std::size_t k = 0; k < own; ++k) {
      rows.push_back({positions[k], named->ids[k], static_cast<int>(r), static_cast<uint64_t>(inputs[k]), static_cast<uint64_t>(scores[k]),
                      static_cast<uint64_t>(gradients[k]), losses[k]});
    }
  }
  std::ranges::stable_sort(rows, {}, &Row::position);
  return rows;
}

/// By parameter: the sum over rows of the hashes of its gradients.
std::vector<uint64_t> tensor_sums(const StepOfRun& step) {
  std::vector<uint64_t> sums;
  for (const StepRecords& rank : step.ranks) {
    const std::vector<int64_t> own = integers(rank, "row_gradients_by_tensor");
    sums.resize(std::max(sums.size(), own.size()), 0);
    for (std::size_t p = 0; p < own.size(); ++p) sums[p] += static_cast<uint64_t>(own[p]);
  }
  return sums;
}

using RowPair = std::pair<Row, Row>;

class StepComparison {
 public:
  StepComparison(const StepOfRun& a, const StepOfRun& b, const ScoreSpec& spec, Compared& compared)
      : a_(a), b_(b), spec_(spec), compared_(compared), world_size_(static_cast<int>(b.ranks.size())) {
    const std::vector<Row> of_a = rows_of(a), of_b = rows_of(b);
    count_a_ = of_a.size();
    count_b_ = of_b.size();
    for (std::size_t k = 0; k < std::min(count_a_, count_b_); ++k) rows_.emplace_back(of_a[k], of_b[k]);
  }

  /// Phase by phase, in the order in which a step goes.
  std::optional<Difference> first() const {
    if (auto found = places()) return found;
    for (const Phase phase : {Phase::samples, Phase::scores, Phase::loss, Phase::local_gradients})
      if (auto found = rows_at(phase)) return found;
    for (const Phase phase : phases_in_order()) {
      if (auto found = alike_at(phase)) return found;
    }
    return std::nullopt;
  }

 private:
  /// `what`: which of a row's hashes differs; `phase`: where in the step that lies.
  Difference at_row(const RowPair& rows, Phase what, Phase phase, const std::string& where,
                    const std::string& before, const std::string& now) const {
    const Row &expected = rows.first, &actual = rows.second;
    Difference found = difference_at(b_, phase, actual.rank, where, DivergenceKind::bits, before, now);
    found.divergence.row = actual.position;
    found.divergence.sample = actual.id;
    found.divergence.sentence.pop_back();
    found.divergence.sentence += fmt::format(", in row {} (sample {}), which rank {} had", actual.position, actual.id,
                                             actual.rank);
    const auto is_further = [&](const RowPair& each) { return each.first.position > expected.position && differ(each, what); };
    if (const auto more = std::ranges::count_if(rows_, is_further); more > 0) {
      found.divergence.sentence += fmt::format("; so do {}", counted(more, "further row"));
    }
    found.divergence.sentence += ".";
    return found;
  }

  static bool differ(const RowPair& rows, Phase phase) {
    const auto& [x, y] = rows;
    if (phase == Phase::samples) return x.inputs != y.inputs;
    if (phase == Phase::scores) return x.scores != y.scores;
    if (phase == Phase::loss) return !same_bits(x.loss, y.loss);
    return x.gradient != y.gradient;
  }

  /// The same samples at the same places of the batch.
  std::optional<Difference> places() const {
    for (const auto& [x, y] : rows_) {
      if (x.position == y.position && x.id == y.id) continue;
      Difference found = difference_at(b_, Phase::samples, y.rank, "samples", DivergenceKind::order,
                                       fmt::format("sample {} in row {}", x.id, x.position),
                                       fmt::format("sample {} in row {}", y.id, y.position));
      found.divergence.row = y.position;
      found.divergence.sample = y.id;
      return found;
    }
    if (count_a_ == count_b_) return std::nullopt;
    return difference_at(b_, Phase::samples, kRankUnknown, "samples", DivergenceKind::missing,
                         counted(static_cast<int64_t>(count_a_), "row"), counted(static_cast<int64_t>(count_b_), "row"));
  }

  std::optional<Difference> rows_at(Phase phase) const {
    if (!rows_.empty()) compared_.add(*kind_of(phase), b_.step);
    const auto found = std::ranges::find_if(rows_, [&](const RowPair& each) { return differ(each, phase); });
    if (found == rows_.end()) return std::nullopt;
    const auto& [x, y] = *found;
    const auto at = [&](Phase place, const std::string& where, uint64_t before, uint64_t now) {
      return at_row(*found, phase, place, where, "hash " + hex16(before), "hash " + hex16(now));
    };
    // What a row is made from comes before its scores and before those of the rows whose candidate it is.
    if (phase == Phase::samples) return at(Phase::scores, "inputs", x.inputs, y.inputs);
    if (phase == Phase::loss)
      return at_row(*found, phase, phase, "row_losses", exact_number(x.loss), exact_number(y.loss));
    if (phase == Phase::local_gradients) return at(phase, tensor_of_rows(), x.gradient, y.gradient);
    const std::string record(spec_.record), column(spec_.column);
    const int64_t expected = columns_of(a_.ranks[static_cast<std::size_t>(x.rank)], record),
                  actual = columns_of(b_.ranks[static_cast<std::size_t>(y.rank)], record);
    if (expected < 0 || actual < 0 || expected == actual) return at(phase, record, x.scores, y.scores);
    const auto text = [&](int64_t columns) { return counted(columns - spec_.own_columns, column) + " a row"; };
    Difference told = at_row(*found, phase, phase, record, text(expected), text(actual));
    told.divergence.kind = DivergenceKind::missing;
    return told;
  }

  /// The first parameter of which rows' gradients differ.
  std::string tensor_of_rows() const {
    const std::vector<uint64_t> sums_a = tensor_sums(a_), sums_b = tensor_sums(b_);
    const std::vector<const Record*> parameters = records_of(b_.ranks[0], Phase::reduced_gradients);
    for (std::size_t p = 0; p < std::min({sums_a.size(), sums_b.size(), parameters.size()}); ++p)
      if (sums_a[p] != sums_b[p]) return parameters[p]->name;
    return "gradient";
  }

  /// What all ranks hold alike, and what rank 0 evaluated: on each rank of B as on rank 0 of A.
  std::optional<Difference> alike_at(Phase phase) const {
    if (phase == Phase::snapshot || is_exact(phase)) return std::nullopt;
    for (const Record* record : records_of(a_.ranks[0], phase)) {
      std::vector<int> wrong;
      const Record* first = nullptr;
      for (int rank = 0; rank < (record->replicated ? world_size_ : 1); ++rank) {
        if (!record->replicated && phase != Phase::evaluation) continue;
        const Record* other = find_record(b_.ranks[static_cast<std::size_t>(rank)], phase, record->name);
        if (!other) continue;  // rank 0 alone writes what is no tensor
        if (const auto kind = kind_of(phase)) compared_.add(*kind, b_.step);
        const bool same =
            record->is_scalar ? same_bits(record->value, other->value) : record->stats.hash == other->stats.hash;
        if (same) continue;
        if (wrong.empty()) first = other;
        wrong.push_back(rank);
      }
      if (wrong.empty()) continue;
      return difference_at(b_, phase, first_or_all(wrong, b_), record->name, DivergenceKind::bits, value_text(*record),
                           value_text(*first));
    }
    return std::nullopt;
  }

  const StepOfRun &a_, &b_;
  const ScoreSpec& spec_;
  Compared& compared_;
  std::vector<RowPair> rows_;
  std::size_t count_a_ = 0, count_b_ = 0;
  int world_size_;
};

/// The first difference at one step, whatever the layouts: rows by their place in the whole batch, with sample, rank and tensor; then
/// what all ranks hold alike, on each rank of B against rank 0 of A. `before` is B's step before and may be null.
OwnFindings exact_finding(const StepOfRun& a, const StepOfRun& b, const StepOfRun* before, const ScoreSpec& scores,
                          Compared& compared) {
  OwnFindings found = own_findings(a, b, before, true, true, &compared);
  const std::optional<Difference> bits = StepComparison(a, b, scores, compared).first();
  if (!bits) return found;
  found.keep_earlier(bits);
  if (Divergence& first = found.difference->divergence; first.phase == bits->divergence.phase && !found.ledger) {
    // At the same place the row is what the rank's own records do not say.
    first.row = bits->divergence.row;
    first.sample = bits->divergence.sample;
  }
  return found;
}

/// Both runs began the step with the same bits, so that its values tell of a known mistake as those of a forced step do. Nothing
/// where either kept them in part: below trace level full.
std::optional<ForcedEvidence> evidence_at(StepPairs& pairs, const CauseInputs& around, const StepRules& rules) {
  const StepOfRun &a = *around.reference, &b = *around.cell;
  if (a.step < 0 || !keeps_gradients(a) || !keeps_gradients(b)) return std::nullopt;
  const std::vector<ForcedValues> no_repeats;
  // A closed form rounds: a factor that is no power of two, each row's own backward pass.
  return evidence_of_step({a, pairs.a().dir(), b, pairs.b().dir(), around.cell_before, no_repeats,
                           state_before(a, around.reference_before), state_before(b, around.cell_before), false, true},
                          rules);
}

}  // namespace

bool both_exact(const RunConfig* reference, const RunConfig* cell) {
  return reference != nullptr && cell != nullptr && reference->arithmetic == Arithmetic::exact &&
         cell->arithmetic == Arithmetic::exact;
}

/// `identical`, `divergent` at the first bit, or `inconclusive` where the traces end at different steps.
static Comparison compare_exact_runs(StepPairs& pairs, const ConfigPair& configs) {
  const StepRules rules = rules_of(pairs.a(), pairs.b(), configs);
  Mechanism result;
  Compared compared;
  while (pairs.next()) {
    OwnFindings found =
        exact_finding(pairs.step_a(), pairs.step_b(), pointer_to(pairs.before_b()), rules.scores(), compared);
    result.compared_steps = pairs.compared();
    if (!found.difference) continue;
    result.facts = compared.facts(result.compared_steps, found.difference->divergence);
    CauseInputs around = inputs_at(pairs, *found.difference);
    around.ledger = std::move(found.ledger);
    around.forced = evidence_at(pairs, around, rules);
    if (auto skipped = pairs.skipped_step(around.difference)) around.difference.divergence = *std::move(skipped);
    return parted_at(std::move(around), pairs, rules, std::move(result));
  }
  result.compared_steps = pairs.compared();
  result.facts = compared.facts(result.compared_steps);
  agree_as_far(pairs, VerdictKind::identical,
               fmt::format("Identical in exact arithmetic: {} of {} agree with those of {} in every bit, row by row",
                           counted(result.compared_steps, "step"), counted(pairs.b().world_size(), "rank"),
                           counted(pairs.a().world_size(), "rank")),
               result);
  return {std::move(result), std::nullopt};
}

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
                           steps, counted(std::ssize(shards), "tensor"), *shards.begin());
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
