#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "harness/base/text.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/forced/shards.h"
#include "harness/judge/compare/layouts.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/record.h"

// Causes of replicas that differ among themselves, from the hashes that every rank keeps, and of what the
// ledger of collectives shows by itself.

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

// Causes in tensors of which ranks hold parts: which of them move, whose norm is taken, how wide they were drawn.
namespace {

// --- gradient norm ---

/// Squares of the reduced gradient's norm: of tensors of which ranks hold parts, of those that every rank holds, and of rank r's own.
struct Squares {
  double sharded = 0, replicated = 0;
  std::vector<double> own;       ///< by rank, of its parts alone
  std::size_t holders = 1;       ///< ranks that hold one whole together
};

std::optional<Squares> squares_of(const CauseInputs& inputs) {
  if (!inputs.forced || !inputs.cell) return std::nullopt;
  Squares squares;
  squares.own.resize(inputs.cell->ranks.size(), 0);
  std::set<std::vector<int64_t>> places;
  for (const NamedTensor& gradient : inputs.forced->cell.gradients) {
    const double size = norm(gradient.values);
    bool in_parts = false;
    for (std::size_t rank = 0; rank < squares.own.size(); ++rank) {
      const Record* part = find_part(*inputs.cell, rank, Phase::reduced_gradients, gradient.name);
      if (!part) continue;
      in_parts = true;
      places.insert(part->placement->offset);
      if (part->has_stats) squares.own[rank] += part->stats.norm * part->stats.norm;
    }
    (in_parts ? squares.sharded : squares.replicated) += size * size;
    if (in_parts) squares.holders = std::max(squares.holders, places.size());
    places.clear();
  }
  return squares.sharded > 0 ? std::optional(squares) : std::nullopt;
}

std::vector<double> recorded_norms(const StepOfRun& step) {
  std::vector<double> norms;
  for (const StepRecords& rank : step.ranks) {
    for (const Record* record : records_of(rank, Phase::gradient_norm)) {
      if (record->is_scalar && record->name == "gradient_norm") norms.push_back(record->value);
    }
  }
  return norms;
}

bool close_to(double a, double b) { return std::abs(a - b) <= 1e-5 * std::abs(b); }

std::optional<Cause> replicated_counted_in_norm(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::gradient_norm) return std::nullopt;
  const auto squares = squares_of(inputs);
  const auto norms = inputs.cell ? recorded_norms(*inputs.cell) : std::vector<double>{};
  if (!squares || norms.empty() || squares->holders < 2 || squares->replicated == 0) return std::nullopt;
  const auto holders = static_cast<double>(squares->holders);
  const double wrong = std::sqrt(squares->sharded + holders * squares->replicated);
  if (!std::ranges::all_of(norms, [&](double norm) { return close_to(norm, wrong); })) return std::nullopt;
  return made("replicated-counted-in-norm", kExact,
              fmt::format("norm {}: its square is {} of tensors in parts and {} times {} of those that each of {} ranks holds; the norm is {}", short_number(norms[0]),
                          short_number(squares->sharded), squares->holders, short_number(squares->replicated), squares->holders,
                          short_number(std::sqrt(squares->sharded + squares->replicated))));
}

std::optional<Cause> norm_of_own_shard(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::gradient_norm) return std::nullopt;
  const auto squares = squares_of(inputs);
  const auto norms = inputs.cell ? recorded_norms(*inputs.cell) : std::vector<double>{};
  if (!squares || norms.empty() || squares->holders < 2) return std::nullopt;
  for (const double replicated : {squares->replicated, 0.0}) {
    bool fits = true;
    for (std::size_t rank = 0; rank < norms.size() && fits; ++rank) {
      const double own = std::sqrt(squares->own[std::min(rank, squares->own.size() - 1)] + replicated);
      fits = close_to(norms[rank], own) || (norms.size() < squares->own.size() && close_to(norms[rank], std::sqrt(squares->own[0] + replicated)));
    }
    if (!fits) continue;
    return made("norm-of-own-shard", kExact,
                fmt::format("each rank's norm is that of its own parts: {:.4g}; the whole gradient's is {}", fmt::join(norms, ", "),
                            short_number(std::sqrt(squares->sharded + squares->replicated))));
  }
  return std::nullopt;
}

