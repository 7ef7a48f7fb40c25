#pragma once
// What a power loss may leave of a disk: from operations that were done, every state that a file system's promises allow.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/checkpoint/memory_storage.h"
#include "harness/suites/engine/scheduler/process.h"

namespace lockstep::saver {

/// What a file system promises beside fsync, from the most to the least. Each allows all states of the one before.
enum class DiskModel {
  /// Names reach the disk in their order, and every fsync takes the names along; a file's data in their order, before or after
  /// its name; a rename that replaces a file takes its data along (ext4 with auto_da_alloc, btrfs)
  flush_on_rename,
  ordered,  ///< the same without the last (ext4 with data=ordered and noauto_da_alloc)
  least,    ///< POSIX: what was not synced, file by file and folder by folder, is there or not, in any subset
};
inline constexpr DiskModel kDiskModels[] = {DiskModel::flush_on_rename, DiskModel::ordered, DiskModel::least};
std::string_view words_of(DiskModel model);
std::string_view name_of(DiskModel model);

/// What came of each thing that was not durable: 0: it is there, 1: it is not, above: that part of a write.
using Remains = std::vector<int>;

class PowerDisk {
 public:
  /// All that stands there is durable.
  PowerDisk(const checkpoint::MemoryStorage& disk, DiskModel model);

  /// An operation that was done; `number` names it in `lost`.
  void apply(int number, const scheduler::Note& note);

  /// What may be there if the power goes now: each way once, all that there are or, if these are more than `most`, all of one
  /// loss and all of one thing left, and a draw. `all`: is every way among them?
  std::vector<Remains> ways(std::size_t most, uint64_t seed, bool& all) const;
  /// Of paths and bytes.
  std::string hash(const Remains& remains) const;
  std::unique_ptr<checkpoint::MemoryStorage> disk(const Remains& remains) const;
  /// By operation number: "lost", "512 of 2048 bytes are there".
  std::map<int, std::string> lost(const Remains& remains) const;

 private:
  struct Write {
    uint64_t offset = 0;
    std::string bytes;
  };
  struct Node {
    bool folder = false;
    std::string bytes;                    ///< durable ones
    std::string bytes_hash;
    std::map<std::string, int> names;     ///< durable ones, of a folder
    std::map<std::string, int> now;       ///< as programs see it
  };
  struct Change {
    int folder = 0;
    std::string name;
    int node = -1;  ///< -1: the name goes
  };
  /// Something that is not durable.
  struct Pending {
    int number = 0;
    int node = -1;  ///< of a write
    Write write;
    std::vector<Change> changes;  ///< of names
    bool is_write() const { return node >= 0; }
    /// Ways to be torn: each place at a multiple of 512 in the file, the head there or the tail.
    std::vector<uint64_t> cuts() const;
  };

  int find(const std::string& path) const;
  void change(int number, std::vector<Change> changes);
  void settle_names(int folder);
  void settle_data(int node);
  void set_bytes(Node& node, std::string bytes);
  std::vector<Remains> ways_of_least(std::size_t most, uint64_t seed, bool& all) const;
  std::vector<Remains> ways_of_ordered(std::size_t most, uint64_t seed, bool& all) const;
  std::string bytes_of(int node, const Remains& remains) const;
  std::vector<std::map<std::string, int>> names_of(const Remains& remains) const;
  template <class Visit>
  void walk(const Remains& remains, Visit visit) const;

  DiskModel model_;
  std::vector<Node> nodes_;  ///< the first is the root
  std::map<std::string, int> open_;
  std::vector<Pending> pending_;
};

}  // namespace lockstep::saver
