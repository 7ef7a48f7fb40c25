#pragma once
// The rank parent: a process that has LibTorch loaded, runs no tensor itself, and forks the ranks of each run
// on request. Free of torch, so that it can be tested with ranks that only pretend.

#include <functional>
#include <string>

#include <sys/types.h>

#include "harness/jobs/rank_task.h"

namespace lockstep {

/// What a rank program does.
struct RankProgram {
  /// One rank, or all of a run: returns the exit status. It begins with SIGTERM and SIGUSR1 held back, until it has handlers
  /// for them or calls `release_stop_signals`.
  std::function<int(const RankTask&)> run;
  /// Called before the ranks of a run are forked, which share what it has made. It runs no tensor, and nothing that it throws
  /// escapes: a rank will find the same. May be empty.
  std::function<void(const std::string& run_dir)> make_ready = {};
};

/// Serves the commands of the connected stream socket (harness/run/launchers/local/protocol.h), which it owns, until it is
/// told to quit or the other end is gone; then kills and reaps every rank and returns the exit status. Each
/// rank is a child that calls `run_rank`, ends with its status, and dies with this process. Must be called
/// while the process has one thread. SIGTERM and SIGUSR1 to this process are told to the other end, and do no more.
int serve_ranks(int socket, const RankProgram& program);

/// SIGTERM and SIGUSR1 end this rank from now on, unless it has handlers; also those that came since it was forked.
void release_stop_signals();

/// Forks one rank with its log as output; it dies with this process. `tracer`: who may take its stacks beside this process; -1: nobody.
/// Returns its process, or -1 with errno.
pid_t fork_guarded(const RankTask& task, const std::function<int(const RankTask&)>& run_rank, pid_t tracer = -1);

/// The rank's exit status. Nothing that it throws escapes.
int run_guarded(const std::function<int(const RankTask&)>& run_rank, const RankTask& task);

/// Where a rank's end of its side channel stands, over an exec too.
inline constexpr int kNotices = 3;

/// The option by which a forked process that begins anew is told what it is: --rank R FOLDER SECONDS ADDRESS Heartbeats [LOCAL]: be rank R (-1:
/// all of them) of the run in FOLDER; the command began at SECONDS; others reach it at ADDRESS; Heartbeats is its file of heartbeats, LOCAL its
/// place among the ranks of its host.
inline constexpr const char* kRankOption = "--rank";

}  // namespace lockstep
