#pragma once
// How a rank that a launcher has put on another host than lockstep's is heard of there: its heartbeats, over a connection of their own.

#include <memory>
#include <optional>
#include <string>

#include <sys/types.h>

#include "harness/jobs/heartbeat_forward.h"
#include "harness/run/launchers/external/heartbeat_server.h"
#include "harness/run/launchers/external/rendezvous.h"

namespace lockstep {

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
