#include "harness/base/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

std::string cannot_be_read(int error) { return fmt::format("cannot be read: {}", std::strerror(error)); }

std::string too_large(uint64_t most_bytes) {
  const bool whole = most_bytes >> 20 > 0;
  return fmt::format("has more than {} {}", whole ? most_bytes >> 20 : most_bytes, whole ? "MiB" : "bytes");
}

/// Appends what one read gives. False at the end and on an error, which is then in `problem`.
bool read_more(int descriptor, FileText& file) {
  std::array<char, 1 << 16> block;
  for (;;) {
    const ssize_t got = ::read(descriptor, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got < 0) file.problem = cannot_be_read(errno);
    if (got <= 0) return false;
    file.text.append(block.data(), static_cast<std::size_t>(got));
    return true;
  }
}

/// Waits for bytes or the end. False after `wait_s`.
bool wait_readable(int descriptor, double wait_s) {
  pollfd wanted{descriptor, POLLIN, 0};
  const auto until = Clock::now() + std::chrono::duration<double>(wait_s);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    const int ready = ::poll(&wanted, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

class Descriptor {
 public:
  explicit Descriptor(const std::string& path)
      : number_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

FileText read_pipe(const std::string& path, uint64_t most_bytes, const Patience& patience) {
  FileText pipe;
  const Descriptor descriptor(path);
  if (descriptor.number() < 0) {
    pipe.problem = cannot_be_read(errno);
    return pipe;
  }
  const auto end = Clock::now() + std::chrono::duration<double>(patience.whole_s);
  do {
    const double left_s = std::chrono::duration<double>(end - Clock::now()).count();
    if (!wait_readable(descriptor.number(), std::min(patience.next_byte_s, left_s))) {
      pipe.problem = fmt::format("gave no {} within {} s: does anything write to it?",
                                 pipe.text.empty() ? "byte" : "end",
                                 left_s < patience.next_byte_s ? patience.whole_s : patience.next_byte_s);
    } else if (pipe.text.size() > most_bytes) {
      pipe.problem = too_large(most_bytes);
    }
  } while (pipe.problem.empty() && read_more(descriptor.number(), pipe));
  return pipe;
}

}  // namespace

OpenFile::OpenFile(const std::string& path) {
  struct stat info {};
  // Looked at before it is opened: opening some devices does something.
  if (::stat(path.c_str(), &info) != 0) {
    missing_ = errno == ENOENT || errno == ENOTDIR;
    problem_ = cannot_be_read(errno);
    return;
  }
  const auto refuse_kind = [&] {
    if (!S_ISREG(info.st_mode)) problem_ = fmt::format("is {}, not a file", kind_of(info.st_mode));
    return !problem_.empty();
  };
  if (refuse_kind()) return;
  // Without waiting all the same: what stands under a path may change in between.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (descriptor_ < 0 || ::fstat(descriptor_, &info) != 0) {
    missing_ = errno == ENOENT;
    problem_ = cannot_be_read(errno);
  } else if (!refuse_kind()) {
    size_bytes_ = static_cast<uint64_t>(info.st_size);
  }
}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string OpenFile::read_blocks(std::size_t block_bytes,
                                  const std::function<void(std::string_view)>& take) const {
  if (!problem_.empty()) return problem_;
  std::vector<char> block(block_bytes);
  for (std::size_t filled = block_bytes; filled == block_bytes;) {
    for (filled = 0; filled < block_bytes;) {
      const ssize_t got = ::read(descriptor_, block.data() + filled, block_bytes - filled);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return cannot_be_read(errno);
      if (got == 0) break;
      filled += static_cast<std::size_t>(got);
    }
    if (filled > 0) take({block.data(), filled});
  }
  return "";
}

FileText read_file(const std::string& path, uint64_t most_bytes) {
  FileText file;
  const OpenFile open(path);
  file.problem = open.problem();
  file.missing = open.missing();
  if (!file) return file;
  if (open.size_bytes() > most_bytes) {
    file.problem = too_large(most_bytes);
    return file;
  }
  file.text.reserve(open.size_bytes());
  // To its end, whatever its size was said to be: files of /proc say 0, others grow.
  while (read_more(open.descriptor(), file)) {
    if (file.text.size() > most_bytes) file.problem = too_large(most_bytes);
    if (!file) break;
  }
  if (!file) file.text.clear();
  return file;
}

FileText read_file_or_pipe(const std::string& path, uint64_t most_bytes, const Patience& patience) {
  struct stat info {};
  const bool streams = ::stat(path.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode));
  if (!streams) return read_file(path, most_bytes);
  FileText pipe = read_pipe(path, most_bytes, patience);
  if (!pipe) pipe.text.clear();
  return pipe;
}

std::string read_config_text(const std::string& path) {
  FileText file = read_file_or_pipe(path, kMostConfigBytes);
  if (file) return std::move(file.text);
  if (file.problem == too_large(kMostConfigBytes)) file.problem += ": too large for a config";
  throw ConfigError({ConfigProblem{path, 0, 0, file.problem, ""}});
}

}  // namespace lockstep
