#pragma once
// Watches the processes and the progress of one run: who hangs, who is only slow.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/run/heartbeat.h"
#include "harness/run/process_view.h"
#include "harness/run/watch.h"

namespace lockstep {

/// A rank that stands still for longer than it may.
struct Stalled {
  Standstill standstill;
  bool slow = false;    ///< its process computes: it is slow, or in a loop; else it is stopped or asleep
  bool ends = true;     ///< slow: for longer than one that computes may, too
  std::string message;  ///< all of it, in words
};

class HangWatch {
 public:
  HangWatch(int world_size, const Thresholds& thresholds, double now, ProcessViewer viewer = live_view);
  /// `pids` by rank; one, if a process holds all ranks. Ranks' time counts from here.
  void started(const std::vector<int>& pids, double now);
  void ended(int rank) { watch_.ended(rank); }
  /// The rank says which process it is: another than its launcher knew.
  void announced(int rank, int pid, double now);
  /// What its host says of the process of a rank on another one. Time in which nothing is said of it is nobody's standstill.
  void told(int rank, const ProcessState& state, const ProcessView::Since& since, double now);
  /// To be called within next_look_s(). Time in which a process (of any rank, where all wait) was ready and had no core, or, within bounds, waited
  /// for a disk, does not count; of time in which nobody looked, a 25th of the shortest threshold: enough for ranks that woke up
  /// with the watch to make themselves heard. A slow one is told once a threshold, until it has been slow for thresholds.slow_s: what
  /// it did since it was told last decides whether it still computes.
  std::optional<Stalled> look(const HeartbeatFile& heartbeat, double now);
  /// Seconds to the next look: a 50th of the shortest threshold, and to the moment if the threshold of a rank ends before that.
  double next_look_s(double now) const;
  const RunWatch& ranks() const { return watch_; }
  /// The rank the others wait for, stopped processes first; -1: all have ended.
  int behind() const;
  /// The first rank on another host of which nothing is heard any more, and for how long; rank -1: there is none.
  struct Unheard {
    int rank = -1;
    double seconds = 0;
  };
  Unheard unheard(double now) const;
  /// -1: unknown, or on another host.
  int pid_of(int rank) const;
  /// Has any thread of its process had a core, or been ready for one, for most of the time since the rank was heard of or told of last?
  bool computes(int rank, double now) const;

 private:
  struct Process {
    std::unique_ptr<ProcessView> view;  ///< marked when the rank was heard of last
    ToldView* told = nullptr;           ///< it, of a rank on another host
    double marked_at = 0, forgiven_s = 0, told_at = 0, heard_at = 0;
  };
  bool is_stopped(int rank) const;
  void mark(int rank, double now);
  void forgive_missed(double now);
  void forgive_unheard(double before, double now);
  bool was_starved(const Standstill& found, double now);
  bool waits_for_disk(const Standstill& found);
  void name_computing(Standstill& found, double now) const;
  Stalled described(const Standstill& found, double now) const;
  void grant(Stalled& slow, double now);

  Thresholds thresholds_;
  double look_every_s_, looked_at_;
  double disk_s_ = 0, missed_s_ = 0;  ///< that were taken off the standstill for a disk, and for looks that came late
  ProcessViewer viewer_;
  RunWatch watch_;
  std::vector<int> pids_;
  std::vector<Process> processes_;  ///< by rank
};

}  // namespace lockstep
