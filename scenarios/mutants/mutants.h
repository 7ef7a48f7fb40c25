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

/// The configured mutants that act on this rank, as a chain in the config's order; nothing if there is none.
/// Throws std::invalid_argument if there is no such mutant.
std::unique_ptr<Mutant> make_mutant(const RunConfig& config, int rank);

/// Several faults at once: each gets what the one before returned. A single one is returned itself; none
/// gives null.
std::unique_ptr<Mutant> make_chain(std::vector<std::unique_ptr<Mutant>> links);

// Whether a planted fault has acted: did anything come out of it otherwise than it went in?

/// What can tell which of the planted faults behind it have acted.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Keys of those that have changed something so far: "mutant", "second_mutant".
  virtual std::vector<std::string> acted() const = 0;
};

/// The same for what make_mutant returned, which may be null.
std::vector<std::string> acted_faults(const Mutant* mutant);

}  // namespace lockstep
