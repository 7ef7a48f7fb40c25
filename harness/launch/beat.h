#pragma once
// What a rank says about its progress without sending a message: one slot a rank in a memory-mapped file of
// the run's folder.

#include <atomic>
#include <cstdint>
#include <string>

namespace lockstep {

struct alignas(64) BeatSlot {
  std::atomic<int64_t> step;  ///< steps finished; -1: not begun
  std::atomic<uint64_t>
      changes;         ///< raised at every report: a rank whose count stands still makes no progress
  char operation[48];  ///< what it is doing: "train", "all_gather loss.candidates", "evaluate"
};
static_assert(sizeof(BeatSlot) == 64);

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
  int64_t step(int rank) const;
  uint64_t changes(int rank) const;
  std::string operation(int rank) const;
  int world_size() const { return world_size_; }

 private:
  BeatFile(BeatSlot* slots, int world_size) : slots_(slots), world_size_(world_size) {}
  BeatSlot* slots_ = nullptr;
  int world_size_ = 0;
};

}  // namespace lockstep
