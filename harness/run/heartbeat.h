#pragma once
// What a rank says about its progress without sending a message: one slot a rank in a file of the run's folder. It is written and read, and
// mapped by nobody: a file that is cut short while a run goes on would end whoever has it mapped, and the next report mends it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/run/process_state.h"
#include "harness/run/process_view.h"

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

}  // namespace lockstep
