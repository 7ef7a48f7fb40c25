#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/local/protocol.h"
#include "harness/run/watch.h"

// Takes the heartbeats of ranks on this host to lockstep on another one, which cannot see the memory that they are written to.

namespace lockstep {

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
