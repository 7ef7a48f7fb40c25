#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The flight record of one rank: its last collectives, in a memory-mapped file, so that they can be read when the rank is
// killed, stopped or stuck. What is written there costs no system call.

namespace lockstep::flight {

enum class State : uint32_t { started, completed };

/// One collective of one rank.
struct Entry {
  uint64_t id = 0;        ///< counts all of the rank's collectives, from 0
  std::string group;      ///< "data", "gradients"
  uint64_t sequence = 0;  ///< in that group, from 1
  std::string op;         ///< "all_reduce", "all_gather", "broadcast", "barrier", "reduce_gradients"
  std::string tag;        ///< what for
  std::string dtype;      ///< "float32"
  int root = -1;
  int64_t step = 0;
  std::vector<int64_t> shape;  ///< of what this rank brings; up to 6 dimensions
  int64_t created_ns = 0, completed_ns = 0;  ///< since 1970
  State state = State::started;
  bool operator==(const Entry&) const = default;
};

/// How many of the last entries a ring holds.
inline constexpr std::size_t kEntries = 128;

/// The writer's end; one thread writes at a time.
class Ring {
 public:
  /// Creates `path`. Throws MachineError.
  Ring(const std::string& path, int rank, int world_size);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  /// The rank enters a collective: `entry` without id, times and state. Texts are cut to 15 (group, dtype), 23 (op) and 63
  /// bytes (tag). Returns its id.
  uint64_t enter(const Entry& entry);
  /// It has left it.
  void leave(uint64_t id);

  struct Memory;

 private:
  Memory* memory_ = nullptr;
};

/// A send or a receive between two ranks of a group.
struct Message {
  std::string group;
  bool sends = true;
  int from = 0, to = 0;  ///< numbers in the group: 0 is its first member
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t created_ns = 0;
  State state = State::started;
};

struct Recorded {
  int rank = 0, world_size = 1;
  std::vector<Entry> entries = {};  ///< oldest first
  uint64_t lost = 0;                ///< the record may lack calls with smaller ids than this
  std::map<std::string, std::vector<int>> members = {};  ///< ranks by group, where the record says them
  std::vector<Message> messages = {};                    ///< oldest first
};

/// Of a rank that may write, be stuck or be dead; an entry that is being written is left out. Throws std::runtime_error naming
/// the file if it is missing or is no ring.
Recorded read_ring(const std::string& path);

/// RUN/flight-<rank>.ring
std::string ring_path(const std::string& run_dir, int rank);

// A process's resident memory over its steps, and whether it grows without end.

/// Resident bytes by step, thinned so that a run of any length keeps at most 512 of them, evenly spaced.
class MemorySeries {
 public:
  void add(int64_t step, int64_t bytes);
  const std::vector<int64_t>& steps() const { return steps_; }
  const std::vector<double>& bytes() const { return bytes_; }

 private:
  int64_t stride_ = 1, seen_ = 0;
  std::vector<int64_t> steps_;
  std::vector<double> bytes_;
};

/// A growth that goes on.
struct Leak {
  double bytes_a_step = 0;  ///< the median of the slopes between all pairs of points (Theil and Sen)
  double z = 0;             ///< of Mann and Kendall's test against no trend
  double grown_bytes = 0;   ///< over the steps that were looked at
};

/// Leaves out the first fifth, in which memory takes shape. A leak is a trend with z above 4 whose slope, over the steps, adds
/// up to more than 2 % of the memory and more than a MiB, and that is there in the first and in the second half alike. Nothing
/// is said of fewer than 40 points.
std::optional<Leak> leak_in(const std::vector<int64_t>& steps, const std::vector<double>& bytes);

/// "memory grows by 1.05 MB a step (52.4 MB over 50 steps)"
std::string in_words(const Leak& leak);

}  // namespace lockstep::flight
