#pragma once
// One rank (or all emulated ranks of a run) inside a process that the parent has forked or started anew.

#include <string>

#include "harness/comm/gloo_options.h"

namespace lockstep {

struct RankTask {
  std::string run_dir;         ///< holds run.json; traces, logs and results go here
  int rank = -1;               ///< -1: this process is all ranks of the run (emulated, or one process)
  double command_started = 0;  ///< CLOCK_MONOTONIC seconds; 0: unknown
  std::string address = "127.0.0.1";  ///< by which ranks on other hosts reach this one
  std::string store = "store";        ///< the file in run_dir, or the TCP store's prefix, by which its ranks meet
  Rendezvous meet = {};
};

/// Trains, writes rank-<r>.trace and rank-<r>.result.json, returns the process's exit status: 0 finished, 1
/// threw.
int rank_main(const RankTask& task);

}  // namespace lockstep
