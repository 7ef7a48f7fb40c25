#pragma once
// Runs one RunConfig with real LibTorch in forked processes, without the launcher: for tests of what ranks
// do.

#include <sys/types.h>

#include <string>
#include <vector>

#include "harness/plan/config/run_config.h"

namespace lockstep {

/// A short synthetic run: 3 ranks of 2 rows, padding, dropout and noise on.
RunConfig mini_config();

/// Forks the ranks of the run in `dir` (one process for emulated ones), whose files are there.
std::vector<pid_t> start_ranks(const std::string& dir, const RunConfig& config);

/// Writes root/id/run.json and the heartbeat file, forks the ranks (one process for emulated ones), waits for
/// them. Returns the run's folder. The caller must not have run a tensor operation. Expects (gtest) that
/// every rank finishes.
std::string mini_run(const std::string& root, const std::string& id, const RunConfig& config);

/// The same, returning the exit status of each process instead of expecting 0.
std::vector<int> mini_run_statuses(const std::string& root, const std::string& id, const RunConfig& config);

}  // namespace lockstep
