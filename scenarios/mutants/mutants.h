#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/plan/config/run_config.h"
#include "harness/trainers/core/task.h"
#include "scenarios/mutants/planted.h"

// Planted faults, switched by config: what the detectors are tested with. table.h shows how their tables are
// written.

namespace lockstep {

/// The configured mutants that act on this rank, in the config's order; null if there is none. Throws
/// std::invalid_argument if there is no such mutant.
std::unique_ptr<Mutant> make_mutant(const RunConfig& config, int rank);

struct KeyedFault {
  std::string key;  ///< the config's: "mutant", "second_mutant"
  std::unique_ptr<Mutant> fault;
  bool needs_ranks = false;  ///< with one rank alone it does nothing
};
/// Several faults at once: each gets what the one before returned. None gives null.
std::unique_ptr<Mutant> in_a_row(std::vector<KeyedFault> faults, const RunConfig& run);

/// Keys of those in what make_mutant returned, which may be null, that have acted so far: something came out of them
/// otherwise than it went in, with other bits or another graph behind it.
std::vector<std::string> acted_faults(const Mutant* mutant);

}  // namespace lockstep
