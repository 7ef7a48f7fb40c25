#include "harness/config/mutants.h"

#include <algorithm>
#include <vector>

#include "harness/config/mutant_tables.h"

namespace lockstep {

std::span<const MutantEntry> mutant_entries() {
  static const std::vector<MutantEntry> all = [] {
    std::vector<MutantEntry> both(forward_mutants().begin(), forward_mutants().end());
    both.insert(both.end(), exchange_mutants().begin(), exchange_mutants().end());
    return both;
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
