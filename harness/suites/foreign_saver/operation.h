#pragma once
// One operation on files as the kernel was asked for it.

#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace lockstep::program
