#pragma once
// One rank (or all emulated ranks of a run) inside a process that the parent has forked or started anew.

#include <string>

#include "harness/rank/rank_task.h"

namespace lockstep {

/// Trains, writes rank-<r>.trace and rank-<r>.result.json, returns the process's exit status: 0 finished, 1
/// threw.
int rank_main(const RankTask& task);

/// Makes the data of the run in that folder as far as no tensor is needed: ranks that are forked afterwards share it. Throws what a
/// rank will throw.
void make_ready(const std::string& run_dir);

}  // namespace lockstep
