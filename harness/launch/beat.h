#pragma once
// What a rank says about its progress without sending a message: one slot a rank in a memory-mapped file of
// the run's folder.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "harness/launch/process_view.h"

namespace lockstep {

/// Groups whose collectives are counted: what a step exchanges, and its gradients' reductions.
enum class BeatGroup { data, gradients };
inline constexpr std::size_t kBeatGroups = 2;

struct alignas(64) BeatSlot {
  std::atomic<int64_t> step;  ///< steps finished; -1: not begun
  std::atomic<uint64_t>
      changes;         ///< raised at every report: a rank whose count stands still makes no progress
  char operation[48];  ///< what it is doing: "train", "all_gather loss.candidates", "evaluate"
  std::array<std::atomic<uint64_t>, kBeatGroups> entered;  ///< collectives that it has entered, by BeatGroup
  std::atomic<int64_t> resident_bytes;                     ///< of its process; 0: not said
  std::atomic<uint64_t> shown;                             ///< bits of what it shows, plus 1; 0: nothing yet
};
static_assert(sizeof(BeatSlot) == 128);

/// A slot's content and its process, as they are taken to another host.
struct BeatNote {
  int64_t step = -1;
  uint64_t changes = 0;
  std::string operation = {};
  std::array<uint64_t, kBeatGroups> entered{};
  int64_t resident_bytes = 0;
  uint64_t shown = 0;
  ProcessState process = {};
  ProcessView::Since times = {};  ///< of its process, since the last change
};

/// Its name in the run's folder, for ranks that map the file which lockstep reads.
inline constexpr const char* kBeatFile = "beat";

/// The run's folder holds one file `beat` with world_size slots.
class BeatFile {
 public:
  /// Creates (launcher) or opens (ranks, observers) `path`. Throws MachineError.
  static BeatFile create(const std::string& path, int world_size);
  static BeatFile open(const std::string& path, int world_size);
  BeatFile(BeatFile&& other) noexcept;
  BeatFile& operator=(BeatFile&& other) noexcept;
  ~BeatFile();

  /// Called by rank `rank` alone.
  void report(int rank, int64_t step, const char* operation);
  /// The rank enters the next collective of that group; reported with the operation that follows.
  void enter(int rank, BeatGroup group);
  void resident(int rank, int64_t bytes);
  /// The newest value of the trainer's metric that comparisons show first.
  void show(int rank, double value);
  int64_t step(int rank) const;
  uint64_t entered(int rank, BeatGroup group) const;
  int64_t resident(int rank) const;
  std::optional<double> shown(int rank) const;
  uint64_t changes(int rank) const;
  std::string operation(int rank) const;
  /// All of it.
  BeatNote note(int rank) const;
  /// In the rank's place: of one on another host, which maps another file.
  void take(int rank, const BeatNote& note);
  int world_size() const { return world_size_; }

 private:
  BeatFile(BeatSlot* slots, int world_size) : slots_(slots), world_size_(world_size) {}
  void write(BeatSlot& slot, int64_t step, const char* operation, uint64_t changes);
  BeatSlot* slots_ = nullptr;
  int world_size_ = 0;
};

}  // namespace lockstep
