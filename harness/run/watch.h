#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/plan/config/run_config.h"
#include "harness/run/process_state.h"

// What a rank says about its progress without sending a message: one slot a rank in a file of the run's folder. It is written and read, and
// mapped by nobody: a file that is cut short while a run goes on would end whoever has it mapped, and the next report mends it.

namespace lockstep {

/// Groups whose collectives are counted: what a step exchanges, and its gradients' reductions.
enum class HeartbeatGroup { data, gradients };
inline constexpr std::size_t kHeartbeatGroups = 2;

struct HeartbeatSlot {
  int64_t step = -1;     ///< steps finished; -1: not begun
  uint64_t changes = 0;  ///< raised at every report: a rank whose count stands still makes no progress. Odd while it is written; 0: no report
  char operation[48] = {};  ///< what it is doing: "train", "all_gather loss.candidates", "evaluate"
  std::array<uint64_t, kHeartbeatGroups> entered{};  ///< collectives that it has entered, by HeartbeatGroup
  int64_t resident_bytes = 0;  ///< of its process; 0: not said
  uint64_t shown = 0;          ///< bits of what it shows, plus 1; 0: nothing yet
  int64_t process = 0;         ///< its own, if it says so: of a rank that a command started and lockstep did not; else 0
  uint64_t process_space = 0, process_started = 0;  ///< of that process, as ProcessId has them
  uint64_t unused = 0;
};
static_assert(sizeof(HeartbeatSlot) == 128);

/// A slot's content and its process, as they are taken to another host.
struct HeartbeatNote {
  int64_t step = -1;
  uint64_t changes = 0;
  std::string operation = {};
  std::array<uint64_t, kHeartbeatGroups> entered{};
  int64_t resident_bytes = 0;
  uint64_t shown = 0;
  ProcessState process = {};
  ProcessView::Since times = {};  ///< of its process, since the last change

  template <class Self, class Visit>
  static void members(Self& self, Visit visit) {
    visit("step", self.step);
    visit("changes", self.changes);
    visit("operation", self.operation);
    visit("entered_data", self.entered[0]);
    visit("entered_gradients", self.entered[1]);
    visit("resident", self.resident_bytes);
    visit("shown", self.shown);
    visit("state", self.process.state);
    visit("waits_in", self.process.waits_in);
    visit("ran_s", self.times.ran_s);
    visit("without_core_s", self.times.without_core_s);
    visit("all_without_core_s", self.times.all_without_core_s);
    visit("all_ran_s", self.times.all_ran_s);
  }
};

/// Its name in the run's folder, for ranks that write the file which lockstep reads.
inline constexpr const char* kHeartbeatFile = "heartbeat";

/// The run's folder holds one file `heartbeat` with world_size slots.
class HeartbeatFile {
 public:
  /// Creates (launcher) or opens (ranks, observers) `path`. Throws MachineError.
  static HeartbeatFile create(const std::string& path, int world_size);
  static HeartbeatFile open(const std::string& path, int world_size);
  HeartbeatFile(HeartbeatFile&& other) noexcept;
  HeartbeatFile& operator=(HeartbeatFile&& other) noexcept;
  ~HeartbeatFile();

  /// Called by rank `rank` alone, through one object of its process.
  void report(int rank, int64_t step, const char* operation);
  /// The rank enters the next collective of that group; told with the operation that is reported next.
  void enter(int rank, HeartbeatGroup group);
  void resident(int rank, int64_t bytes);
  /// The newest value of the trainer's metric that comparisons show first.
  void show(int rank, double value);
  /// Which process the rank is.
  void announce(int rank, const ProcessId& process);
  int64_t step(int rank) const { return seen(rank).step; }
  ProcessId process(int rank) const;  ///< number 0: not said
  uint64_t entered(int rank, HeartbeatGroup group) const { return seen(rank).entered[static_cast<std::size_t>(group)]; }
  int64_t resident(int rank) const { return seen(rank).resident_bytes; }
  std::optional<double> shown(int rank) const;
  uint64_t changes(int rank) const { return slot(rank).changes; }
  std::string operation(int rank) const;
  /// All of it.
  HeartbeatNote note(int rank) const;
  /// In the rank's place: of one on another host, which writes another file.
  void take(int rank, const HeartbeatNote& note);
  int world_size() const { return static_cast<int>(own_.size()); }

 private:
  HeartbeatFile(int descriptor, int world_size) : descriptor_(descriptor), own_(static_cast<std::size_t>(world_size)) {}
  HeartbeatSlot& own(int rank);
  HeartbeatSlot slot(int rank) const;  ///< as it stands in the file now; of what is not there any more: that nothing was reported
  HeartbeatSlot seen(int rank) const;  ///< the same, of a moment at which it is not being written
  void write(int rank, int64_t step, const char* operation, uint64_t changes);
  void put(int rank, std::size_t from, std::size_t bytes) const;
  int descriptor_ = -1;
  std::vector<HeartbeatSlot> own_;  ///< by rank: what this object has written, or found
};

// Tells a run that works from one that hangs, and which of its ranks the others wait for. Looks at heartbeats,
// reads no clock.

/// What a rank is at, which decides how long it may stand still.
enum class WatchPhase { load, step, evaluation, save, teardown };
/// By the first word of what it reports: "evaluate" is an evaluation, "all_gather loss.actions" part of a step.
WatchPhase phase_of(const std::string& operation);
const char* to_word(WatchPhase phase);

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

// Watches the processes and the progress of one run: who hangs, who is only slow.

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
  /// `pids` by rank; one, if a process holds all ranks. Ranks' time counts from here; who has ended already stays so.
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
  /// Which rank elsewhere is unheard for longest; rank -1: none.
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
