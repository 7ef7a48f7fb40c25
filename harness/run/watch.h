#pragma once
// Tells a run that works from one that hangs, and which of its ranks the others wait for. Looks at heartbeats,
// reads no clock.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/run/heartbeat.h"
#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// What a rank is at, which decides how long it may stand still.
enum class WatchPhase { load, step, evaluation, save, teardown };
/// By the first word of what it reports: "evaluate" is an evaluation, "all_gather loss.actions" part of a step.
WatchPhase phase_of(const std::string& operation);
const char* to_word(WatchPhase phase);
/// Does a rank that has reported this take part in saves and loads, where it may work or wait?
bool works_or_waits(WatchPhase phase);
/// An operation in which a rank waits for others; in any other it is others that wait for it.
bool is_collective(const std::string& operation);

/// Longest time without progress, in seconds, of the rank that the others wait for.
struct Thresholds {
  double load_s = 0, step_s = 0, evaluation_s = 0, save_s = 0, teardown_s = 0;
  double slow_s = 0;  ///< of one that computes all the while
  double of(WatchPhase phase) const;
  double shortest_s() const;
};
/// Those of the config; for each that it leaves at 0, `otherwise_s`; of one that computes `slow_s`.
Thresholds thresholds_of(const WatchConfig& config, double otherwise_s, double slow_s);

/// A rank that stands still for longer than it may.
struct Standstill {
  int rank = -1;
  double seconds = 0, threshold_s = 0;
  WatchPhase phase = WatchPhase::step;
  std::string operation;     ///< what it has reported last
  std::string awaited = {};  ///< the collective that others wait in and it has not entered; empty: no such
  std::string group = {};    ///< of that collective: "data", "gradients"
  uint64_t sequence = 0;     ///< its number in that group, from 1
  std::vector<int> waiting = {};
};
/// "no progress for 1.02 s (threshold of a step: 1 s) in 'forward'; ranks 0 and 2 wait in all_reduce grad (data 17), which it
/// has not entered"
std::string in_words(const Standstill& found);

/// Follows the heartbeats of one run; times are seconds of one clock.
class RunWatch {
 public:
  RunWatch(int world_size, double now);

  /// Notes what has changed since the last look, and returns whose heartbeat has.
  std::vector<int> look(const HeartbeatFile& heartbeat, double now);
  /// A rank that has ended is not waited for any more.
  void ended(int rank);
  /// Time in which nobody looked, or in which the rank had no core, is nobody's standstill.
  void forgive(double seconds);
  void forgive(int rank, double seconds);

  /// Seconds for which no rank at the lowest step has reported anything: ranks ahead of it may only wait for
  /// it.
  double standstill_s(double now) const;
  /// The rank the others wait for: one that has not entered the collective that most others wait in; else the lowest
  /// step, then one that is stopped, then one outside a collective, then the one doing something else than the others, then
  /// the one that reported longest ago. -1 if all have ended. `stopped` may be empty.
  int behind(const std::function<bool(int rank)>& stopped = nullptr) const;
  /// A rank that computes, evaluates or reads and has reported nothing for longer than it may; or, where all wait in
  /// collectives and saves and none has reported anything for longer than that, the one behind.
  std::optional<Standstill> standstill(const Thresholds& thresholds, double now,
                                       const std::function<bool(int rank)>& stopped = nullptr) const;
  /// When the first of the ranks that live will have been silent for as long as it may; infinite: all have been already.
  double next_limit(const Thresholds& thresholds, double now) const;
  /// When the next look could find that it has stood still for `limit_s`.
  double deadline(double limit_s) const;

  bool alive(int rank) const { return !ranks_[static_cast<std::size_t>(rank)].ended; }
  /// A rank that has stood still for its threshold may do so for `seconds` more from now on.
  void grant(const Thresholds& thresholds, int rank, double seconds, double now);
  /// Seconds since the rank's last report.
  double silent_s(int rank, double now) const { return now - ranks_[static_cast<std::size_t>(rank)].changed_at; }

 private:
  struct Seen {
    int64_t step = -1;
    uint64_t changes = 0;
    std::string operation;
    std::array<uint64_t, kHeartbeatGroups> entered{};
    double changed_at = 0;
    bool ended = false;
  };
  std::vector<const Seen*> slowest() const;
  int rank_of(const Seen* seen) const { return static_cast<int>(seen - ranks_.data()); }
  bool lacks(const Seen& waiting, const Seen& other) const;
  int most_blamed(const std::function<bool(int rank)>& stopped) const;
  void name_awaited(Standstill& found) const;
  std::vector<Seen> ranks_;
};

}  // namespace lockstep
