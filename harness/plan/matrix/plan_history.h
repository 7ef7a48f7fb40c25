#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/matrix.h"

// One run of a plan, and what it is there for.

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

// How much memory a run takes, before it has run.

/// Resident bytes that the processes of a run on one machine have at their peak, together: a model, good to a factor of about 1.5.
double modelled_memory_bytes(const RunConfig& config);

/// What this process and those that it starts may have: the machine's, or the limit of their control group. 0: not to be known.
double machine_memory_bytes();

// Runs that are there for their speed: which, and with what config.

/// The config of a timed run: the first cell's reference at this layout, on real ranks, with no trace, no
/// fault, no schedule and no evaluation but the last.
RunConfig timing_config(const Matrix& matrix, const Layout& layout);

/// "timing 8x3", which its runs have in place of a cell's name.
std::string timing_name(const Layout& layout);

/// `timing.repeats` runs of each timed layout, repeat by repeat, so that a machine that slows down slows all
/// layouts. They are alike in config and told apart by id; none shares a run of a cell.
std::vector<PlannedRun> timing_runs(const Matrix& matrix);

// Cells whose runs go on from another cell's run, perhaps with another number of ranks.

/// The cell that `resume_from` names, by its name or its short one; null if there is none.
const Cell* source_of(const std::vector<Cell>& cells, const std::string& resume_from);

/// By cell: steps before which other cells go on from its run, which keeps its state there.
std::unordered_map<const Cell*, std::vector<int64_t>> steps_gone_on_from(const std::vector<Cell>& cells);

/// What is wrong with how a cell goes on, as key and message.
std::vector<std::pair<std::string, std::string>> resume_problems(const std::vector<Cell>& cells, const Cell& cell);

/// Writes that the run begins by itself.
void begin_by_itself(RunConfig& config);

// What earlier runs in the output folder tell a plan: what need not run again, and how long things take.

/// Sets estimate_s, memory_bytes, reused and why of every run from OUT/runs/<id>/done, and from a simple model where
/// nothing ran yet.
void apply_history(std::vector<PlannedRun>& runs, const std::string& out_dir, const BuildIdentity& identity);

/// Bytes that a run's traces take: whole parameters at snapshots, whole gradients and parameters at forced
/// steps.
double modelled_trace_bytes(const PlannedRun& run);
/// Of modelled_s, what evaluations take.
double modelled_evaluation_s(const PlannedRun& run);

// What stands in the folders of earlier runs: whether their files are whole, and how their configs differ.

/// {"rank-0.trace": {"bytes": …, "xxh3": [of each 64 KiB, …]}, …} of the evidence in a run's folder, as
/// JSON. Throws MachineError if one of them cannot be read.
std::string evidence_json(const std::string& run_folder);

}  // namespace lockstep
