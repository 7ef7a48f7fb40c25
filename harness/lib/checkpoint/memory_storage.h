#pragma once
// Files in memory, for labs that try thousands of disks: copied in a moment, damaged by hand.

#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "harness/lib/checkpoint/storage.h"

namespace lockstep::checkpoint {

/// A file system that nothing fails on. Sync does nothing: what a power loss leaves is for its lab to say.
/// "/" stands already.
class MemoryStorage final : public Storage {
 public:
  MemoryStorage() = default;
  /// The same files, from now on apart. Open files and locks stay behind.
  explicit MemoryStorage(const MemoryStorage& other);

  /// Puts a file or a folder there, with the folders above it; what stood there is gone.
  void put_file(const std::string& path, std::string bytes);
  void put_folder(const std::string& path);
  /// Takes away a file or a folder with all that it holds.
  void take(const std::string& path);
  /// A file's bytes; null if there is none.
  std::shared_ptr<const std::string> bytes(const std::string& path) const;
  /// Every path, sorted; folders with a slash at their end.
  std::vector<std::string> paths() const;

  std::error_code create(const std::string& path, int& file) override;
  std::error_code write(int file, std::string_view bytes, std::size_t& written) override;
  std::error_code sync(int file) override;
  std::error_code close(int file) override;
  std::error_code rename(const std::string& from, const std::string& to) override;
  std::error_code sync_folder(const std::string& path) override;
  std::error_code make_folder(const std::string& path) override;
  std::error_code unlink(const std::string& path) override;
  std::error_code remove_folder(const std::string& path) override;
  std::error_code list(const std::string& path, std::vector<std::string>& names) override;
  std::error_code open(const std::string& path, int& file) override;
  std::error_code read(int file, std::span<char> into, std::size_t& got) override;
  std::error_code stat(const std::string& path, PathStatus& status) override;
  std::error_code lock(const std::string& path, int& file) override;

 private:
  /// Null bytes: a folder. Bytes are shared by copies of a storage and copied when one of them writes.
  struct Node {
    std::shared_ptr<std::string> bytes;
  };
  struct OpenFile {
    std::shared_ptr<Node> node;
    std::size_t offset = 0;
    std::string locked;
    bool writing = false;
  };
  std::shared_ptr<Node> node_at(const std::string& path) const;
  std::error_code parent_error(const std::string& path) const;
  bool has_children(const std::string& path) const;
  int add_open(OpenFile open);

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Node>> nodes_;
  std::map<int, OpenFile> open_;
  std::set<std::string> locked_;
  int next_ = 3;
};

}  // namespace lockstep::checkpoint
