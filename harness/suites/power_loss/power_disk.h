#pragma once
// What a power loss may leave of a disk: from operations that were done, every state that a file system's promises allow.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::power {

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
/// How many of them are not there as a whole.
int64_t lost_count(const Remains& remains);

enum class NodeType { folder, file, symlink };

/// What stands at a path of a disk.
struct Standing {
  std::string path;  ///< "/a/b"
  int node = 0;
  NodeType type = NodeType::file;
  std::string bytes = {};  ///< of a file; of a symlink its target
  int changed = 0;         ///< number of the last operation of which it shows something; 0: none, or one of that number
};

/// Paths begin with "/", which is a folder that stands. Operations have numbers, which rise, and name nodes: files, folders and symlinks.
class PowerDisk {
 public:
  /// `most_cuts`: into how many places of one write a tear may fall, evenly spread; 0: each multiple of 512 in the file.
  explicit PowerDisk(DiskModel model, std::size_t most_cuts = 0);

  /// Puts there what is durable already; its folder must stand. A path may name a node that has another name, too.
  int stand(const std::string& path, NodeType type, std::string bytes = "");
  void stand(const std::string& path, int node);

  /// -1: as programs see it, nothing is there.
  int find(const std::string& path) const;
  /// A new node with that name; without a name if `path` is empty.
  int make(int number, const std::string& path, NodeType type, std::string target = "");
  void write(int number, int node, uint64_t offset, std::string bytes);
  /// `only_grow`: a longer file stays as it is.
  void resize(int number, int node, uint64_t bytes, bool only_grow = false);
  void link(int number, int node, const std::string& to);
  void rename(int number, const std::string& from, const std::string& to);
  void exchange(int number, const std::string& one, const std::string& other);
  void remove(int number, const std::string& path);
  void sync_file(int node);
  void sync_folder(int node);
  void sync_all();

  /// What may be there if the power goes now: each way once, all that there are or, if these are more than `most`, all of one
  /// loss and all of one thing left, and a draw. `all`: is every way among them?
  std::vector<Remains> ways(std::size_t most, uint64_t seed, bool& all) const;
  /// Nothing is lost.
  Remains whole() const { return Remains(pending_.size(), 0); }
  /// Of paths and bytes.
  std::string hash(const Remains& remains) const;
  /// In the order of paths.
  std::vector<Standing> standing(const Remains& remains) const;
  /// By operation number: "lost", "512 of 2048 bytes are there".
  std::map<int, std::string> lost(const Remains& remains) const;

 private:
  struct Write {
    uint64_t offset = 0;  ///< of a resize: the length
    std::string bytes = {};
    bool resizes = false, only_grows = false;
  };
  struct Node {
    NodeType type = NodeType::file;
    std::string bytes = {};  ///< durable ones
    std::string bytes_hash = {};
    std::map<std::string, int> names = {};  ///< durable ones, of a folder
    std::map<std::string, int> now = {};    ///< as programs see it
    int changed = 0;                        ///< last durable operation on it
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
    Write write = {};
    std::vector<uint64_t> cuts = {};    ///< where the write may be torn, in its bytes: the head is there or the tail
    std::vector<Change> changes = {};   ///< of names
    bool is_write() const { return node >= 0; }
  };

  int add(NodeType type, std::string bytes);
  void change(int number, std::vector<Change> changes);
  Change at(const std::string& path, int node) const;
  std::vector<uint64_t> cuts_of(const Write& write) const;
  void settle_names(int folder);
  void settle_data(int node);
  void set_bytes(Node& node, std::string bytes);
  std::vector<Remains> ways_of_least(std::size_t most, uint64_t seed, bool& all) const;
  std::vector<Remains> ways_of_ordered(std::size_t most, uint64_t seed, bool& all) const;
  std::string bytes_of(int node, const Remains& remains) const;
  int changed_of(int node, const Remains& remains) const;
  std::vector<std::map<std::string, int>> names_of(const Remains& remains) const;
  template <class Visit>
  void walk(const Remains& remains, Visit visit) const;

  DiskModel model_;
  std::size_t most_cuts_;
  std::vector<Node> nodes_;  ///< the first is the root
  std::vector<Pending> pending_;
};

}  // namespace lockstep::power
