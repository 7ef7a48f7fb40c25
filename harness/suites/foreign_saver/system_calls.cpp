#include "harness/suites/foreign_saver/system_calls.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "harness/base/files.h"

namespace lockstep::program {

std::string_view name_of(OperationKind kind) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"open", "write", "copy", "resize", "sync", "close", "rename", "remove", "make_dir", "map"});
  return kNames[static_cast<std::size_t>(kind)];
}

std::string words_of(const Operation& operation) {
  std::string text = operation.call;
  if (!operation.path.empty()) text += " " + operation.path;
  if (!operation.to.empty()) text += " to " + operation.to;
  if (operation.bytes >= 0)
    text += operation.kind == OperationKind::resize ? fmt::format(", length {}", operation.bytes)
                                                    : fmt::format(", {} bytes", operation.bytes);
  if (operation.offset >= 0) text += fmt::format(" at {}", operation.offset);
  return text;
}

bool stands_already(const Operation& operation) {
  const bool makes = operation.kind == OperationKind::make_dir || (operation.flags & O_EXCL) != 0;
  return makes && operation.existed;
}

bool needs_space(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::open: return (operation.flags & O_CREAT) != 0 && !operation.existed;
    case OperationKind::make_dir: return !operation.existed;
    case OperationKind::write:
    case OperationKind::copy:
    case OperationKind::resize: return true;
    default: return false;
  }
}

namespace fs = std::filesystem;

std::span<const SystemCall> system_calls() {
  using enum OperationKind;
  static constexpr auto kCalls = std::to_array<SystemCall>({
      {SYS_open, "open", open, Shape::open},
      {SYS_creat, "creat", open, Shape::creat},
      {SYS_openat, "openat", open, Shape::openat},
      {SYS_openat2, "openat2", open, Shape::openat2},
      {SYS_write, "write", write, Shape::write},
      {SYS_pwrite64, "pwrite64", write, Shape::pwrite},
      {SYS_writev, "writev", write, Shape::writev},
      {SYS_pwritev, "pwritev", write, Shape::pwritev},
      {SYS_pwritev2, "pwritev2", write, Shape::pwritev},
      {SYS_copy_file_range, "copy_file_range", copy, Shape::copy, 2, 4, 3},
      {SYS_sendfile, "sendfile", copy, Shape::copy, 0, 3},
      {SYS_splice, "splice", copy, Shape::copy, 2, 4, 3},
      {SYS_ioctl, "ioctl", copy, Shape::clone},
      {SYS_truncate, "truncate", resize, Shape::path_length},
      {SYS_ftruncate, "ftruncate", resize, Shape::fd_length},
      {SYS_fallocate, "fallocate", resize, Shape::fallocate},
      {SYS_fsync, "fsync", sync, Shape::fd},
      {SYS_fdatasync, "fdatasync", sync, Shape::fd},
      {SYS_sync_file_range, "sync_file_range", sync, Shape::fd},
      {SYS_syncfs, "syncfs", sync, Shape::nothing},
      {SYS_sync, "sync", sync, Shape::nothing},
      {SYS_msync, "msync", sync, Shape::address},
      {SYS_close, "close", close, Shape::fd},
      {SYS_rename, "rename", rename, Shape::two_paths},
      {SYS_renameat, "renameat", rename, Shape::two_paths_at},
      {SYS_renameat2, "renameat2", rename, Shape::two_paths_at},
      {SYS_link, "link", rename, Shape::two_paths},
      {SYS_linkat, "linkat", rename, Shape::two_paths_at},
      {SYS_symlink, "symlink", rename, Shape::text_path},
      {SYS_symlinkat, "symlinkat", rename, Shape::text_path_at},
      {SYS_unlink, "unlink", remove, Shape::path},
      {SYS_unlinkat, "unlinkat", remove, Shape::path_at},
      {SYS_rmdir, "rmdir", remove, Shape::path},
      {SYS_mkdir, "mkdir", make_dir, Shape::path},
      {SYS_mkdirat, "mkdirat", make_dir, Shape::path_at},
      {SYS_mmap, "mmap", map, Shape::mmap},
      {SYS_io_uring_setup, "io_uring_setup", map, Shape::ring},
      {SYS_io_submit, "io_submit", map, Shape::ring},
  });
  return kCalls;
}

