#pragma once
// Watches the processes and the progress of one run: who hangs, who is only slow.

#include <optional>
#include <string>
#include <vector>

#include "harness/launch/beat.h"
#include "harness/launch/process_state.h"
#include "harness/launch/watch.h"

namespace lockstep {

/// A rank that stands still for longer than it may.
struct Stalled {
  Standstill standstill;
  bool slow = false;    ///< its process computes: it is slow, or in a loop; else it is stopped or asleep
  std::string message;  ///< all of it, in words
};

class HangWatch {
 public:
  HangWatch(int world_size, const Thresholds& thresholds, double now);
  /// `pids` by rank; one, if a process holds all ranks. Ranks' time counts from here.
  void started(const std::vector<int>& pids, double now);
  void ended(int rank) { watch_.ended(rank); }
  /// What its host says of the process of a rank on another one.
  void told(int rank, const ProcessState& state);
  /// To be called every look_every_s(). Time beyond that in which nobody looked counts for no rank, and neither does time in
  /// which a rank's process was ready to run and had no core, or, within bounds, waited for a disk.
  std::optional<Stalled> look(const BeatFile& beat, double now);
  double look_every_s() const { return look_every_s_; }
  const RunWatch& ranks() const { return watch_; }
  /// The rank the others wait for, stopped processes first; -1: all have ended.
  int behind() const;
  /// -1: unknown, or on another host.
  int pid_of(int rank) const;

 private:
  struct Sample {
    bool taken = false;
    ProcessState state;
    double at = 0, silent_s = 0, forgiven_s = 0;
  };
  ProcessState state_of(int rank) const;
  bool was_starved(const Standstill& found, double now);
  bool waits_for_disk(const Standstill& found);
  Stalled described(const Standstill& found, double now) const;

  Thresholds thresholds_;
  double look_every_s_, looked_at_;
  double disk_s_ = 0;  ///< that were taken off the standstill for a disk
  RunWatch watch_;
  std::vector<int> pids_;
  std::vector<ProcessState> elsewhere_;  ///< by rank, of those on other hosts
  std::vector<Sample> samples_;  ///< by rank, of the standstill that goes on
};

}  // namespace lockstep
