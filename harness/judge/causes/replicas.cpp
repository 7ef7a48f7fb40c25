#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/base/text.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/forced/update.h"
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

std::optional<Drift> drift_of(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::parameters || inputs.difference.divergence.kind != DivergenceKind::replica ||
      !inputs.cell)
    return std::nullopt;
  Drift drift;
  for (const Record& record : inputs.cell->ranks[0].records) {
    if (record.phase != Phase::parameters || record.is_scalar) continue;
    ++drift.names;
    Holders holders = holders_of(*inputs.cell, record, pointer_to(inputs.reference));
    if (!holders.parted()) continue;
    const Divergence& it = inputs.difference.divergence;
    if (holders.right < 0 && holders.groups.size() == 2 && it.rank >= 0 && it.where == record.name)
      holders.right = std::ranges::find(holders.groups[0], it.rank) == holders.groups[0].end() ? 0 : 1;
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

Answer labelled_replicated_but_differs(const CauseInputs& inputs, const Drift& drift) {
  if (!all_labelled_replicated(inputs, drift)) return {};
  const bool initial = inputs.difference.divergence.step < 0;
  // A rank that stood still, or was clipped by another norm, is told by other rules.
  if (!initial && (!still_ranks(inputs, drift).empty() || inputs.cell_facts.clip_norm > 0)) return {};
  return told(initial ? kExact : 0.96,
              "{} of {} tensors, {} first, are placed as replicated and differ between ranks{}: {}",
              drift.held.size(), drift.names, drift.held.begin()->first,
              initial && drift.held.size() < drift.names
                  ? " before the first step, and the others do not: they were made after the wrapper that would have made "
                    "them alike"
                  : "",
              drift.who());
}

Answer initial_weights_differ(const CauseInputs& inputs, const Drift& drift) {
  if (inputs.difference.divergence.step >= 0 || all_labelled_replicated(inputs, drift)) return {};
  return told("before the first step ranks differ in {} of {} tensors, {} first: {}{}", drift.held.size(), drift.names,
              drift.held.begin()->first, drift.who(),
              drift.held.size() < drift.names ? "; the others agree: these were made after the wrapper that broadcasts"
                                              : "");
}

/// A buffer that stands still in the reference, and on all ranks of the run but one; or moves there.
Answer buffer_of_one_rank(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  if (it.rank < 0 || !is_buffer(it.where)) return {};
  return told(kExact, "{} {} on rank {} alone", it.where, it.actual == kNoChange ? "stands still" : "changes", it.rank);
}

Answer buffers_not_synchronised(const CauseInputs& inputs, const Drift& drift) {
  if (inputs.difference.divergence.step < 0) return {};
  for (const auto& [name, holders] : drift.held) {
    if (!is_buffer(name)) return {};
  }
  return told("{} differs between ranks, while every parameter agrees: {}", drift.held.begin()->first, drift.who());
}

/// Did those of the rank's tensors that are not alike everywhere keep the bits that they had before the step?
bool stood_still(const CauseInputs& inputs, const Drift& drift, std::size_t rank) {
  if (!inputs.cell_before || inputs.cell_before->step != inputs.cell->step - 1) return false;
  for (const auto& [name, holders] : drift.held) {
    const Record *now = find_record(inputs.cell->ranks[rank], Phase::parameters, name),
                 *old = find_record(inputs.cell_before->ranks[rank], Phase::parameters, name);
    if (!is_buffer(name) && (!now || !old || now->stats.hash != old->stats.hash)) return false;
  }
  return true;
}

/// The ranks that stood still while the others moved and hold one value; empty if there are none.
std::vector<int> still_ranks(const CauseInputs& inputs, const Drift& drift) {
  const auto is_still = [&](std::size_t rank) { return stood_still(inputs, drift, rank); };
  const auto still = ranks_where<int>(inputs.cell->ranks.size(), is_still);
  if (still.empty() || still.size() == inputs.cell->ranks.size()) return {};
  for (const auto& [name, holders] : drift.held) {
    if (holders.groups.size() != 2 || std::ranges::find(holders.groups, still) == holders.groups.end()) return {};
  }
  return still;
}

Answer rank_behind(const CauseInputs& inputs, const Drift& drift) {
  if (drift.held.size() < 2 || inputs.difference.divergence.step < 0) return {};
  const std::vector<int> still = still_ranks(inputs, drift);
  if (still.empty()) return {};
  return told("{}: the {} of {} tensors in which ranks differ did not change in the step, while those of the other "
              "ranks moved",
              ranks_text(still), drift.held.size(), drift.names);
}

template <bool still_alone>
Answer one_tensor_differs(const CauseInputs& inputs, const Drift& drift) {
  if (inputs.difference.divergence.step < 0 || drift.held.size() != 1) return {};
  // A buffer has a cause of its own.
  const std::string& name = drift.held.begin()->first;
  if (is_buffer(name)) return {};
  // A tensor that stood still was not written at all.
  const std::vector<int> still = still_ranks(inputs, drift);
  if (still_alone != (still.size() == 1) || (!still_alone && (!drift.known || drift.ranks.size() != 1))) return {};
  return told(still_alone ? fmt::format("{} of rank {} did not change in the step", name, still.front())
                          : fmt::format("{} of rank {} differs, while the {} other tensors of that rank agree", name,
                                        *drift.ranks.begin(), drift.names - 1));
}

Answer replicas_drift(const CauseInputs& inputs, const Drift& drift) {
  // In exact arithmetic no forced step tells by which norm each rank has clipped.
  const bool exact = inputs.cell_config != nullptr && inputs.cell_config->arithmetic == Arithmetic::exact;
  if (exact && inputs.cell_facts.clip_norm > 0) return {};
  return told("{} of {} tensors differ between ranks: {}", drift.held.size(), drift.names, drift.who());
}

/// The ledger's audit has named the broken rule already.
Answer by_audit(const CauseInputs& inputs) {
  if (!inputs.ledger || inputs.ledger->code == "unexplained") return {};
  // What the call has made of gradients says more than the call.
  const double strength = inputs.ledger->code == "wrong-op" ? kStrong : kExact;
  return made(inputs.ledger->code.c_str(), strength, inputs.ledger->evidence);
}

// Causes in tensors of which ranks hold parts: which of them move, whose norm is taken, how wide they were drawn.
// --- update ---

Answer shard_not_updated(const CauseInputs& inputs) {
  if (inputs.difference.divergence.step < 0) return {};
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
  if (names.empty() || ranks.size() == inputs.cell->parts.size()) return {};
  if (!names.contains(inputs.difference.divergence.where)) return {};
  return told("the part of {} that rank {} holds did not change in the update, although its gradient is not 0; the "
              "other ranks' parts moved",
              fmt::join(names, ", "), fmt::join(ranks, ", "));
}

Answer update_of_a_shard(const CauseInputs& inputs) {
  if (inputs.difference.divergence.kind != DivergenceKind::update) return {};
  const ShardUpdates found = updates_by_shard(*inputs.forced, *inputs.cell);
  if (found.tensors.empty()) return {};
  return told(found.exact ? kExact : kFits,
              "{} moved as an optimizer of whole matrices would move each rank's part by itself: {}",
              fmt::join(found.tensors, ", "), found.how);
}

// --- before the first step ---

/// Sizes that a width may be divided by mistake.
std::set<std::size_t> sizes_of_parts(const CauseInputs& inputs) {
  std::set<std::size_t> sizes;
  for (const auto& [size, words] : group_sizes(inputs)) sizes.insert(size);
  std::map<std::string, std::set<std::vector<int64_t>>> places;
  for (const auto& rank : inputs.cell->parts)
    for (const Record& part : rank) places[part.name].insert(part.placement->offset);
  for (const auto& [name, offsets] : places) sizes.insert(offsets.size());
  sizes.erase(1);
  return sizes;
}

Answer initial_scale_by_shard(const CauseInputs& inputs) {
  if (inputs.difference.divergence.step >= 0) return {};
  if (inputs.difference.divergence.kind == DivergenceKind::replica) return {};
  constexpr double kDeviations = 4;
  for (const std::size_t size : sizes_of_parts(inputs)) {
    const double factor = std::sqrt(static_cast<double>(size));
    std::vector<std::string> names;
    bool fits = true, exact = true;
    double most = 0;  // elements of one
    for (const Record* expected : records_of(inputs.reference->ranks[0], Phase::parameters)) {
      const Record* actual = find_record(inputs.cell->ranks[0], Phase::parameters, expected->name);
      if (!actual || actual->shape != expected->shape || actual->stats.hash == expected->stats.hash) continue;
      if (!actual->has_stats || !expected->has_stats || !(expected->stats.norm > 0)) return {};
      const auto elements = static_cast<double>(elements_of(expected->shape));
      most = std::max(most, elements);
      const double ratio = actual->stats.norm / expected->stats.norm;
      // Of draws of another width the root of the mean square varies by 1 / sqrt(2n); two of them by sqrt(2) of that.
      fits = fits && std::abs(ratio / factor - 1) <= kDeviations / std::sqrt(elements);
      exact = exact && std::abs(ratio / factor - 1) <= 1e-5;
      names.push_back(expected->name);
    }
    if (names.empty() || !fits) continue;
    // Few draws have any width by chance.
    if (!exact && kDeviations / std::sqrt(most) > 0.5 * (factor - 1)) continue;
    return told(exact ? kExact : kFits + 0.1,
                "before the first step {} {} {} times as wide as the reference's, the root of {}: the width was taken "
                "from a rank's part",
                fmt::join(names, ", "), names.size() == 1 ? "is" : "are", short_number(factor), size);
  }
  return {};
}

/// Ranks begin with weights that are not the reference's, alike or each with its own.
Answer begins_with_other_weights(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  if (it.step >= 0 || it.kind != DivergenceKind::bits) return {};
  if (is_buffer(it.where) && it.rank >= 0)
    return made("buffers-not-synchronised", kExact, "{} has another value on rank {} alone before the first step",
                it.where, it.rank);
  std::size_t all = 0, others = 0, apart = 0;
  for (const Record* expected : records_of(inputs.reference->ranks[0], Phase::parameters)) {
    const Record* actual = find_record(inputs.cell->ranks[0], Phase::parameters, expected->name);
    if (!actual || actual->shape != expected->shape || actual->dtype != expected->dtype) return {};
    ++all;
    others += actual->stats.hash != expected->stats.hash;
    apart += std::ranges::any_of(inputs.cell->ranks, [&](const StepRecords& rank) {
      const Record* own = find_record(rank, Phase::parameters, expected->name);
      return own && own->stats.hash != actual->stats.hash;
    });
  }
  return made("initial-weights-differ", kFits,
              "before the first step {} of {} tensors are not the reference's, {} first, and the run's ranks {}",
              others, all, it.where,
              apart == 0 ? "agree in them" : fmt::format("differ from one another in {}", apart));
}

/// Weights that are those of another step of the reference: a checkpoint of that step, or none at all was loaded.
Answer resumed_with_weights_of_another_step(const CauseInputs& inputs) {
  constexpr std::string_view kSame = ", and 0 from those of step ";
  const Divergence& it = inputs.difference.divergence;
  const std::size_t at = it.actual.find(kSame);
  if (it.where != "weights" || at == std::string::npos) return {};
  return told(kExact, "the run begins step {} with the weights of step {}", it.step,
              it.actual.substr(at + kSame.size()));
}

Answer replica_shows_in_scores(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.empty()) return {};
  const WrongScores wrong = wrong_in(rows, inputs.forced->score_band);
  if (wrong.by_rank.size() != 1 || wrong.of_rank.size() < 2) return {};
  const auto drift = replica_drift(*inputs.cell, pointer_to(inputs.reference));
  const auto [rank, count] = *wrong.by_rank.begin();
  // Its scores at the reference's parameters show that it is this rank that holds something else.
  const auto is_alone = [&, own = std::vector<int>{static_cast<int>(rank)}](const auto& group) { return group == own; };
  if (!drift || drift->phase != Phase::parameters || std::ranges::none_of(drift->holders.groups, is_alone)) return {};
  if (is_buffer(drift->name) || 2 * count < wrong.of_rank.at(rank)) return {};
  return told("only rank {} has different {} ({} of its {}), and its {} differs from the other ranks'", rank,
              score_name(inputs), count, wrong.of_rank.at(rank), drift->name);
}

