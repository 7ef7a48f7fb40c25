#pragma once
// The one way of checkpoints to the disk. Every method is one operation and says what the system said; who
// calls says what it was doing (file_steps.h). `Files` (harness/base/files.h) is the same idea for results;
// it cannot list, read or make a folder that must not exist, and removes whole folders in one call that
// nobody could be killed within.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

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

}  // namespace lockstep::checkpoint