const SystemCall* find_system_call(long number) {
  const auto at = std::ranges::find(system_calls(), number, &SystemCall::number);
  return at == system_calls().end() ? nullptr : &*at;
}

/// Reads up to `bytes` of a process's memory.
static std::string memory_of(pid_t thread, uint64_t address, std::size_t bytes) {
  std::string text(bytes, '\0');
  iovec ours{text.data(), bytes}, theirs{reinterpret_cast<void*>(address), bytes};
  const ssize_t read = ::process_vm_readv(thread, &ours, 1, &theirs, 1, 0);
  text.resize(read > 0 ? static_cast<std::size_t>(read) : 0);
  return text;
}

namespace {

/// A text of the tracee's, read page by page: the next one may not be mapped.
std::string text_of(pid_t thread, uint64_t address) {
  constexpr std::size_t kPage = 4096;
  std::string text;
  while (text.size() < PATH_MAX) {
    const std::string more = memory_of(thread, address + text.size(), kPage - (address + text.size()) % kPage);
    if (more.empty()) break;
    const std::size_t end = more.find('\0');
    text += more.substr(0, end);
    if (end != std::string::npos) break;
  }
  return text;
}

std::string link_of(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
  return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : "";
}

std::string path_of_fd(pid_t thread, int fd) {
  std::string path = link_of(fmt::format("/proc/{}/fd/{}", thread, fd));
  constexpr std::string_view kGone = " (deleted)";
  if (path.ends_with(kGone)) path.resize(path.size() - kGone.size());
  return path;
}

/// Absolute, with the links of its folder resolved; its last name is what the call acts on.
std::string resolved(pid_t thread, int directory, const std::string& path) {
  if (path.empty()) return directory == AT_FDCWD ? "" : path_of_fd(thread, directory);
  fs::path whole = path;
  if (whole.is_relative()) {
    whole = (directory == AT_FDCWD ? link_of(fmt::format("/proc/{}/cwd", thread)) : path_of_fd(thread, directory)) / whole;
  }
  whole = whole.lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(whole.parent_path(), error);
  return error ? whole.string() : (folder / whole.filename()).string();
}

/// The path below `watched`; empty if it lies elsewhere.
std::string below(const std::string& path, const std::string& watched) {
  if (path == watched) return ".";
  return path.size() > watched.size() && path.starts_with(watched) && path[watched.size()] == '/'
             ? path.substr(watched.size() + 1)
             : "";
}

/// A line of /proc/PID/fdinfo/FD as a number; -1: there is none.
int64_t fd_info(pid_t thread, int fd, const std::string& key, int base) {
  const std::string text = read_file(fmt::format("/proc/{}/fdinfo/{}", thread, fd)).text;
  const std::size_t at = text.find(key + ":");
  return at == std::string::npos ? -1 : std::strtoll(text.c_str() + at + key.size() + 1, nullptr, base);
}

/// The file of the mapping that holds an address.
std::string path_at(pid_t thread, uint64_t address) {
  const std::string maps = read_file(fmt::format("/proc/{}/maps", thread)).text;
  for (std::size_t begin = 0; begin < maps.size();) {
    const std::size_t end = std::min(maps.find('\n', begin), maps.size());
    const std::string line = maps.substr(begin, end - begin);
    char* after = nullptr;
    const uint64_t low = std::strtoull(line.c_str(), &after, 16);
    const uint64_t high = *after == '-' ? std::strtoull(after + 1, nullptr, 16) : 0;
    if (address >= low && address < high) {
      const std::size_t slash = line.find('/');
      return slash == std::string::npos ? "" : line.substr(slash);
    }
    begin = end + 1;
  }
  return "";
}

/// Of device and inode.
uint64_t identity_of(const struct stat& facts) {
  return (static_cast<uint64_t>(facts.st_dev) << 48U) ^ static_cast<uint64_t>(facts.st_ino);
}

std::string fd_path(pid_t thread, int fd) { return fmt::format("/proc/{}/fd/{}", thread, fd); }

bool writes(int64_t flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0; }

class Decoder {
 public:
  Decoder(const StoppedCall& stopped, const std::string& watched, bool whole)
      : stopped_(stopped), watched_(watched), whole_(whole) {
    operation_.kind = stopped.call->kind;
    operation_.call = stopped.call->name;
  }

