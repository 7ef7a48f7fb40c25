#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "harness/jobs/rank_task.h"

// The rank parent: a process that has LibTorch loaded, runs no tensor itself, and forks the ranks of each run
// on request. Free of torch, so that it can be tested with ranks that only pretend.

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

// How a rank leaves when it is told that a peer is gone or hangs. A thread waits on the side channel, since the rank itself
// may wait in a collective that will never end, and that no other thread can take it out of.

class AbortListener {
 public:
  /// `channel`: RankTask::notices, or -1: nobody will say anything. On the first packet the thread waits `grace_s` for the
  /// rank to end by itself, then calls `leave` with what it was told, and ends the process with status 1.
  AbortListener(int channel, double grace_s, std::function<void(const std::string& why)> leave);
  /// Ends the thread; the process goes on.
  ~AbortListener();
  AbortListener(const AbortListener&) = delete;
  AbortListener& operator=(const AbortListener&) = delete;

  /// What was told so far; waits `wait_s` for something. Empty: nothing.
  std::string told(double wait_s = 0);
  /// The rank is about to say how it ended: from now on the thread does not. Does not return where the thread has begun to.
  void end_by_itself();

 private:
  void listen();
  void heed(const std::string& why);

  const int channel_;
  const double grace_s_;
  const std::function<void(const std::string& why)> leave_;
  int wake_ = -1;  ///< an eventfd: the rank ends by itself
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string why_;
  bool ends_by_itself_ = false, leaving_ = false;
  std::thread thread_;
};

}  // namespace lockstep
