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
  /// What its host says of the process of a rank on another one. Time in which nothing is said of it is nobody's standstill.
  void told(int rank, const ProcessState& state, const ProcessView::Since& since, double now);
  /// Whoever watches was stopped for `seconds`, which no clock of its counts, and the ranks may have been with it: who has reported
  /// nothing since before has its threshold from now on. Once until it reports again: a rank that hangs is named all the same.
  void resumed(double seconds, double now);
  /// To be called within next_look_s(). Nobody is named while a rank's process is gone and its launcher has not said yet how it ended.
  /// Time in which a process (of any rank, where all wait) was ready and had no core, or, within bounds, waited for a disk, does not count; of time in which nobody looked, a 25th of the shortest threshold: enough for ranks that woke up
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
  /// Number -1: unknown, not seen from here, or on another host.
  ProcessId process_of(int rank) const;
  /// Has any thread of its process had a core, or been ready for one, for most of the time since the rank was heard of or told of last?
  bool computes(int rank, double now) const;

 private:
  struct Process {
    std::unique_ptr<ProcessView> view;  ///< marked when the rank was heard of last
    ToldView* told = nullptr;           ///< it, of a rank on another host
    ProcessId id{-1}, said;             ///< as it is numbered here, and as the rank itself has said
    bool unseen = false;                ///< the rank has said which it is, and it is not seen from here
    bool resumed = false;               ///< it has got its threshold anew, and not reported since
    double marked_at = 0, forgiven_s = 0, told_at = 0, heard_at = 0, gone_at = 0;
  };
  bool is_stopped(int rank) const;
  void announced(int rank, const ProcessId& said, double now);
  bool waits_for_word(double now);
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
  bool started_ = false;
  std::vector<Process> processes_;  ///< by rank
};

}  // namespace lockstep
