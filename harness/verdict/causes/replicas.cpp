// Causes of replicas that differ among themselves, from the hashes that every rank keeps, and of what the
// ledger of collectives shows by itself.

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "harness/base/word_list.h"
#include "harness/verdict/causes/rules.h"
#include "harness/verdict/compare/layouts.h"
#include "harness/verdict/compare/step_records.h"
#include "harness/verdict/compare/holders.h"

namespace lockstep::causes {
namespace {

/// Parameters and buffers that ranks hold otherwise than each other.
struct Drift {
  std::map<std::string, Holders> held;  ///< by name
  std::set<std::size_t> ranks;          ///< that hold something else than the reference; see `known`
  bool known = true;                    ///< false: of some tensor nothing tells which ranks hold the right value
  std::size_t names = 0;                ///< of all parameters

  /// "rank 2 differs from the reference", or which ranks differ from which.
  std::string who() const {
    const std::vector<int> odd(ranks.begin(), ranks.end());
    if (known) return fmt::format("{} {} from the reference", ranks_text(odd), odd.size() == 1 ? "differs" : "differ");
    std::vector<std::string> groups;
    for (const std::vector<int>& group : held.begin()->second.groups) groups.push_back(ranks_text(group));
    return fmt::format("{}: {} have different values; it is unknown which are right", held.begin()->first, join_words(groups));
  }
};

std::map<std::string, uint64_t> hashes_of(const StepRecords& rank) {
  std::map<std::string, uint64_t> hashes;
  for (const Record& record : rank.records) {
    if (record.phase == Phase::parameters && !record.is_scalar) hashes[record.name] = record.stats.hash;
  }
  return hashes;
}

bool is_buffer(const std::string& name) { return name.starts_with("buffer/"); }

std::optional<Drift> drift_of(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::parameters || inputs.difference.divergence.kind != DivergenceKind::replica ||
      !inputs.cell) {
    return std::nullopt;
  }
  Drift drift;
  for (const Record& record : inputs.cell->ranks[0].records) {
    if (record.phase != Phase::parameters || record.is_scalar) continue;
    ++drift.names;
    Holders holders = holders_of(*inputs.cell, record, pointer_to(inputs.reference));
    if (!holders.parted()) continue;
    const Divergence& told = inputs.difference.divergence;
    if (holders.right < 0 && holders.groups.size() == 2 && told.rank >= 0 && told.where == record.name) {
      holders.right = std::ranges::find(holders.groups[0], told.rank) == holders.groups[0].end() ? 0 : 1;
    }
    drift.held[record.name] = std::move(holders);
  }
  // A mean of the parameters differs where they do: buffers tell only where every parameter agrees.
  if (std::ranges::any_of(drift.held, [](const auto& each) { return !is_buffer(each.first); }))
    std::erase_if(drift.held, [](const auto& each) { return is_buffer(each.first); });
  for (const auto& [name, holders] : drift.held) {
    drift.known = drift.known && holders.right >= 0;
    for (const int rank : holders.odd()) drift.ranks.insert(static_cast<std::size_t>(rank));
  }
  return drift.held.empty() ? std::nullopt : std::optional(drift);
}

/// Do ranks differ only in tensors whose placement says that every rank holds the same?
bool all_labelled_replicated(const CauseInputs& inputs, const Drift& drift) {
  return std::ranges::all_of(drift.held, [&](const auto& each) {
    const Record* record = find_record(inputs.cell->ranks[0], Phase::parameters, each.first);
    return record && record->placement && !record->placement->shard;
  });
}

/// The ranks that stood still, see below.
std::vector<int> still_ranks(const CauseInputs& inputs, const Drift& drift);

std::optional<Cause> labelled_replicated_but_differs(const CauseInputs& inputs) {
  const auto drift = drift_of(inputs);
  if (!drift || !all_labelled_replicated(inputs, *drift)) return std::nullopt;
  const bool initial = inputs.difference.divergence.step < 0;
  // A rank that stood still, or was clipped by another norm, is told by other rules.
  if (!initial && (!still_ranks(inputs, *drift).empty() || inputs.cell_facts.clip_norm > 0)) return std::nullopt;
  return made("labelled-replicated-but-differs", initial ? kExact : 0.96,
              fmt::format("{} of {} tensors, {} first, are placed as replicated and differ between ranks{}: {}", drift->held.size(), drift->names, drift->held.begin()->first,
                          initial && drift->held.size() < drift->names ? " before the first step, and the others do not: they were made after the wrapper that would have made them alike"
                                                                       : "",
                          drift->who()));
}

std::optional<Cause> initial_weights_differ(const CauseInputs& inputs) {
  const auto drift = drift_of(inputs);
  if (!drift || inputs.difference.divergence.step >= 0 || all_labelled_replicated(inputs, *drift)) return std::nullopt;
  return made("initial-weights-differ", kExact,
              fmt::format("before the first step ranks differ in {} of {} tensors, {} first: {}{}", drift->held.size(), drift->names,
                          drift->held.begin()->first, drift->who(),
                          drift->held.size() < drift->names ? "; the others agree: these were made after the wrapper that broadcasts" : ""));
}

/// A buffer that stands still in the reference, and on all ranks of the run but one; or moves there.
std::optional<Cause> buffer_of_one_rank(const CauseInputs& inputs) {
  const Divergence& told = inputs.difference.divergence;
  if (inputs.difference.phase != Phase::parameters || told.rank < 0 || !is_buffer(told.where)) return std::nullopt;
  return made("buffers-not-synchronised", kExact, fmt::format("{} {} on rank {} alone", told.where, told.actual == kNoChange ? "stands still" : "changes", told.rank));
}

/// A parameter that no gradient moves: an average of others.
std::optional<Cause> average_stands_still(const CauseInputs& inputs) {
  const Divergence& told = inputs.difference.divergence;
  if (inputs.difference.phase != Phase::parameters || told.actual != kNoChange || is_buffer(told.where)) return std::nullopt;
  return made("parameter-not-updated", kFits, fmt::format("{} has no gradient, moves in the reference's step and stands still on {}", told.where,
                                                          told.rank < 0 ? std::string("every rank") : fmt::format("rank {}", told.rank)));
}

std::optional<Cause> buffers_not_synchronised(const CauseInputs& inputs) {
  const auto drift = drift_of(inputs);
  if (!drift || inputs.difference.divergence.step < 0) return std::nullopt;
  for (const auto& [name, holders] : drift->held) {
    if (!is_buffer(name)) return std::nullopt;
  }
  return made("buffers-not-synchronised", kExact,
              fmt::format("{} differs between ranks, while every parameter agrees: {}", drift->held.begin()->first, drift->who()));
}

/// Did those of the rank's tensors that are not alike everywhere keep the bits that they had before the step?
bool stood_still(const CauseInputs& inputs, const Drift& drift, std::size_t rank) {
  if (!inputs.cell_before || inputs.cell_before->step != inputs.cell->step - 1) return false;
  const auto now = hashes_of(inputs.cell->ranks[rank]), before = hashes_of(inputs.cell_before->ranks[rank]);
  for (const auto& [name, holders] : drift.held) {
    const auto old = before.find(name);
    if (is_buffer(name)) continue;
    if (old == before.end() || now.at(name) != old->second) return false;
  }
  return true;
}

/// The ranks that stood still while the others moved and hold one value; empty if there are none.
std::vector<int> still_ranks(const CauseInputs& inputs, const Drift& drift) {
  std::vector<int> still;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    if (stood_still(inputs, drift, rank)) still.push_back(static_cast<int>(rank));
  }
  if (still.empty() || still.size() == inputs.cell->ranks.size()) return {};
  for (const auto& [name, holders] : drift.held) {
    if (holders.groups.size() != 2 || std::ranges::find(holders.groups, still) == holders.groups.end()) return {};
  }
  return still;
}

