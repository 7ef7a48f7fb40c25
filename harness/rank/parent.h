#pragma once
// The rank parent: a process that has LibTorch loaded, runs no tensor itself, and forks the ranks of each run
// on request. Free of torch, so that it can be tested with ranks that only pretend.

#include <functional>

#include "harness/rank/rank_main.h"

namespace lockstep {

/// Serves the commands of the connected stream socket (harness/launch/local/protocol.h), which it owns, until it is
/// told to quit or the other end is gone; then kills and reaps every rank and returns the exit status. Each
/// rank is a child that calls `run_rank`, ends with its status, and dies with this process. Must be called
/// while the process has one thread.
int serve_ranks(int socket, const std::function<int(const RankTask&)>& run_rank);

/// The whole `main` of a rank program: reads its arguments and serves, or is the one rank that a run with
/// executed ranks has started it for. `description` is what --version prints.
int rank_program_main(int argc, char** argv, const char* description,
                      const std::function<int(const RankTask&)>& run_rank);

}  // namespace lockstep
