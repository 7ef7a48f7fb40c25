#include "harness/compare/forced/free.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "harness/base/counted.h"
#include "harness/base/hex.h"
#include "harness/base/special_values.h"
#include "harness/compare/exact_phases.h"
#include "harness/compare/step_pairs.h"
#include "harness/compare/step_records.h"
#include "harness/evidence/replicas.h"

namespace lockstep {

void keep_earlier(std::optional<Difference>& first, const std::optional<Difference>& other) {
  if (other && (!first || earlier(*other, *first))) first = other;
}

void remember_samples(SampleHistory& history, const StepOfRun& step) {
  std::vector<std::vector<int64_t>>& by_rank = history[step.step];
  by_rank.clear();
  for (const int rank : ranks_with_rows(step)) {
    by_rank.emplace_back();
    for (const Record& record : step.ranks[static_cast<std::size_t>(rank)].records) {
      if (record.phase == Phase::samples) by_rank.back() = record.ids;
    }
  }
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
      remember_samples(inputs.reference_samples, pairs.step_a());
      remember_samples(inputs.cell_samples, pairs.step_b());
    }
    if (!of_rates) continue;
    remember_rate(inputs.reference_rates, pairs.step_a());
    remember_rate(inputs.cell_rates, pairs.step_b());
  }
}

Difference drift_difference(const ReplicaDrift& drift, int64_t step, int world_size) {
  Difference found;
  found.phase = drift.phase;
  found.relative = std::numeric_limits<double>::infinity();
  found.divergence = {step,      name_of(drift.phase), drift.rank,   drift.name,
                      "replica", drift.expected,       drift.actual, ""};
  found.divergence.sentence =
      fmt::format("They part at step {}, {}, {}: replicas differ among themselves: {}.", step,
                  name_of(drift.phase), rank_text(drift.rank, world_size), drift.sentence);
  return found;
}

std::optional<double> mean_loss(const StepOfRun& step) {
  double sum = 0;
  for (const StepRecords& rank : step.ranks) {
    const Record* loss = find_record(rank, Phase::loss, "loss");
    if (!loss) return std::nullopt;
    sum += loss->value;
  }
  return sum / static_cast<double>(step.ranks.size());
}

namespace {

/// Values of one tensor that are not finite, over all ranks.
struct NotFinite {
  uint64_t count = 0;
  std::vector<int> ranks;  ///< that hold them
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
  return found.count == 0 ? "finite values alone" : counted(static_cast<int64_t>(found.count), "value") + " not finite";
}

}  // namespace

std::optional<Difference> number_of_one_run(const StepOfRun& a, const StepOfRun& b) {
  const int world_size = static_cast<int>(b.ranks.size());
  std::optional<Difference> first;
  const std::optional<double> expected = mean_loss(a), actual = mean_loss(b);
  if (expected && actual && std::isfinite(*expected) != std::isfinite(*actual)) {
    first = difference_at(a.step, Phase::loss, -1, "loss (mean over ranks)", "value", exact_number(*expected),
                          exact_number(*actual), world_size);
  }
  for (const Phase phase : {Phase::energies, Phase::local_gradients, Phase::reduced_gradients, Phase::parameters}) {
    for (const Record* record : records_of(a.ranks[0], phase)) {
      if (!record->has_stats) continue;
      const NotFinite own = not_finite(a, phase, record->name), other = not_finite(b, phase, record->name);
      if ((own.count == 0) == (other.count == 0)) continue;
      const int rank = other.ranks.size() == 1 && world_size > 1 ? other.ranks[0] : -1;
      keep_earlier(first, difference_at(a.step, phase, rank, record->name, "value", not_finite_text(own),
                                        not_finite_text(other), world_size));
      break;
    }
  }
  return first;
}

