// The tables' data, for whatever asks harness/plan/matrix which planted bugs there are.

#include <algorithm>

#include "scenarios/mutants/table.h"

namespace lockstep {

std::span<const MutantEntry> mutant_entries() {
  static const std::vector<MutantEntry> all = [] {
    std::vector<MutantRow> rows;
    for (const auto add : kMutantTables) add(rows);
    std::vector<MutantEntry> entries;
    for (const MutantRow& row : rows) entries.push_back(row.entry);
    return entries;
  }();
  return all;
}

const MutantEntry* find_mutant(std::string_view name) {
  const std::span<const MutantEntry> all = mutant_entries();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const MutantEntry& entry) { return entry.name == name; });
  return found != all.end() ? &*found : nullptr;
}

}  // namespace lockstep
