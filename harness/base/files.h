#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>

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

// Files that exist whole or not at all, and the removal of temporary files that a killed process left.

/// Writes a whole file: to a temporary name in the same folder, fsync, rename, folder fsync. A reader finds
/// the old content or the new one, after a crash as well.
///
/// Throws MachineError naming the path. The old file is then unchanged and the temporary one removed, or the
/// error says that it could not be removed. If only the folder cannot be synced, the new file stands and the
/// error names the folder. `purpose`: creating, or keeping a secret.
void write_file_atomically(const std::string& path, const std::string& content, Files& files = real_files(), OpenFor purpose = OpenFor::creating);

/// Makes a folder and its parents, and syncs each folder in which a new one stands: POSIX lets a power loss take the name
/// of an unsynced folder, with all that was synced in it. Returns why one could not be made; throws MachineError naming a
/// folder that could not be synced.
std::error_code make_durable_folders(const std::string& path, Files& files = real_files());

/// "PATH.<process id>.<count>.tmp": what `write_file_atomically` writes before it renames.
std::string temporary_name(const std::string& path);

/// Removes from `folder` the temporary files of processes that have ended. The caller says which files these
/// may be: `is_ours` gets each name without its temporary part. Files of other programs and of other living
/// processes stay. Call it before this process writes to the folder itself. Returns how many files were
/// removed.
int remove_left_temporaries(const std::string& folder, const std::function<bool(std::string_view)>& is_ours,
                            Files& files = real_files());

// Reads files whole, and never waits for one: opening a FIFO that has no writer would block for ever.

/// The limit for data, results and the like: more than any of them ever has, less than a machine's memory.
inline constexpr uint64_t kMostFileBytes = uint64_t{4} << 30;
/// The limit for a config: a thousand times the size of a long one.
inline constexpr uint64_t kMostConfigBytes = uint64_t{1} << 20;

/// A regular file, open for reading; closed with its owner.
class OpenFile {
 public:
  /// Opens without waiting. What is no regular file (a FIFO, a socket, a device, a folder) is a problem.
  explicit OpenFile(const std::string& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  /// "cannot be read: Permission denied", "is a FIFO, not a file"; empty if the file is open.
  const std::string& problem() const { return problem_; }
  bool missing() const { return missing_; }
  int descriptor() const { return descriptor_; }
  uint64_t size_bytes() const { return size_bytes_; }
  /// Hands `take` the bytes from the current position to the end, in blocks of `block_bytes`; the last one
  /// may be shorter. Returns what went wrong ("cannot be read: Input/output error"), or nothing.
  std::string read_blocks(std::size_t block_bytes, const std::function<void(std::string_view)>& take) const;

 private:
  int descriptor_ = -1;
  uint64_t size_bytes_ = 0;
  std::string problem_;
  bool missing_ = false;
};

/// What a file holds, or why it cannot be read.
struct FileText {
  std::string text;
  std::string problem;   ///< without the path; empty: it was read
  bool missing = false;  ///< there is no such file
  explicit operator bool() const { return problem.empty(); }
};

/// A regular file's bytes.
FileText read_file(const std::string& path, uint64_t most_bytes = kMostFileBytes);

/// How long a writer at the other end of a pipe may keep its reader waiting.
struct Patience {
  double next_byte_s = 10;
  double whole_s = 60;
};

/// A file's bytes, or what a FIFO, a pipe or a terminal gives until its end.
FileText read_file_or_pipe(const std::string& path, uint64_t most_bytes, const Patience& patience = {});

/// The text of a config: of a file, `/dev/stdin` or a shell's `<(...)`, which can be read but once. Throws
/// ConfigError.
std::string read_config_text(const std::string& path);

// Memory that comes and goes in pieces of many megabytes, kept for the next piece.

/// While it lives, freed memory stays with the process, where glibc would give large pieces back and have the kernel clear the same
/// pages again: half the time of judging a wide model. Gives back what is free when it ends. Nothing with another allocator.
class KeptPages {
 public:
  KeptPages();
  ~KeptPages();
  KeptPages(const KeptPages&) = delete;
  KeptPages& operator=(const KeptPages&) = delete;
};

}  // namespace lockstep