std::optional<Cause> rank_behind(const CauseInputs& inputs) {
  const auto drift = drift_of(inputs);
  if (!drift || drift->held.size() < 2 || inputs.difference.divergence.step < 0) return std::nullopt;
  const std::vector<int> still = still_ranks(inputs, *drift);
  if (still.empty()) return std::nullopt;
  return made(
      "rank-behind", kExact,
      fmt::format("{}: the {} of {} tensors in which ranks differ did not change in the step, while those of "
                  "the other ranks moved",
                  ranks_text(still), drift->held.size(), drift->names));
}

std::optional<Cause> replica_corrupted(const CauseInputs& inputs) {
  const auto drift = drift_of(inputs);
  if (!drift || inputs.difference.divergence.step < 0 || drift->held.size() != 1) return std::nullopt;
  // A buffer has a cause of its own.
  const std::string& name = drift->held.begin()->first;
  if (is_buffer(name)) return std::nullopt;
  // A tensor that stood still was not written at all.
  if (const std::vector<int> still = still_ranks(inputs, *drift); still.size() == 1) {
    return made("parameter-not-updated", 0.9, fmt::format("{} of rank {} did not change in the step", name, still.front()));
  }
  if (!drift->known || drift->ranks.size() != 1) return std::nullopt;
  return made("replica-corrupted", 0.9,
              fmt::format("{} of rank {} differs, while the {} other tensors of that rank agree", name, *drift->ranks.begin(),
                          drift->names - 1));
}

