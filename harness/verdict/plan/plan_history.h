#pragma once

#include <set>
#include <string>
#include <vector>

#include "harness/verdict/plan/planned_run.h"

// What earlier runs in the output folder tell a plan: what need not run again, and how long things take.

namespace lockstep {

/// Sets estimate_s, memory_bytes, reused and why of every run from OUT/runs/<id>/done, and from a simple model where
/// nothing ran yet.
void apply_history(std::vector<PlannedRun>& runs, const std::string& out_dir, const BuildIdentity& identity);

/// Bytes that a run's traces take: whole parameters at snapshots, whole gradients and parameters at forced
/// steps.
double modelled_trace_bytes(const PlannedRun& run);
/// Of modelled_s, what evaluations take.
double modelled_evaluation_s(const PlannedRun& run);

// What stands in the folders of earlier runs: whether their files are whole, and how their configs differ.

/// Files that the judge reads: run.json, traces and results of ranks, what a probe says of itself. A finished run is reused only if they
/// are all as they were.
bool is_evidence(const std::string& file_name);

/// {"rank-0.trace": {"bytes": …, "xxh3": [of each 64 KiB, …]}, …} of the evidence in a run's folder, as
/// JSON. Throws MachineError if one of them cannot be read.
std::string evidence_json(const std::string& run_folder);

/// Reads the evidence whole. The first file that is no longer as `files` (JSON of evidence_json) says, and
/// where: "its rank-3.trace is gone"; empty if all are.
std::string evidence_problem(const std::string& run_folder, const std::string& files);

/// For a run that has no folder: how its config differs from that of the run of the same name, role and seed
/// that has one ("ran here with another config: steps was 100, is 101"); empty if there is none. `present`:
/// the folders under `runs_folder`.
std::string changed_config(const PlannedRun& run, const std::string& runs_folder,
                           const std::set<std::string>& present);

}  // namespace lockstep