  std::optional<Operation> decode() {
    if (!read() || (operation_.path.empty() && operation_.to.empty())) return std::nullopt;
    return std::move(operation_);
  }

 private:
  uint64_t argument(int i) const { return stopped_.arguments[i]; }
  int fd(int i) const { return static_cast<int>(argument(i)); }
  std::string text(int i) const { return text_of(stopped_.thread, argument(i)); }
  std::string named(int directory, int path) const {
    return below(resolved(stopped_.thread, directory < 0 ? AT_FDCWD : fd(directory), text(path)), watched_);
  }

  bool opens(int directory, int path, int64_t flags) {
    operation_.flags = flags;
    if (!writes(flags)) return false;
    operation_.path = named(directory, path);
    operation_.existed = stands();
    return true;
  }

  bool stands() const {
    struct stat facts {};
    return !operation_.path.empty() && ::lstat((watched_ + "/" + operation_.path).c_str(), &facts) == 0;
  }

  /// The file behind a descriptor.
  bool of_fd(int i) {
    operation_.path = below(path_of_fd(stopped_.thread, fd(i)), watched_);
    if (operation_.path.empty()) return false;
    if (whole_) operation_.file = file_at(fd_path(stopped_.thread, fd(i)), true);
    // A file that was only read changes nothing when it is closed.
    return operation_.kind != OperationKind::close ||
           (fd_info(stopped_.thread, fd(i), "flags", 8) & O_ACCMODE) != O_RDONLY;
  }

  bool is_of_our_file_system(int fd) const {
    struct stat ours {}, theirs {};
    return ::stat(watched_.c_str(), &ours) == 0 && ::stat(fd_path(stopped_.thread, fd).c_str(), &theirs) == 0 && ours.st_dev == theirs.st_dev;
  }

  void take_position(int i) {
    if (!whole_) return;
    const int64_t flags = fd_info(stopped_.thread, fd(i), "flags", 8);
    const uint64_t of_call = stopped_.call->number == SYS_pwritev2 ? argument(5) : 0;
    operation_.synced = (flags >= 0 && (flags & O_DSYNC) != 0) || (of_call & (RWF_DSYNC | RWF_SYNC)) != 0;
    struct stat facts {};
    const bool appends = (flags >= 0 && (flags & O_APPEND) != 0) || (of_call & RWF_APPEND) != 0;
    if (appends && ::stat(fd_path(stopped_.thread, fd(i)).c_str(), &facts) == 0)
      operation_.offset = facts.st_size;
    else if (operation_.offset < 0)
      operation_.offset = fd_info(stopped_.thread, fd(i), "pos", 10);
  }

  bool write_bytes() {
    if (!of_fd(0)) return false;
    operation_.bytes = static_cast<int64_t>(argument(2));
    if (stopped_.call->shape == Shape::pwrite) operation_.offset = static_cast<int64_t>(argument(3));
    take_position(0);
    if (whole_) operation_.data = memory_of(stopped_.thread, argument(1), argument(2));
    return true;
  }

  bool write_vectors() {
    if (!of_fd(0)) return false;
    const std::size_t count = std::min<uint64_t>(argument(2), IOV_MAX);
    const std::string raw = memory_of(stopped_.thread, argument(1), count * sizeof(iovec));
    std::vector<iovec> vectors(raw.size() / sizeof(iovec));
    std::memcpy(vectors.data(), raw.data(), vectors.size() * sizeof(iovec));
    operation_.bytes = 0;
    for (const iovec& vector : vectors) {
      operation_.bytes += static_cast<int64_t>(vector.iov_len);
      if (whole_)
        operation_.data += memory_of(stopped_.thread, reinterpret_cast<uint64_t>(vector.iov_base), vector.iov_len);
    }
    if (stopped_.call->shape == Shape::pwritev && static_cast<int64_t>(argument(3)) >= 0)
      operation_.offset = static_cast<int64_t>(argument(3));
    take_position(0);
    return true;
  }