std::optional<Cause> clip_by_own_norms(const CauseInputs& inputs) {
  const auto drift = drift_of(inputs);
  if (!drift || inputs.cell_facts.clip_norm <= 0) return std::nullopt;
  std::map<double, int> norms;
  for (const StepRecords& rank : inputs.cell->ranks) {
    for (const Record& record : rank.records) {
      if (record.phase == Phase::gradient_norm && record.is_scalar) ++norms[record.value];
    }
  }
  if (norms.size() < 2) return std::nullopt;
  return made("clip-on-local-norm", 0.9,
              fmt::format("gradients are clipped to {}, and ranks use {} different norms",
                          inputs.cell_facts.clip_norm, norms.size()));
}

std::optional<Cause> replicas_drift(const CauseInputs& inputs) {
  const auto drift = drift_of(inputs);
  if (!drift) return std::nullopt;
  // In exact arithmetic no forced step tells by which norm each rank has clipped.
  const bool exact = inputs.cell_config != nullptr && inputs.cell_config->arithmetic == Arithmetic::exact;
  if (exact && inputs.cell_facts.clip_norm > 0) return std::nullopt;
  return made("replicas-drift", kGeneral,
              fmt::format("{} of {} tensors differ between ranks: {}", drift->held.size(), drift->names, drift->who()));
}

/// Statistics of BatchNorm that stand still in the reference, as in a frozen or evaluated model, and that every rank of the run moves to values of its
/// own: its features are normalised by its own rows.
std::optional<Cause> statistics_of_own_rows(const CauseInputs& inputs) {
  if (is_exact(inputs.difference.phase) || !inputs.reference || !inputs.cell || !inputs.reference_before || !inputs.cell_before || inputs.cell->ranks.size() < 2) return std::nullopt;
  const StepOfRun &a = *inputs.reference, &before_a = *inputs.reference_before, &b = *inputs.cell, &before_b = *inputs.cell_before;
  if (before_a.step != a.step - 1 || before_b.step != b.step - 1 || before_b.ranks.size() != b.ranks.size()) return std::nullopt;
  std::vector<std::string> names;
  for (const Record* record : records_of(a.ranks[0], Phase::parameters)) {
    if (!is_buffer(record->name) || !(record->name.ends_with("running_mean") || record->name.ends_with("running_var"))) continue;
    const Record* old = find_record(before_a.ranks[0], Phase::parameters, record->name);
    if (!old || old->stats.hash != record->stats.hash) return std::nullopt;
    std::set<uint64_t> own, began;
    for (std::size_t rank = 0; rank < b.ranks.size(); ++rank) {
      const Record *was = find_record(before_b.ranks[rank], Phase::parameters, record->name), *is = find_record(b.ranks[rank], Phase::parameters, record->name);
      if (!was || !is || was->stats.hash == is->stats.hash) return std::nullopt;
      own.insert(is->stats.hash);
      began.insert(was->stats.hash);
    }
    if (own.size() != b.ranks.size() || began != std::set<uint64_t>{old->stats.hash}) return std::nullopt;
    names.push_back(record->name);
  }
  if (names.empty()) return std::nullopt;
  return made("batch-norm-local", kFits,
              fmt::format("{} {} in the reference and move on each of {} ranks to values of its own, from equal ones: each normalises by the statistics of its own rows",
                          fmt::join(names, ", "), names.size() == 1 ? "stands still" : "stand still", b.ranks.size()));
}

constexpr Rule kBufferRules[] = {statistics_of_own_rows, average_stands_still};

constexpr Rule kReplicaRules[] = {labelled_replicated_but_differs, initial_weights_differ, buffer_of_one_rank, buffers_not_synchronised, rank_behind,
                                  replica_corrupted,      clip_by_own_norms,        replicas_drift};

/// The ledger's audit has named the broken rule already.
std::optional<Cause> by_audit(const CauseInputs& inputs) {
  if (!inputs.ledger || inputs.difference.phase != Phase::collective || inputs.ledger->code == "unexplained") return std::nullopt;
  return made(inputs.ledger->code.c_str(), kExact, inputs.ledger->evidence);
}

constexpr Rule kLedgerRules[] = {by_audit};

}  // namespace

std::span<const Rule> replica_rules() { return kReplicaRules; }
std::span<const Rule> buffer_rules() { return kBufferRules; }
std::span<const Rule> ledger_rules() { return kLedgerRules; }

}  // namespace lockstep::causes