/// The norm of a whole gradient that was added up over ranks and not divided.
std::optional<Cause> norm_by_ranks(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::gradient_norm || !inputs.forced || !inputs.forced->cell.gradient_norm) return std::nullopt;
  const double whole = whole_norm(inputs.forced->cell.gradients), recorded = *inputs.forced->cell.gradient_norm;
  if (!(whole > 0) || !inputs.cell) return std::nullopt;
  std::set<double> sizes = {static_cast<double>(world_size_of(inputs)), static_cast<double>(inputs.cell->ranks.size())};
  if (inputs.cell->declared) {
    for (const auto& [name, ranks] : inputs.cell->declared->groups) sizes.insert(static_cast<double>(ranks.size()));
  }
  for (const double ranks : sizes) {
    if (ranks < 2) continue;
    if (close_to(recorded, ranks * whole)) {
      return made("norm-of-sum", kExact, fmt::format("norm {}: {} times that of the reduced gradient, as of the sum over {} ranks", short_number(recorded), ranks, ranks));
    }
    if (close_to(recorded, std::sqrt(ranks) * whole)) {
      return made("clip-twice", 0.9,
                  fmt::format("norm {}: the square root of {} times that of the reduced gradient, as if its squares were added up over {} ranks again",
                              short_number(recorded), ranks, ranks));
    }
  }
  return std::nullopt;
}

/// Gradients clipped by a norm of parts, where the norm itself was not recorded or is right.
std::optional<Cause> clipped_by_norm_of_parts(const CauseInputs& inputs) {
  const Phase phase = inputs.difference.phase;
  if ((phase != Phase::applied_gradients && phase != Phase::parameters) || inputs.cell_facts.clip_norm <= 0) return std::nullopt;
  const auto squares = squares_of(inputs);
  if (!squares || squares->holders < 2) return std::nullopt;
  const double all = static_cast<double>(squares->holders) * squares->replicated;
  const std::pair<const char*, double> norms[] = {{"replicated-counted-in-norm", std::sqrt(squares->sharded + all)},
                                                  {"norm-of-own-shard", std::sqrt(squares->own[0] + squares->replicated)},
                                                  {"norm-of-own-shard", std::sqrt(squares->own[0])}};
  const double right = std::sqrt(squares->sharded + squares->replicated);
  for (const auto& [code, norm] : norms) {
    if (close_to(norm, right) || !clipped_by(inputs, norm)) continue;
    return made(code, 0.95, fmt::format("gradients were clipped to {} by the norm {}, where the whole gradient's is {}", inputs.cell_facts.clip_norm, short_number(norm), short_number(right)));
  }
  return std::nullopt;
}

constexpr Rule kShardNormRules[] = {replicated_counted_in_norm, norm_of_own_shard, norm_by_ranks};

// --- update ---

std::optional<Cause> shard_not_updated(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::parameters || inputs.difference.divergence.step < 0 || !inputs.cell) return std::nullopt;
  const BeforeUpdate before{inputs.forced ? inputs.forced->state.get() : nullptr, pointer_to(inputs.cell_before),
                            inputs.forced ? &inputs.forced->cell.parameters : nullptr, inputs.forced ? inputs.forced->reference_state.get() : nullptr,
                            inputs.forced ? &inputs.forced->reference.parameters : nullptr};
  std::set<std::size_t> ranks;
  std::set<std::string> names;
  for (std::size_t rank = 0; rank < inputs.cell->parts.size(); ++rank) {
    for (const Record& part : inputs.cell->parts[rank]) {
      if (part.phase != Phase::parameters || !shard_stood_still(*inputs.cell, before, rank, part.name)) continue;
      ranks.insert(rank);
      names.insert(part.name);
    }
  }
  if (names.empty() || ranks.size() == inputs.cell->parts.size()) return std::nullopt;
  if (!names.contains(inputs.difference.divergence.where)) return std::nullopt;
  return made("shard-not-updated", kExact,
              fmt::format("the part of {} that rank {} holds did not change in the update, although its gradient is not 0; the other ranks' parts moved",
                          fmt::join(names, ", "), fmt::join(ranks, ", ")));
}

std::optional<Cause> update_of_a_shard(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::parameters || inputs.difference.divergence.kind != DivergenceKind::update || !inputs.forced || !inputs.cell) return std::nullopt;
  const ShardUpdates found = updates_by_shard(*inputs.forced, *inputs.cell);
  if (found.tensors.empty()) return std::nullopt;
  return made("update-of-a-shard", found.exact ? kExact : kFits,
              fmt::format("{} moved as an optimizer of whole matrices would move each rank's part by itself: {}", fmt::join(found.tensors, ", "), found.how));
}

constexpr Rule kShardUpdateRules[] = {shard_not_updated, update_of_a_shard, clipped_by_norm_of_parts};
constexpr Rule kShardClipRules[] = {clipped_by_norm_of_parts};

// --- before the first step ---

