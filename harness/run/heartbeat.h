#pragma once
// What a rank says about its progress without sending a message: one slot a rank in a memory-mapped file of
// the run's folder.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "harness/run/process_view.h"

namespace lockstep {

/// Groups whose collectives are counted: what a step exchanges, and its gradients' reductions.
enum class HeartbeatGroup { data, gradients };
inline constexpr std::size_t kHeartbeatGroups = 2;

struct alignas(64) HeartbeatSlot {
  std::atomic<int64_t> step;  ///< steps finished; -1: not begun
  std::atomic<uint64_t>
      changes;         ///< raised at every report: a rank whose count stands still makes no progress
  char operation[48];  ///< what it is doing: "train", "all_gather loss.candidates", "evaluate"
  std::array<std::atomic<uint64_t>, kHeartbeatGroups> entered;  ///< collectives that it has entered, by HeartbeatGroup
  std::atomic<int64_t> resident_bytes;                     ///< of its process; 0: not said
  std::atomic<uint64_t> shown;                             ///< bits of what it shows, plus 1; 0: nothing yet
  std::atomic<int64_t> process;  ///< its own, if it says so: of a rank that a command started and lockstep did not; else 0
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

/// Its name in the run's folder, for ranks that map the file which lockstep reads.
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

  /// Called by rank `rank` alone.
  void report(int rank, int64_t step, const char* operation);
  /// The rank enters the next collective of that group; reported with the operation that follows.
  void enter(int rank, HeartbeatGroup group);
  void resident(int rank, int64_t bytes);
  /// The newest value of the trainer's metric that comparisons show first.
  void show(int rank, double value);
  /// Which process the rank is.
  void announce(int rank, int process);
  int64_t step(int rank) const;
  int process(int rank) const;  ///< 0: not said
  uint64_t entered(int rank, HeartbeatGroup group) const;
  int64_t resident(int rank) const;
  std::optional<double> shown(int rank) const;
  uint64_t changes(int rank) const;
  std::string operation(int rank) const;
  /// All of it.
  HeartbeatNote note(int rank) const;
  /// In the rank's place: of one on another host, which maps another file.
  void take(int rank, const HeartbeatNote& note);
  int world_size() const { return world_size_; }

 private:
  HeartbeatFile(HeartbeatSlot* slots, int world_size) : slots_(slots), world_size_(world_size) {}
  void write(HeartbeatSlot& slot, int64_t step, const char* operation, uint64_t changes);
  HeartbeatSlot* slots_ = nullptr;
  int world_size_ = 0;
};

}  // namespace lockstep
