#include "harness/verdict/compare/forced/free.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "harness/base/hashing.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/verdict/compare/averages.h"
#include "harness/verdict/compare/exact.h"
#include "harness/verdict/compare/step_pairs.h"
#include "harness/verdict/evidence/replicas.h"
#include "harness/verdict/trace/record.h"

namespace lockstep {

void keep_earlier(std::optional<Difference>& first, const std::optional<Difference>& other) {
  if (other && (!first || earlier(*other, *first))) first = other;
}

namespace {

void remember_rate(std::map<int64_t, double>& rates, const StepOfRun& step) {
  for (const Record& record : step.ranks[0].records) {
    if (record.phase == Phase::control && record.name == "learning_rate") rates[step.step] = record.value;
  }
}

}  // namespace

CauseInputs inputs_at(const StepPairs& pairs, const Difference& difference) {
  CauseInputs inputs;
  inputs.difference = difference;
  inputs.reference = pairs.step_a();
  inputs.cell = pairs.step_b();
  inputs.reference_before = pairs.before_a();
  inputs.cell_before = pairs.before_b();
  inputs.reference_samples = pairs.samples_a();
  inputs.cell_samples = pairs.samples_b();
  inputs.cell_generators = pairs.generators_b();
  return inputs;
}

void read_on(CauseInputs& inputs, StepPairs& pairs) {
  const bool of_rates = inputs.difference.phase == Phase::control && inputs.difference.divergence.where == "learning_rate";
  if (of_rates && inputs.reference && inputs.cell) {
    remember_rate(inputs.reference_rates, *inputs.reference);
    remember_rate(inputs.cell_rates, *inputs.cell);
    // The pairs may stand behind the place where the runs part.
    remember_rate(inputs.reference_rates, pairs.step_a());
    remember_rate(inputs.cell_rates, pairs.step_b());
  }
  for (bool first = true; (first || of_rates) && pairs.next(); first = false) {
    if (first) {
      inputs.reference_samples = pairs.samples_a();
      inputs.cell_samples = pairs.samples_b();
    }
    if (!of_rates) continue;
    remember_rate(inputs.reference_rates, pairs.step_a());
    remember_rate(inputs.cell_rates, pairs.step_b());
  }
}

/// Replica drift as a difference.
static Difference drift_difference(const ReplicaDrift& drift, int64_t step, int world_size) {
  Difference found;
  found.phase = drift.phase;
  found.relative = std::numeric_limits<double>::infinity();
  found.divergence = {step,      name_of(drift.phase), drift.rank,   drift.name,
                      DivergenceKind::replica, drift.expected,       drift.actual, ""};
  found.divergence.sentence =
      fmt::format("They first differ at step {}, {}, {}: replicas differ from each other: {}.", step,
                  name_of(drift.phase), rank_text(drift.rank, world_size), drift.sentence);
  return found;
}

namespace {

/// Values of one tensor that are not finite, over all ranks.
struct NotFinite {
  uint64_t count = 0;
  std::vector<int> ranks;  ///< that hold them

  int place(int world_size) const {
    if (world_size > 1 && std::ssize(ranks) == world_size) return kAllRanks;
    return ranks.size() == 1 ? ranks.front() : kRankUnknown;
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
  const int world_size = static_cast<int>(b.ranks.size());
  std::optional<Difference> first;
  const std::optional<double> expected = mean_loss(a), actual = mean_loss(b);
  if (expected && actual && std::isfinite(*expected) != std::isfinite(*actual)) {
    NotFinite losses;
    for (std::size_t rank = 0; rank < b.ranks.size(); ++rank) {
      if (!std::isfinite(find_record(b.ranks[rank], Phase::loss, "loss")->value)) losses.ranks.push_back(static_cast<int>(rank));
    }
    first = difference_at(a.step, Phase::loss, losses.place(world_size), "loss (mean over ranks)", DivergenceKind::value, exact_number(*expected),
                          exact_number(*actual), world_size);
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
      keep_earlier(first, difference_at(a.step, phase, other.place(world_size), record->name, DivergenceKind::value, not_finite_text(own),
                                        not_finite_text(other), world_size));
      break;
    }
  }
  return first;
}

namespace {

/// Weights before the first step are drawn or loaded: no layout changes them.
std::optional<Difference> initial_difference(const StepOfRun& a, const StepOfRun& b, bool one_program) {
  for (const Record* record : records_of(a.ranks[0], Phase::parameters)) {
    const Record* other = find_record(b.ranks[0], Phase::parameters, record->name);
    if (!other || is_in_shards(*record, *other) || (!one_program && record->shape != other->shape) || other->stats.hash == record->stats.hash) continue;
    const auto text = [](const Record& each) {
      return fmt::format("hash {}, norm {}", hex16(each.stats.hash), exact_number(each.stats.norm));
    };
    return difference_at(a.step, Phase::parameters, kAllRanks, record->name, DivergenceKind::bits, text(*record), text(*other),
                         static_cast<int>(b.ranks.size()));
  }
  return std::nullopt;
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
  return difference_at(a.step, Phase::optimizer_state, kAllRanks, "updates", DivergenceKind::value, exact_number(*expected), exact_number(*actual),
                       static_cast<int>(b.ranks.size()));
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
    if (record->is_scalar || record->name.starts_with("buffer/")) continue;
    const Record* own = find_record(b.ranks[0], record->phase, record->name);
    if (own && is_in_shards(*record, *own)) continue;
    const auto expected = whole_tensor(*record);
    const NamedTensor *old_a = find_tensor(from_a->tensors, record->name), *old_b = find_tensor(from_b->tensors, record->name);
    const auto actual = own ? whole_tensor(*own) : std::nullopt;
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
  const int world_size = static_cast<int>(cell.ranks.size());
  if (const auto ledger = audit_ledger(cell, {before, &reference, one_program, reference_before})) {
    found.keep_earlier(ledger_difference(*ledger, cell.step, world_size), ledger);
  }
  const auto drift = replica_drift(cell, &reference);
  const bool joins = drift && !one_program && comes_of_gradients(drift->phase) && joins_updates(reference, reference_before, cell, before);
  if (drift && !joins && !replica_drift(reference)) found.keep_earlier(drift_difference(*drift, cell.step, world_size));
  return found;
}

namespace {

void keep_state(std::map<int64_t, KnownState>& states, const StepOfRun& reference) {
  if (KnownState kept = snapshot_of(reference.ranks[0])) states.emplace(reference.step, std::move(kept));
}

}  // namespace

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
      free.found->reference_samples = pairs.samples_a();
      free.found->cell_samples = pairs.samples_b();
      if (free.found->difference.divergence.where == "learning_rate") read_on(*free.found, pairs);
      break;
    }
  }
  if (free.bits) {
    free.bits->reference_samples = pairs.samples_a();
    free.bits->cell_samples = pairs.samples_b();
  }
  free.ends = pairs.ends();
  free.missing_end = pairs.missing_end();
  free.gaps = pairs.gaps();
  return free;
}

}  // namespace lockstep
