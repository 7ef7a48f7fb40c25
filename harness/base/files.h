#pragma once
// The one way to the disk for what holds results: every such file is made, written, synced, renamed and
// removed through `Files`, so that a test can hold an operation back, let it fail, or cut the power behind it.
//
// What stays outside, and why:
//   OUT/.lock            holds a lock and no result; the kernel releases it when its process ends
//   a run's heartbeat         is memory that processes share; it tells how a run goes, not what came of it
//   rank-N.log           is a rank's standard output, which LibTorch and the C library write to as well
//   the rendezvous file  is c10d's own
//   /dev/null            stands in for standard streams that the caller closed
//   doctor's folder      lives for one check and holds nothing that is reported
//   reading              is done by read_file.h, where a file that cannot be read is a normal answer
//   tests                make their folders and damage their files by their own means

#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep {

/// What a file is opened for.
enum class OpenFor {
  creating,   ///< writing a new one; an error if a file of that name exists
  keeping,    ///< the same, for this user alone: it holds a secret
  replacing,  ///< writing; what stood there is gone
  appending,  ///< writing behind what stands there
  syncing,    ///< a folder, so that the names in it can be synced
};

/// Operations on files. Each returns what the system said, or no error; callers say what they were doing, and
/// to what.
class Files {
 public:
  Files() = default;
  virtual ~Files() = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  /// Sets `file` to a descriptor, or to -1. Opening, writing and syncing are retried when a signal
  /// interrupts them.
  std::error_code open(const std::string& path, OpenFor purpose, int& file);
  /// All of the bytes, however few the system takes at a time.
  std::error_code write(int file, std::string_view bytes);
  std::error_code sync(int file);
  /// The file is closed whatever is returned.
  std::error_code close(int file);
  virtual std::error_code rename(const std::string& from, const std::string& to) = 0;
  virtual std::error_code remove(const std::string& path) = 0;  ///< a file
  /// A folder with all that it holds; no error if there is none.
  virtual std::error_code remove_all(const std::string& path) = 0;
  /// A folder and its parents; no error if they exist.
  virtual std::error_code make_folders(const std::string& path) = 0;

 private:
  // One system call each, without a retry.
  virtual std::error_code open_once(const std::string& path, OpenFor purpose, int& file) = 0;
  virtual std::error_code write_once(int file, std::string_view bytes, std::size_t& written) = 0;
  virtual std::error_code sync_once(int file) = 0;
  virtual std::error_code close_once(int file) = 0;
};

/// The machine's file system.
Files& real_files();

}  // namespace lockstep
