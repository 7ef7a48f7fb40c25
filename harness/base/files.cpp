#include "harness/base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "harness/base/text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kMode = 0644, kSecretMode = 0600;

std::error_code last_error() { return {errno, std::generic_category()}; }

std::error_code error_of(int result) { return result == 0 ? std::error_code() : last_error(); }

int flags_of(OpenFor purpose) {
  switch (purpose) {
    case OpenFor::creating:
    case OpenFor::keeping:
      return O_WRONLY | O_CREAT | O_EXCL;
    case OpenFor::replacing:
      return O_WRONLY | O_CREAT | O_TRUNC;
    case OpenFor::appending:
      return O_WRONLY | O_CREAT | O_APPEND;
    case OpenFor::syncing:
      return O_RDONLY | O_DIRECTORY;
  }
  return O_RDONLY;
}

template <class Call>
std::error_code uninterrupted(Call call) {
  std::error_code error;
  do {
    error = call();
  } while (error == std::errc::interrupted);
  return error;
}

class RealFiles final : public Files {
 public:
  std::error_code rename(const std::string& from, const std::string& to) override {
    return error_of(::rename(from.c_str(), to.c_str()));
  }
  std::error_code remove(const std::string& path) override { return error_of(::unlink(path.c_str())); }
  std::error_code remove_all(const std::string& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    return error;
  }
  std::error_code make_folders(const std::string& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    return error;
  }

 private:
  std::error_code open_once(const std::string& path, OpenFor purpose, int& file) override {
    file = ::open(path.c_str(), flags_of(purpose) | O_CLOEXEC, purpose == OpenFor::keeping ? kSecretMode : kMode);
    return file < 0 ? last_error() : std::error_code();
  }
  std::error_code write_once(int file, std::string_view bytes, std::size_t& written) override {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0) return last_error();
    written = static_cast<std::size_t>(count);
    return {};
  }
  std::error_code sync_once(int file) override { return error_of(::fsync(file)); }
  std::error_code close_once(int file) override { return error_of(::close(file)); }
};

}  // namespace

std::error_code Files::open(const std::string& path, OpenFor purpose, int& file) {
  file = -1;
  return uninterrupted([&] { return open_once(path, purpose, file); });
}

std::error_code Files::write(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    std::size_t written = 0;
    if (const auto error = uninterrupted([&] { return write_once(file, bytes, written); })) return error;
    // A file that takes no byte and names no error would be written to for ever.
    if (written == 0) return std::make_error_code(std::errc::io_error);
    bytes.remove_prefix(written);
  }
  return {};
}

std::error_code Files::sync(int file) {
  return uninterrupted([&] { return sync_once(file); });
}

std::error_code Files::close(int file) {
  const std::error_code error = close_once(file);
  // Linux has closed it by then; the number may be another file's already.
  return error == std::errc::interrupted ? std::error_code() : error;
}

Files& real_files() {
  static RealFiles files;
  return files;
}

namespace {

/// Fills the open temporary file, closes it and gives it its name. Returns what failed and why, or nothing.
std::string put_in_place(int file, const std::string& temporary, const std::string& path,
                         const std::string& content, Files& files) {
  const char* doing = "write";
  std::error_code error = files.write(file, content);
  if (!error) {
    doing = "sync";
    error = files.sync(file);
  }
  const std::error_code unclosed = files.close(file);
  if (!error) {
    doing = "close";
    error = unclosed;
  }
  if (!error) {
    doing = "put the finished file in place";
    error = files.rename(temporary, path);
  }
  return error ? fmt::format("cannot {}: {}", doing, error.message()) : "";
}

void sync_folder_of(const std::string& path, Files& files) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  int file = -1;
  if (const auto error = files.open(folder, OpenFor::syncing, file)) {
    throw MachineError(folder + ": cannot open: " + error.message());
  }
  const std::error_code error = files.sync(file);
  files.close(file);
  // Some file systems know no fsync of folders and say EINVAL.
  if (error && error != std::errc::invalid_argument) {
    throw MachineError(folder + ": cannot sync: " + error.message());
  }
}

std::optional<long> number_in(std::string_view digits) {
  long number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return std::nullopt;
  return number;
}

struct TemporaryName {
  std::string_view of;  ///< the file that was to be written
  long process = 0;
};

/// The parts of what `temporary_name` gave; nothing if the name is none of those.
std::optional<TemporaryName> parts_of(std::string_view name) {
  constexpr std::string_view kEnd = ".tmp";
  if (!name.ends_with(kEnd)) return std::nullopt;
  name.remove_suffix(kEnd.size());
  const std::size_t count = name.rfind('.');
  if (count == std::string_view::npos || count == 0 || !number_in(name.substr(count + 1)))
    return std::nullopt;
  const std::size_t process = name.rfind('.', count - 1);
  if (process == std::string_view::npos) return std::nullopt;
  const std::optional<long> number = number_in(name.substr(process + 1, count - process - 1));
  if (!number) return std::nullopt;
  return TemporaryName{name.substr(0, process), *number};
}

/// Does another process with this number live, so that it may still be writing? An earlier process that had
/// our own number cannot.
bool lives(long process) {
  if (process == ::getpid()) return false;
  return ::kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM;
}

}  // namespace

void write_file_atomically(const std::string& path, const std::string& content, Files& files, OpenFor purpose) {
  const std::string temporary = temporary_name(path);
  int file = -1;
  if (const auto error = files.open(temporary, purpose, file)) {
    throw MachineError(path + ": cannot create: " + error.message());
  }
  if (const std::string problem = put_in_place(file, temporary, path, content, files); !problem.empty()) {
    const std::error_code left = files.remove(temporary);
    const bool stays = left && left != std::errc::no_such_file_or_directory;
    throw MachineError(path + ": " + problem +
                       (stays ? "; " + temporary + " stays, it cannot be removed: " + left.message() : ""));
  }
  sync_folder_of(path, files);
}

std::error_code make_durable_folders(const std::string& path, Files& files) {
  std::vector<std::string> made;
  std::error_code unseen;
  std::filesystem::path at(path);
  if (!at.has_filename()) at = at.parent_path();
  for (; !at.empty() && !std::filesystem::exists(at, unseen); at = at.parent_path()) made.push_back(at.string());
  if (const auto error = files.make_folders(path)) return error;
  for (const std::string& folder : made) sync_folder_of(folder, files);
  return {};
}

std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return fmt::format("{}.{}.{}.tmp", path, ::getpid(), counter++);
}

int remove_left_temporaries(const std::string& folder, const std::function<bool(std::string_view)>& is_ours,
                            Files& files) {
  std::vector<std::string> left;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const std::optional<TemporaryName> parts = parts_of(name);
    std::error_code unknown;
    // Process 0 would ask for our own group.
    if (!parts || !is_ours(parts->of) || parts->process <= 0 || lives(parts->process)) continue;
    if (at->is_regular_file(unknown)) left.push_back(at->path().string());
  }
  int removed = 0;
  for (const std::string& path : left) removed += files.remove(path) ? 0 : 1;
  return removed;
}

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

namespace {
constexpr int kPiecesMapped = 65536, kTrimmedAbove = 128 * 1024;  // as glibc begins with
}

KeptPages::KeptPages() {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
}

KeptPages::~KeptPages() {
  ::mallopt(M_MMAP_MAX, kPiecesMapped);
  ::mallopt(M_TRIM_THRESHOLD, kTrimmedAbove);
  ::malloc_trim(0);
}

}  // namespace lockstep