std::optional<Difference> initial_difference(const StepOfRun& a, const StepOfRun& b) {
  for (const Record* record : records_of(a.ranks[0], Phase::parameters)) {
    const Record* other = find_record(b.ranks[0], Phase::parameters, record->name);
    if (!other || other->stats.hash == record->stats.hash) continue;
    if (other->shape != record->shape && !other->replicated) continue;  // a shard
    const auto text = [](const Record& each) {
      return fmt::format("hash {}, norm {}", hex16(each.stats.hash), exact_number(each.stats.norm));
    };
    return difference_at(a.step, Phase::parameters, -1, record->name, "bits", text(*record), text(*other),
                         static_cast<int>(b.ranks.size()));
  }
  return std::nullopt;
}

OwnFindings own_findings(const StepOfRun& reference, const StepOfRun& cell, const StepOfRun* before,
                         bool exact_phases) {
  OwnFindings found;
  const bool same_layout = reference.ranks.size() == cell.ranks.size();
  if (exact_phases) {
    found.difference =
        same_layout ? first_difference(reference, cell, true) : first_exact_difference(reference, cell);
  }
  const int world_size = static_cast<int>(cell.ranks.size());
  if (const auto ledger = audit_ledger(cell, before, &reference)) {
    const Difference as_difference = ledger_difference(*ledger, cell.step, world_size);
    if (!found.difference || earlier(as_difference, *found.difference)) {
      found.difference = as_difference;
      found.ledger = ledger;
    }
  }
  const auto drift = replica_drift(cell);
  if (!drift || replica_drift(reference)) return found;
  const Difference as_difference = drift_difference(*drift, cell.step, world_size);
  if (!found.difference || earlier(as_difference, *found.difference)) return {as_difference, std::nullopt};
  return found;
}

namespace {

void keep_state(std::map<int64_t, Snapshot>& states, const StepOfRun& reference) {
  Snapshot snapshot = snapshot_of(reference.ranks[0]);
  if (!snapshot.tensors.empty()) states.emplace(reference.step, std::move(snapshot));
}

}  // namespace

FreeFindings read_free_runs(const std::string& reference, const std::string& cell) {
  FreeFindings free;
  StepPairs pairs(reference, cell);
  free.compared_bits = pairs.same_layout();
  SampleHistory samples_a, samples_b;
  bool beyond = false;  // The step after a finding is read for its samples and snapshots alone.
  while (pairs.next()) {
    const StepOfRun &a = pairs.step_a(), &b = pairs.step_b();
    remember_samples(samples_a, a);
    remember_samples(samples_b, b);
    keep_state(free.states, a);
    if (!free.found) {
      free.compared = pairs.compared();
      OwnFindings own = own_findings(a, b, pairs.before_b() ? &*pairs.before_b() : nullptr, true);
      if (const auto number = number_of_one_run(a, b); number && (!own.difference || earlier(*number, *own.difference)))
        own = {number, std::nullopt};
      if (const auto initial = a.step < 0 ? initial_difference(a, b) : std::nullopt;
          initial && (!own.difference || earlier(*initial, *own.difference)))
        own = {initial, std::nullopt};
      if (own.difference) {
        free.found = inputs_at(pairs, *own.difference);
        free.found->ledger = own.ledger;
      }
      if (pairs.same_layout() && !free.bits) {
        if (const auto bits = first_difference(a, b)) free.bits = inputs_at(pairs, *bits);
      }
    } else if (!beyond) {
      beyond = true;
      free.found->reference_samples = samples_a;
      free.found->cell_samples = samples_b;
      if (free.found->difference.divergence.where == "learning_rate") read_on(*free.found, pairs);
      break;
    }
  }
  if (!free.found && pairs.missing_step()) {
    free.found.emplace();
    free.found->difference.divergence = *pairs.missing_step();
  }
  if (free.found && !beyond) {
    free.found->reference_samples = samples_a;
    free.found->cell_samples = samples_b;
  }
  if (free.bits) {
    free.bits->reference_samples = samples_a;
    free.bits->cell_samples = samples_b;
  }
  free.ends = pairs.ends();
  return free;
}

}  // namespace lockstep
