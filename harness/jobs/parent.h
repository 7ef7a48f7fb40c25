#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/local/protocol.h"
#include "harness/run/watch.h"
#include "harness/trainers/comm/gloo_options.h"

// What one process of a run is told.

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

// The rank parent: a process that has LibTorch loaded, runs no tensor itself, and forks the ranks of each run
// on request. Free of torch, so that it can be tested with ranks that only pretend.

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

// Takes the heartbeats of ranks on this host to lockstep on another one, which cannot see the memory that they are written to.

class HeartbeatForward {
 public:
  using Tell = std::function<void(const LauncherEvent& event)>;
  explicit HeartbeatForward(Tell tell) : tell_(std::move(tell)) {}

  /// Makes the file of heartbeats that these ranks map, if it is one of their own. Throws MachineError.
  void prepare(const RankStart& what);
  /// `pids`: of the ranks from what.first on; one, if a process holds all ranks.
  void started(const RankStart& what, const std::vector<int>& pids);
  /// What a rank on another host has reported, for those here that watch its heartbeats.
  void take(const ParentCommand& command);
  /// Nobody is left of it here: what its ranks reported last is told, and the file removed.
  void ended(const std::string& run);
  /// Tells what has changed, and now and then how the processes are.
  void look(double now);
  /// How long, in milliseconds, until the next look is due; -1: there is nothing to look at.
  int patience_ms() const;

 private:
  struct Watched {
    std::string path;
    HeartbeatFile heartbeats;
    int first;
    bool one_process;  ///< that is all ranks
    std::vector<int> pids;
    std::vector<std::unique_ptr<ProcessView>> views;  ///< by rank from `first` on
    std::vector<uint64_t> told;  ///< by rank: the count of changes that was told
    double states_told_at = 0;
  };
  void look(const std::string& run, Watched& watched, double now);

  Tell tell_;
  std::map<std::string, Watched> runs_;
};

// How a rank that a launcher has put on another host than lockstep's is heard of there: its heartbeats, over a connection of their own.

class HeartbeatLine {
 public:
  /// Of the rank `mine` (-1 in `task_rank`: of all ranks, in one process) of the run in `folder`. Connects if lockstep watches from another
  /// host, and again where the connection breaks; where lockstep cannot be reached says so on standard error. Throws MachineError.
  HeartbeatLine(const std::string& folder, const Arrival& mine, int task_rank, int world_size);
  HeartbeatLine(const HeartbeatLine&) = delete;
  HeartbeatLine& operator=(const HeartbeatLine&) = delete;

  /// The file of heartbeats that the rank shall map.
  const std::string& heartbeats() const { return what_.heartbeats; }
  /// Lockstep's process, if it is on this host and watches: it may trace the rank. -1: not.
  pid_t tracer() const { return tracer_; }
  void started(pid_t rank);
  /// Tells what has changed and takes what the others have reported; to be called every patience_ms().
  void look();
  int patience_ms() const;
  /// The rank has ended: tells the last of it.
  void ended();

 private:
  bool connect(double deadline_s, std::string& problem);
  void take();

  RankStart what_;
  Watcher watcher_;
  int task_rank_ = -1;
  double tried_at_ = 0;
  pid_t tracer_ = -1;
  std::unique_ptr<LineSocket> desk_;  ///< none: nobody there to tell
  HeartbeatForward heartbeats_{[this](const LauncherEvent& event) {
    // One that does not read is not waited for.
    if (desk_ != nullptr && desk_->takes_more() && !desk_->send(to_line(event))) desk_.reset();
  }};
};

}  // namespace lockstep
