#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// One operation on files as the kernel was asked for it.

namespace lockstep::program {

/// What an operation does to the disk or its names.
enum class OperationKind {
  open,      ///< creates, empties or opens for writing
  write,     ///< write, pwrite64, writev, pwritev, pwritev2
  copy,      ///< copy_file_range, sendfile, splice into a file, and its cloning
  resize,    ///< truncate, ftruncate, fallocate
  sync,      ///< fsync, fdatasync, sync_file_range, msync, syncfs, sync
  close,     ///< of a file that was open for writing
  rename,    ///< and link, symlink
  remove,    ///< unlink, rmdir
  make_dir,  ///< mkdir
  map,       ///< a shared mapping for writing: what is stored through it is not seen
};
std::string_view name_of(OperationKind kind);

struct Operation {
  int64_t number = 0;   ///< in the order of all processes, from 1
  std::string process;  ///< its lineage: "0" the command, "0.2" the second process that it forked
  int64_t index = 0;    ///< in its process, threads included, from 1
  OperationKind kind = OperationKind::open;
  std::string call;      ///< the system call: "pwrite64"
  std::string path, to;  ///< below the watched folder ("." is that itself); to: of a rename or link, the new name
  int64_t offset = -1;   ///< of writes; -1: not known
  int64_t bytes = -1;    ///< asked for; of resizes the new length; -1: none
  int64_t flags = 0;     ///< of open and renameat2; of fallocate its mode
  bool existed = false;  ///< of what opens or makes: something of that name stood there
  bool synced = false;   ///< of writes: durable when the call returns (O_SYNC, O_DSYNC)
  uint64_t file = 0;     ///< which file it is, whatever its name; of a rename or link: the one that has the new name. 0: not known
  int64_t result = 0;    ///< the kernel's: below 0 an errno, negated
  std::string data;      ///< if asked for, of writes and copies: the bytes that were written; of a symlink: where it points
};

/// "pwrite64 a/b.bin, 4096 bytes at 512".
std::string words_of(const Operation& operation);

/// Does it write bytes or make a name, for which a disk must have room?
bool needs_space(const Operation& operation);
/// Is it to make what exists? The kernel says so before it looks for room.
bool stands_already(const Operation& operation);

// The system calls that change files, and what a stopped thread is asking for.

/// Where a call's arguments stand.
enum class Shape {
  open,            ///< path, flags
  creat,           ///< path
  openat,          ///< dirfd, path, flags
  openat2,         ///< dirfd, path, struct
  write,           ///< fd, buffer, bytes
  pwrite,          ///< fd, buffer, bytes, offset
  writev,          ///< fd, vectors, count
  pwritev,         ///< fd, vectors, count, offset
  copy,            ///< SystemCall says which arguments are file, bytes and offset
  clone,           ///< ioctl: fd, request
  path,            ///< path
  path_length,     ///< path, length
  fd,              ///< fd
  fd_length,       ///< fd, length
  fallocate,       ///< fd, mode, offset, length
  two_paths,       ///< path, path
  two_paths_at,    ///< dirfd, path, dirfd, path
  text_path,       ///< text, path
  text_path_at,    ///< text, dirfd, path
  path_at,         ///< dirfd, path
  mmap,            ///< address, length, protection, flags, fd, offset
  address,         ///< address in a mapping
  ring,            ///< io_uring_setup, io_submit
  nothing,         ///< sync, syncfs: of everything
};

struct SystemCall {
  long number;
  std::string_view name;
  OperationKind kind;
  Shape shape;
  int fd_argument = 0;     ///< of Shape::copy: which argument is the file that is written
  int bytes_argument = 2;  ///< of Shape::copy
  int offset_argument = -1;  ///< of Shape::copy: points to where it writes; -1, or a null pointer: at the file's position
};

std::span<const SystemCall> system_calls();
const SystemCall* find_system_call(long number);

/// A thread that is stopped at a call.
struct StoppedCall {
  pid_t thread = 0;
  const SystemCall* call = nullptr;
  uint64_t arguments[6] = {};
};

/// The operation that the call is, without numbers, or nothing if it concerns nothing below `watched` (absolute,
/// canonical). `whole`: with its position and its data.
std::optional<Operation> operation_of(const StoppedCall& stopped, const std::string& watched, bool whole);

/// Adds what is known when the call has returned, for which it must still be stopped: the file, and the bytes that were copied.
void complete(Operation& operation, const StoppedCall& stopped, const std::string& watched);

/// The same for all names of a file. 0: none stands there.
uint64_t file_at(const std::string& path, bool follow_symlink);

// The filter that stops a program at system calls that may change files, and lets all others run at full speed.

/// For PR_SET_SECCOMP of x86-64: SECCOMP_RET_TRACE for calls of system_calls(), where their arguments can tell only if
/// they open for writing or map shared; for calls of other architectures too, with kForeignCall as their message.
std::vector<sock_filter> tracing_filter();

inline constexpr unsigned kForeignCall = 1;

}  // namespace lockstep::program
