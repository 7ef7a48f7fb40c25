#pragma once
// What earlier runs in the output folder tell a plan: what need not run again, and how long things take.

#include <string>
#include <vector>

#include "harness/verdict/plan/planned_run.h"

namespace lockstep {

/// Sets estimate_s, memory_bytes, reused and why of every run from OUT/runs/<id>/done, and from a simple model where
/// nothing ran yet.
void apply_history(std::vector<PlannedRun>& runs, const std::string& out_dir, const BuildIdentity& identity);

/// Seconds that a run takes alone on a machine of two cores, if nothing better is known.
double modelled_s(const PlannedRun& run);

/// Bytes that a run's traces take: whole parameters at snapshots, whole gradients and parameters at forced
/// steps.
double modelled_trace_bytes(const PlannedRun& run);
/// Of modelled_s, what evaluations take.
double modelled_evaluation_s(const PlannedRun& run);

}  // namespace lockstep
