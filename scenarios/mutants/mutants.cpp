#include "scenarios/mutants/mutants.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "scenarios/mutants/table.h"
#include "scenarios/mutants/witness.h"

namespace lockstep {
namespace {

const std::vector<MutantRow>& all_rows() {
  static const std::vector<MutantRow> all = [] {
    std::vector<MutantRow> rows;
    for (const auto add : kMutantTables) add(rows);
    return rows;
  }();
  return all;
}

std::unique_ptr<Mutant> make_one(const Planting& planting, const char* key) {
  const std::string& name = planting.config.name;
  const auto row = std::find_if(all_rows().begin(), all_rows().end(),
                                [&name](const MutantRow& one) { return one.entry.name == name; });
  if (row == all_rows().end()) {
    throw std::invalid_argument("no mutant is called " + name);
  }
  return make_witness(row->make(planting), planting, key);
}

bool acts_on_arithmetic(const std::string& name) {
  const MutantEntry* const entry = find_mutant(name);
  return entry != nullptr && entry->arithmetic;
}

}  // namespace

std::unique_ptr<Mutant> make_mutant(const RunConfig& run, int rank) {
  const std::pair<const char*, const MutantConfig&> configured[] = {{"mutant", run.mutant},
                                                                    {"second_mutant", run.second_mutant}};
  std::vector<std::unique_ptr<Mutant>> links;
  for (const auto& [key, config] : configured) {
    if (config.name == "none" || (run.forced.twin && acts_on_arithmetic(config.name))) {
      continue;
    }
    if (config.rank < 0 || config.rank == rank) {
      links.push_back(make_one({config, run, rank}, key));
    }
  }
  return make_chain(std::move(links));
}

}  // namespace lockstep