template <auto rule>
constexpr Rule of_drift = given<drift_of, rule>;

}  // namespace

Answer replica_stood_still(const CauseInputs& inputs) { return of_drift<one_tensor_differs<true>>(inputs); }

std::span<const Hypothesis> replica_hypotheses() {
  static constexpr Hypothesis kTable[] = {
      {"labelled-replicated-but-differs", kInParameters, kReplicas, kExact, of_drift<labelled_replicated_but_differs>},
      {"initial-weights-differ", kInParameters, kReplicas, kExact, of_drift<initial_weights_differ>},
      {"initial-weights-differ buffers-not-synchronised", kInParameters, kRuns, kFits, begins_with_other_weights},
      {"initial-scale-by-shard", kInParameters, kRuns, kExact, initial_scale_by_shard},
      {"buffers-not-synchronised", kInParameters, kReplicas, kExact, buffer_of_one_rank},
      {"buffers-not-synchronised", kInParameters, kReplicas, kExact, of_drift<buffers_not_synchronised>},
      {"rank-behind", kInParameters, kReplicas, kExact, of_drift<rank_behind>},
      {"replica-corrupted", kInParameters, kReplicas, kStrong, of_drift<one_tensor_differs<false>>},
      {"replicas-drift", kInParameters, kReplicas, kGeneral, of_drift<replicas_drift>},
      {"", in(Phase::collective), kNothing, kExact, by_audit},
      {"shard-not-updated", kInParameters, kRuns, kExact, shard_not_updated},
      {"update-of-a-shard", kInParameters, kRuns | kValues, kExact, update_of_a_shard},
      {"initial-weights-differ", kInSnapshot, kNothing, kExact, resumed_with_weights_of_another_step},
      {"replica-corrupted", kInScores, kScores | kRanks, 0.95, replica_shows_in_scores},
  };
  return kTable;
}

}  // namespace lockstep::causes
