// Causes of replicas that differ among themselves, from the hashes that every rank keeps, and of what the
// ledger of collectives shows by itself.

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "harness/causes/rules.h"

namespace lockstep::causes {
namespace {

/// The ranks that hold a parameter or buffer otherwise than most do.
struct Drift {
  std::map<std::string, std::set<std::size_t>> odd;  ///< by name
  std::set<std::size_t> ranks;
  std::size_t names = 0;  ///< of all parameters
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
  if (inputs.difference.phase != Phase::parameters || inputs.difference.divergence.kind != "replica" ||
      !inputs.cell) {
    return std::nullopt;
  }
  std::vector<std::map<std::string, uint64_t>> by_rank;
  for (const StepRecords& rank : inputs.cell->ranks) by_rank.push_back(hashes_of(rank));
  Drift drift;
  drift.names = by_rank[0].size();
  const auto alike = [&](const std::string& name) {
    return std::ranges::all_of(by_rank, [&](const auto& rank) { return !rank.contains(name) || rank.at(name) == by_rank[0].at(name); });
  };
  // A mean of the parameters differs where they do: buffers tell only where every parameter agrees.
  const bool of_parameters =
      std::ranges::any_of(by_rank[0], [&](const auto& each) { return !is_buffer(each.first) && !alike(each.first); });
  for (const auto& [name, unused] : by_rank[0]) {
    if (of_parameters && is_buffer(name)) continue;
    std::map<uint64_t, std::set<std::size_t>> holders;
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      const auto found = by_rank[rank].find(name);
      if (found != by_rank[rank].end()) holders[found->second].insert(rank);
    }
    if (holders.size() < 2) continue;
    const auto most = std::max_element(holders.begin(), holders.end(), [](const auto& x, const auto& y) {
      return x.second.size() < y.second.size();
    });
    for (const auto& [hash, ranks] : holders) {
      if (hash == most->first) continue;
      drift.odd[name].insert(ranks.begin(), ranks.end());
      drift.ranks.insert(ranks.begin(), ranks.end());
    }
  }
  return drift.odd.empty() ? std::nullopt : std::optional(drift);
}

std::optional<Cause> initial_weights_differ(const CauseInputs& inputs) {
  const auto drift = drift_of(inputs);
  if (!drift || inputs.difference.divergence.step >= 0) return std::nullopt;
  return made(
      "initial-weights-differ", kExact,
      fmt::format(
          "before the first step rank {} differs from most ranks in {} of {} tensors, {} first",
          fmt::join(drift->ranks, ", "), drift->odd.size(), drift->names, drift->odd.begin()->first));
}

std::optional<Cause> buffers_not_synchronised(const CauseInputs& inputs) {
  const auto drift = drift_of(inputs);
  if (!drift || inputs.difference.divergence.step < 0) return std::nullopt;
  for (const auto& [name, ranks] : drift->odd) {
    if (!is_buffer(name)) return std::nullopt;
  }
  return made("buffers-not-synchronised", kExact,
              fmt::format("{} differs on rank {}, while every parameter agrees", drift->odd.begin()->first,
                          fmt::join(drift->ranks, ", ")));
}

/// Did those of the rank's tensors that are not alike everywhere keep the bits that they had before the step?
bool stood_still(const CauseInputs& inputs, const Drift& drift, std::size_t rank) {
  if (!inputs.cell_before || inputs.cell_before->step != inputs.cell->step - 1) return false;
  const auto now = hashes_of(inputs.cell->ranks[rank]), before = hashes_of(inputs.cell_before->ranks[rank]);
  for (const auto& [name, ranks] : drift.odd) {
    const auto old = before.find(name);
    if (is_buffer(name)) continue;
    if (old == before.end() || now.at(name) != old->second) return false;
  }
  return true;
}

std::optional<Cause> rank_behind(const CauseInputs& inputs) {
  const auto drift = drift_of(inputs);
  if (!drift || drift->odd.size() < 2 || inputs.difference.divergence.step < 0) return std::nullopt;
  std::set<std::size_t> still;
  for (std::size_t rank = 0; rank < inputs.cell->ranks.size(); ++rank) {
    if (stood_still(inputs, *drift, rank)) still.insert(rank);
  }
  if (still.empty() || still.size() == inputs.cell->ranks.size()) return std::nullopt;
  // With two ranks either may be the odd one; with more, those that stood still must be those that differ.
  if (inputs.cell->ranks.size() > 2 && still != drift->ranks) return std::nullopt;
  return made(
      "rank-behind", kExact,
      fmt::format("rank {}: the {} of {} tensors in which ranks differ kept every bit through the step, while those of "
                  "the other ranks moved",
                  fmt::join(still, ", "), drift->odd.size(), drift->names));
}

std::optional<Cause> replica_corrupted(const CauseInputs& inputs) {
  const auto drift = drift_of(inputs);
  if (!drift || inputs.difference.divergence.step < 0 || drift->ranks.size() != 1 || drift->odd.size() != 1) {
    return std::nullopt;
  }
  // Among two ranks one tensor that differs is still one tensor of one rank; a buffer has a cause of its own.
  if (is_buffer(drift->odd.begin()->first)) return std::nullopt;
  // A tensor that stood still was not written at all.
  if (stood_still(inputs, *drift, *drift->ranks.begin())) {
    return made("parameter-not-updated", 0.9,
                fmt::format("{} of rank {} kept every bit through the step", drift->odd.begin()->first,
                            *drift->ranks.begin()));
  }
  return made("replica-corrupted", 0.9,
              fmt::format("{} of rank {} differs, while the {} other tensors of that rank agree",
                          drift->odd.begin()->first, *drift->ranks.begin(), drift->names - 1));
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
              fmt::format("{} of {} tensors differ between ranks; rank {} differs from most ranks",
                          drift->odd.size(), drift->names, fmt::join(drift->ranks, ", ")));
}

constexpr Rule kReplicaRules[] = {initial_weights_differ, buffers_not_synchronised, rank_behind,
                                  replica_corrupted,      clip_by_own_norms,        replicas_drift};

/// The ledger's audit has named the broken rule already.
std::optional<Cause> by_audit(const CauseInputs& inputs) {
  if (!inputs.ledger || inputs.difference.phase != Phase::collective) return std::nullopt;
  return made(inputs.ledger->code.c_str(), kExact, inputs.ledger->evidence);
}

constexpr Rule kLedgerRules[] = {by_audit};

}  // namespace

std::span<const Rule> replica_rules() { return kReplicaRules; }
std::span<const Rule> ledger_rules() { return kLedgerRules; }

}  // namespace lockstep::causes
