#pragma once
// One run of a plan, and what it is there for.

#include <string>
#include <vector>

#include "harness/verdict/config/run_config.h"

namespace lockstep {

enum class RunRole {
  reference,         ///< trains freely; the reference of one or more cells, one seed
  cell,              ///< trains freely; one seed of a cell
  certify,           ///< the real prefix of a cell whose long runs are emulated
  certify_forced,    ///< the prefix's steps again on emulated ranks, at its own snapshots: holds it to a band
  forced_reference,  ///< gradients of the reference at its own snapshots, with the sums of |terms|
  forced_cell,       ///< gradients of the cell at the reference's snapshots
  forced_twin,       ///< as forced_reference or forced_cell, in float64: judges what is meant
  exact_reference,   ///< the first steps of the reference in exact arithmetic
  exact_cell,        ///< the first steps of the cell in exact arithmetic
  timing,            ///< real ranks, alone on the machine, for its speed
};

const char* name_of(RunRole role);

/// A config as it is run: emulated ranks have no transport, so that what carries the real ones leaves them as they are.
RunConfig as_it_runs(RunConfig config);
/// The twin of a forced run: the same in float64, which chooses by its own scores.
RunConfig twin_config(RunConfig forced);

struct PlannedRun {
  std::string id;  ///< folder under OUT/runs: readable, then the first 8 digits of the hash
  RunRole role = RunRole::cell;
  std::string cell;  ///< the cell's name; a reference's own name
  RunConfig config;
  std::string hash;                ///< config_hash(config)
  std::vector<std::string> needs;  ///< ids that must have finished before (snapshots)
  double estimate_s = 0;           ///< expected duration, alone on this machine
  double memory_bytes = 0;         ///< expected peak of its processes, together
  bool exclusive = false;          ///< runs alone, and is never reused
  bool reused = false;
  bool damaged = false;  ///< finished with the same hashes, but its files have changed since
  std::string why;  ///< why it is or is not reused, in words
};

/// Identifies what besides the config decides a run's bits: build, LibTorch, instruction set, data.
struct BuildIdentity {
  std::string build;  ///< hash of the rank program
  std::string libtorch;
  std::string isa;   ///< instruction sets that ATen picks from
  std::string data;  ///< hash of the data files
};

}  // namespace lockstep
