#pragma once
// Reads files whole, and never waits for one: opening a FIFO that has no writer would block for ever.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

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

}  // namespace lockstep