/// Sizes that a width may be divided by mistake.
std::set<std::size_t> group_sizes(const CauseInputs& inputs) {
  std::set<std::size_t> sizes = {inputs.cell->ranks.size()};
  if (inputs.cell->declared) {
    for (const auto& [name, ranks] : inputs.cell->declared->groups) sizes.insert(ranks.size());
  }
  std::map<std::string, std::set<std::vector<int64_t>>> places;
  for (const auto& rank : inputs.cell->parts) {
    for (const Record& part : rank) places[part.name].insert(part.placement->offset);
  }
  for (const auto& [name, offsets] : places) sizes.insert(offsets.size());
  sizes.erase(1);
  return sizes;
}

std::optional<Cause> initial_scale_by_shard(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::parameters || inputs.difference.divergence.step >= 0 || !inputs.cell || !inputs.reference) return std::nullopt;
  if (inputs.difference.divergence.kind == DivergenceKind::replica) return std::nullopt;
  constexpr double kDeviations = 4;
  for (const std::size_t size : group_sizes(inputs)) {
    const double factor = std::sqrt(static_cast<double>(size));
    std::vector<std::string> names;
    bool fits = true, exact = true;
    for (const Record* expected : records_of(inputs.reference->ranks[0], Phase::parameters)) {
      const Record* actual = find_record(inputs.cell->ranks[0], Phase::parameters, expected->name);
      if (!actual || actual->shape != expected->shape || actual->stats.hash == expected->stats.hash) continue;
      if (!actual->has_stats || !expected->has_stats || !(expected->stats.norm > 0)) return std::nullopt;
      const double elements = std::accumulate(expected->shape.begin(), expected->shape.end(), 1.0, std::multiplies<>());
      const double ratio = actual->stats.norm / expected->stats.norm;
      // Of draws of another width the root of the mean square varies by 1 / sqrt(2n); two of them by sqrt(2) of that.
      fits = fits && std::abs(ratio / factor - 1) <= kDeviations / std::sqrt(elements);
      exact = exact && close_to(ratio, factor);
      names.push_back(expected->name);
    }
    if (names.empty() || !fits) continue;
    // Few draws have any width by chance.
    double most = 0;
    for (const std::string& name : names) {
      const Record* record = find_record(inputs.reference->ranks[0], Phase::parameters, name);
      most = std::max(most, std::accumulate(record->shape.begin(), record->shape.end(), 1.0, std::multiplies<>()));
    }
    if (!exact && kDeviations / std::sqrt(most) > 0.5 * (factor - 1)) continue;
    return made("initial-scale-by-shard", exact ? kExact : kFits + 0.1,
                fmt::format("before the first step {} {} {} times as wide as the reference's, the root of {}: the width was taken from a rank's part", fmt::join(names, ", "),
                            names.size() == 1 ? "is" : "are", short_number(factor), size));
  }
  return std::nullopt;
}

/// Ranks begin with weights that are not the reference's, alike or each with its own.
std::optional<Cause> begins_with_other_weights(const CauseInputs& inputs) {
  const Divergence& told = inputs.difference.divergence;
  if (inputs.difference.phase != Phase::parameters || told.step >= 0 || told.kind != DivergenceKind::bits || !inputs.cell || !inputs.reference) return std::nullopt;
  if (is_buffer(told.where) && told.rank >= 0)
    return made("buffers-not-synchronised", kExact,
                fmt::format("{} has another value on rank {} alone before the first step", told.where, told.rank));
  std::size_t all = 0, others = 0, apart = 0;
  for (const Record* expected : records_of(inputs.reference->ranks[0], Phase::parameters)) {
    const Record* actual = find_record(inputs.cell->ranks[0], Phase::parameters, expected->name);
    if (!actual || actual->shape != expected->shape || actual->dtype != expected->dtype) return std::nullopt;
    ++all;
    others += actual->stats.hash != expected->stats.hash;
    apart += std::ranges::any_of(inputs.cell->ranks, [&](const StepRecords& rank) {
      const Record* own = find_record(rank, Phase::parameters, expected->name);
      return own && own->stats.hash != actual->stats.hash;
    });
  }
  return made(
      "initial-weights-differ", kFits,
      fmt::format("before the first step {} of {} tensors are not the reference's, {} first, and the run's ranks {}",
                  others, all, told.where,
                  apart == 0 ? "agree in them" : fmt::format("differ from one another in {}", apart)));
}

constexpr Rule kInitialRules[] = {initial_scale_by_shard, begins_with_other_weights};

}  // namespace

std::span<const Rule> shard_rules(Phase phase) {
  if (phase == Phase::gradient_norm) return kShardNormRules;
  if (phase == Phase::parameters) return kShardUpdateRules;
  if (phase == Phase::applied_gradients) return kShardClipRules;
  return {};
}

std::span<const Rule> initial_rules() { return kInitialRules; }

}  // namespace lockstep::causes