  bool copies() {
    const SystemCall& call = *stopped_.call;
    operation_.bytes = static_cast<int64_t>(argument(call.bytes_argument));
    if (!of_fd(call.fd_argument)) return false;
    if (call.offset_argument >= 0 && argument(call.offset_argument) != 0) {
      const std::string raw = memory_of(stopped_.thread, argument(call.offset_argument), sizeof operation_.offset);
      std::memcpy(&operation_.offset, raw.data(), std::min(raw.size(), sizeof operation_.offset));
    }
    take_position(call.fd_argument);
    return true;
  }

  bool two(int directory, int path, int new_directory, int new_path) {
    operation_.path = directory == -2 ? "" : named(directory, path);
    operation_.to = named(new_directory, new_path);
    return true;
  }

  bool read() {
    switch (stopped_.call->shape) {
      case Shape::open: return opens(-1, 0, static_cast<int64_t>(argument(1)));
      case Shape::creat: return opens(-1, 0, O_CREAT | O_WRONLY | O_TRUNC);
      case Shape::openat: return opens(0, 1, static_cast<int64_t>(argument(2)));
      case Shape::openat2: {
        uint64_t flags = 0;
        const std::string raw = memory_of(stopped_.thread, argument(2), sizeof flags);
        std::memcpy(&flags, raw.data(), std::min(raw.size(), sizeof flags));
        return opens(0, 1, static_cast<int64_t>(flags));
      }
      case Shape::write:
      case Shape::pwrite: return write_bytes();
      case Shape::writev:
      case Shape::pwritev: return write_vectors();
      case Shape::copy: return copies();
      case Shape::clone: return of_fd(0);
      case Shape::path_length:
        operation_.bytes = static_cast<int64_t>(argument(1));
        operation_.path = named(-1, 0);
        operation_.file = file_at(watched_ + "/" + operation_.path, true);
        return true;
      case Shape::fd_length:
        operation_.bytes = static_cast<int64_t>(argument(1));
        return of_fd(0);
      case Shape::fallocate:
        operation_.bytes = static_cast<int64_t>(argument(2) + argument(3));
        operation_.flags = static_cast<int64_t>(argument(1));
        return of_fd(0);
      case Shape::fd: return of_fd(0);
      case Shape::path:
      case Shape::path_at:
        operation_.path = stopped_.call->shape == Shape::path ? named(-1, 0) : named(0, 1);
        operation_.existed = stands();
        return true;
      case Shape::two_paths: return two(-1, 0, -1, 1);
      case Shape::two_paths_at:
        if (stopped_.call->number != SYS_renameat) operation_.flags = static_cast<int64_t>(argument(4));
        return two(0, 1, 2, 3);
      case Shape::text_path: return two(-2, 0, -1, 1);
      case Shape::text_path_at: return two(-2, 0, 1, 2);
      case Shape::mmap:
        if ((argument(3) & MAP_TYPE) == MAP_PRIVATE || (argument(2) & PROT_WRITE) == 0) return false;
        if ((argument(3) & MAP_ANONYMOUS) != 0) return false;
        operation_.bytes = static_cast<int64_t>(argument(1));
        operation_.offset = static_cast<int64_t>(argument(5));
        return of_fd(4);
      case Shape::address:
        operation_.bytes = static_cast<int64_t>(argument(1));
        operation_.path = below(path_at(stopped_.thread, argument(0)), watched_);
        return true;
      case Shape::ring: operation_.path = "."; return true;
      case Shape::nothing:
        operation_.path = ".";
        return stopped_.call->number != SYS_syncfs || is_of_our_file_system(fd(0));
    }
    return false;
  }

  const StoppedCall& stopped_;
  const std::string& watched_;
  bool whole_;
  Operation operation_;
};

}  // namespace

std::optional<Operation> operation_of(const StoppedCall& stopped, const std::string& watched, bool whole) {
  return Decoder(stopped, watched, whole).decode();
}

