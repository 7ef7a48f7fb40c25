#pragma once
// Planted faults, switched by config: what the detectors are tested with. table.h shows how their tables are
// written.

#include <memory>
#include <vector>

#include "harness/trainers/core/fault.h"
#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// The configured mutants that act on this rank, as a chain in the config's order; nothing if there is none.
/// Throws std::invalid_argument if there is no such mutant.
std::unique_ptr<Mutant> make_mutant(const RunConfig& config, int rank);

/// Several faults at once: each gets what the one before returned. A single one is returned itself; none
/// gives null.
std::unique_ptr<Mutant> make_chain(std::vector<std::unique_ptr<Mutant>> links);

}  // namespace lockstep
