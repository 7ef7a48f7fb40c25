#pragma once
// Planted faults, switched by config: what the detectors are tested with. The tables are table.h's.

#include <memory>
#include <vector>

#include "harness/config/run_config.h"
#include "harness/train/fault.h"

namespace lockstep {

/// The configured mutants that act on this rank, as a chain in the config's order; nothing if there is none.
/// Throws std::invalid_argument if there is no such mutant.
std::unique_ptr<Mutant> make_mutant(const RunConfig& config, int rank);

/// Several at once: what one returns is what the next one gets. One alone is itself, and none is null.
std::unique_ptr<Mutant> make_chain(std::vector<std::unique_ptr<Mutant>> links);

}  // namespace lockstep