uint64_t file_at(const std::string& path, bool follow_symlink) {
  struct stat facts {};
  const int status = follow_symlink ? ::stat(path.c_str(), &facts) : ::lstat(path.c_str(), &facts);
  return status == 0 ? identity_of(facts) : 0;
}

void complete(Operation& operation, const StoppedCall& stopped, const std::string& watched) {
  if (operation.result < 0) return;
  if (operation.kind == OperationKind::open)
    operation.file = file_at(fd_path(stopped.thread, static_cast<int>(operation.result)), true);
  if (operation.kind == OperationKind::make_dir) operation.file = file_at(watched + "/" + operation.path, false);
  if (!operation.to.empty()) {
    const std::string to = watched + "/" + operation.to;
    operation.file = file_at(to, false);
    if (operation.path.empty()) operation.data = link_of(to);
  }
  if (stopped.call->shape != Shape::copy || operation.offset < 0) return;
  const int fd = static_cast<int>(stopped.arguments[stopped.call->fd_argument]);
  const int file = ::open(fd_path(stopped.thread, fd).c_str(), O_RDONLY | O_CLOEXEC);
  operation.data.resize(static_cast<std::size_t>(operation.result));
  const ssize_t got = file < 0 ? 0 : ::pread(file, operation.data.data(), operation.data.size(), operation.offset);
  operation.data.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  if (file >= 0) ::close(file);
}

namespace {

constexpr uint32_t kLoad = BPF_LD | BPF_W | BPF_ABS, kEqual = BPF_JMP | BPF_JEQ | BPF_K,
                   kAnyBit = BPF_JMP | BPF_JSET | BPF_K, kReturn = BPF_RET | BPF_K;

/// The lower half of an argument; little endian.
uint32_t low_half(int argument) {
  return static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * static_cast<std::size_t>(argument));
}

sock_filter line(uint32_t code, uint32_t value, unsigned if_true = 0, unsigned if_false = 0) {
  return {static_cast<uint16_t>(code), static_cast<uint8_t>(if_true), static_cast<uint8_t>(if_false), value};
}

/// Traced only if that argument has this value, or one of these bits (kEqual, kAnyBit). The number of the call stands in the accumulator
/// again where it has not.
void add_if(std::vector<sock_filter>& filter, uint32_t number, int argument, uint32_t test, uint32_t value) {
  filter.push_back(line(kEqual, number, 0, 4));
  filter.push_back(line(kLoad, low_half(argument)));
  filter.push_back(line(test, value, 0, 1));
  filter.push_back(line(kReturn, SECCOMP_RET_TRACE));
  filter.push_back(line(kLoad, offsetof(seccomp_data, nr)));
}

}  // namespace

std::vector<sock_filter> tracing_filter() {
  constexpr uint32_t kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
  std::vector<sock_filter> filter;
  filter.push_back(line(kLoad, offsetof(seccomp_data, arch)));
  filter.push_back(line(kEqual, AUDIT_ARCH_X86_64, 1, 0));
  filter.push_back(line(kReturn, SECCOMP_RET_TRACE | kForeignCall));
  filter.push_back(line(kLoad, offsetof(seccomp_data, nr)));
  for (const SystemCall& call : system_calls()) {
    const auto number = static_cast<uint32_t>(call.number);
    if (call.shape == Shape::open) {
      add_if(filter, number, 1, kAnyBit, kWriting);
    } else if (call.shape == Shape::openat) {
      add_if(filter, number, 2, kAnyBit, kWriting);
    } else if (call.shape == Shape::mmap) {
      add_if(filter, number, 3, kAnyBit, MAP_SHARED);
    } else if (call.shape == Shape::clone) {
      for (const unsigned request : {FICLONE, FICLONERANGE})  // they change a file's bytes
         add_if(filter, number, 1, kEqual, request);
    } else {
      filter.push_back(line(kEqual, number, 0, 1));
      filter.push_back(line(kReturn, SECCOMP_RET_TRACE));
    }
  }
  filter.push_back(line(kReturn, SECCOMP_RET_ALLOW));
  return filter;
}

}  // namespace lockstep::program
