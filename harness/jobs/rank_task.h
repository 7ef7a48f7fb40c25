#pragma once
// What one process of a run is told.

#include <string>

#include "harness/trainers/comm/gloo_options.h"

namespace lockstep {

struct RankTask {
  std::string run_dir;         ///< holds run.json; traces, logs and results go here
  int rank = -1;               ///< -1: this process is all ranks of the run (emulated, or one process)
  double command_started = 0;  ///< CLOCK_MONOTONIC seconds; 0: unknown
  /// This process's end of its side channel, a socket of packets: each says in words why it shall leave. -1: none.
  int notices = -1;
  std::string address = "127.0.0.1";  ///< by which ranks on other hosts reach this one
  std::string store = "store";        ///< the file in run_dir, or the TCP store's prefix, by which its ranks meet
  Rendezvous meet = {};
  int local_rank = -1;               ///< its place among the ranks of its host; -1: that of its rank
  std::string heartbeats = "heartbeat";        ///< the file of heartbeats in run_dir that this process maps
  bool watched = false;              ///< lockstep sees it from the same host: it says who hangs, and waits for who computes
};

}  // namespace lockstep
