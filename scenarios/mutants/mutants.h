#pragma once
// Planted faults, one file each, switched by config: what the detectors are tested with.

#include <memory>
#include <span>
#include <string_view>

#include "harness/plan/run_config.h"
#include "harness/train/fault.h"

namespace lockstep {

struct MutantMaker {
  std::string_view name;
  std::unique_ptr<Mutant> (*make)(const MutantConfig& config);
};

/// All mutants but "none".
std::span<const MutantMaker> mutants();

/// The configured mutant if it acts on this rank, else nothing. Throws std::invalid_argument if there is no
/// such mutant.
std::unique_ptr<Mutant> make_mutant(const RunConfig& config, int rank);

std::unique_ptr<Mutant> make_flip_bit(const MutantConfig& config);
std::unique_ptr<Mutant> make_grad_scale(const MutantConfig& config);
std::unique_ptr<Mutant> make_stall(const MutantConfig& config);
std::unique_ptr<Mutant> make_throw(const MutantConfig& config);
std::unique_ptr<Mutant> make_die(const MutantConfig& config);

}  // namespace lockstep
