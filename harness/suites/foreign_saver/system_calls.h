#pragma once
// The system calls that change files, and what a stopped thread is asking for.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "harness/suites/foreign_saver/operation.h"

namespace lockstep::program {

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

/// Requests of ioctl that change a file's bytes.
std::span<const unsigned> cloning_requests();

/// The same for all names of a file. 0: none stands there.
uint64_t file_at(const std::string& path, bool follow_symlink);

/// Reads up to `bytes` of a process's memory.
std::string memory_of(pid_t thread, uint64_t address, std::size_t bytes);

}  // namespace lockstep::program
