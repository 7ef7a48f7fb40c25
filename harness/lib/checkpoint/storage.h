#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

// The one way of checkpoints to the disk. Every method is one operation and says what the system said; who
// calls says what it was doing (file_steps.h). `Files` (harness/base/files.h) is the same idea for results;
// it cannot list, read or make a folder that must not exist, and removes whole folders in one call that
// nobody could be killed within.

namespace lockstep::checkpoint {

/// What stands at a path.
struct PathStatus {
  bool exists = false;
  bool folder = false;
  bool file = false;  ///< a regular one
  uint64_t length = 0;
};

/// Operations on files and folders. Each returns what the system said (an errno of the generic category), or
/// no error. None is retried here, and none waits for another process.
class Storage {
 public:
  Storage() = default;
  virtual ~Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// A new file, open for writing; EEXIST if the name is taken. Sets `file` to a handle, or to -1.
  virtual std::error_code create(const std::string& path, int& file) = 0;
  /// Appends to what was written; may take fewer bytes than given.
  virtual std::error_code write(int file, std::string_view bytes, std::size_t& written) = 0;
  virtual std::error_code sync(int file) = 0;
  /// The handle is gone whatever is returned.
  virtual std::error_code close(int file) = 0;
  /// A file takes the place of a file; a folder only that of none or of an empty one (else ENOTEMPTY or
  /// EEXIST).
  virtual std::error_code rename(const std::string& from, const std::string& to) = 0;
  virtual std::error_code sync_folder(const std::string& path) = 0;
  /// EEXIST if the name is taken; its parent must stand.
  virtual std::error_code make_folder(const std::string& path) = 0;
  virtual std::error_code unlink(const std::string& path) = 0;
  /// ENOTEMPTY unless it is empty.
  virtual std::error_code remove_folder(const std::string& path) = 0;
  /// The names in a folder, sorted, without "." and "..".
  virtual std::error_code list(const std::string& path, std::vector<std::string>& names) = 0;
  /// A regular file, for reading. What would keep the reader waiting (a FIFO) or is no file is EINVAL, a
  /// folder EISDIR.
  virtual std::error_code open(const std::string& path, int& file) = 0;
  /// From where the last one ended; `got` is 0 at the end of the file.
  virtual std::error_code read(int file, std::span<char> into, std::size_t& got) = 0;
  /// What stands at a path; no error, and `exists` false, if nothing does.
  virtual std::error_code stat(const std::string& path, PathStatus& status) = 0;
  /// Locks a file, which is made if there is none, against every other lock of it; EWOULDBLOCK if it is held.
  /// `close` unlocks, and so does the end of the process.
  virtual std::error_code lock(const std::string& path, int& file) = 0;
};

/// The machine's file system.
Storage& posix_storage();

// What a save, a load or a retention asks of the disk and of the other ranks, one operation at a time, and
// the place where a lab steps in between: to record, to kill, to stop, to let an operation fail.

enum class OperationKind {
  create,         ///< a file that must not exist yet, open for writing
  write,          ///< bytes to an open file; the system may take fewer
  sync,           ///< fsync of an open file
  close,          ///< of an open file
  rename,         ///< a file or a folder
  sync_folder,    ///< fsync of a folder: the names in it are durable
  make_folder,    ///< one that must not exist yet
  unlink,         ///< a file's name
  remove_folder,  ///< an empty folder
  list,           ///< the names in a folder
  open,           ///< a file for reading
  read,           ///< bytes of an open file; the system may give fewer
  stat,           ///< what stands at a path, and its length
  lock,           ///< the right to save into a folder, against other processes
  gather,         ///< a collective: every rank gives its text and gets those of all
};

/// "create", "sync folder", "gather": the kind in words.
std::string_view name_of(OperationKind kind);

constexpr bool is_sync(OperationKind kind) {
  return kind == OperationKind::sync || kind == OperationKind::sync_folder;
}

/// One operation of one rank.
struct Operation {
  int64_t number = 0;  ///< from 0, one count for the files and the collectives of a rank
  OperationKind kind = OperationKind::create;
  std::string path = {};  ///< of the file or folder; the label of a collective ("written", "commit")
  std::string to = {};    ///< the new name of what is renamed
  int64_t offset = 0;     ///< where in the file a write or read begins
  /// What is to be written; after the operation: what was. A collective: this rank's text
  std::string_view bytes = {};
};

/// "write 12 bytes at 0 of step/rank-0-of-2.safetensors", "gather 'commit'": the operation in words.
std::string in_words(const Operation& operation);

/// What a hook wants of an operation. By default: that it takes its course.
struct Intervention {
  std::error_code error = {};  ///< what the operation is to come to
  /// With an error: the operation is performed all the same, and then called failed
  bool performed = false;
  bool left_out = false;  ///< it is not performed, and called done: a sync that nobody needs
  std::size_t most_bytes = std::string_view::npos;  ///< a write or read takes no more than these
};

/// Stands between a rank and its disk and peers. It may be called by two threads (an asynchronous save has
/// its own).
class Hook {
 public:
  virtual ~Hook() = default;
  /// Before the operation. May end or stop the process, or hold the thread back.
  virtual Intervention before(const Operation&) { return {}; }
  /// After it, with what it came to.
  virtual void after(const Operation&, std::error_code) {}
};

/// One rank's hook and count of operations, shared by its HookedStorage and its HookedGroup.
class Seam {
 public:
  explicit Seam(Hook& hook) : hook_(hook) {}
  Hook& hook() { return hook_; }
  int64_t next_number() { return count_++; }
  int64_t count() const { return count_; }

 private:
  Hook& hook_;
  std::atomic<int64_t> count_{0};
};

/// Sends this process a signal before the operation of that number: SIGKILL ends it there, SIGSTOP holds it
/// there until SIGCONT comes. `unsynced`: syncs are left out, since a killed process leaves its pages to the system.
class SignalAt final : public Hook {
 public:
  SignalAt(int64_t number, int signal, bool unsynced = false) : number_(number), signal_(signal), unsynced_(unsynced) {}
  Intervention before(const Operation& operation) override;

 private:
  int64_t number_;
  int signal_;
  bool unsynced_;
};

// A storage with a hook before and after every operation.

/// Hands every operation on to `inner`, with its number, and as the seam's hook wants it. A close is
/// performed whatever the hook says, as a process that ends closes its files.
class HookedStorage final : public Storage {
 public:
  HookedStorage(Storage& inner, Seam& seam) : inner_(inner), seam_(seam) {}

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
  struct OpenFile {
    std::string path;
    int64_t offset = 0;
  };
  template <class Perform>
  std::error_code hooked(Operation operation, Perform perform);
  template <class Perform>
  std::error_code opened(OperationKind kind, const std::string& path, int& file, Perform perform);
  OpenFile& file_of(int file);

  Storage& inner_;
  Seam& seam_;
  std::mutex mutex_;
  std::map<int, OpenFile> files_;
};

// Files in memory, for labs that try thousands of disks: copied in a moment, damaged by hand.

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
  /// Is there a file, or a folder?
  std::error_code type_error(const std::string& path, bool folder) const;
  bool has_children(const std::string& path) const;
  int add_open(OpenFile open);

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Node>> nodes_;
  std::map<int, OpenFile> open_;
  std::set<std::string> locked_;
  int next_ = 3;
};

}  // namespace lockstep::checkpoint
