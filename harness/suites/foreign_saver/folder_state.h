#pragma once
// What stands below a folder, taken and put back.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/suites/power_loss/power_disk.h"

namespace lockstep::program {

struct FolderEntry {
  std::string path;  ///< "/a/b", below the folder
  power::NodeType type = power::NodeType::file;
  std::string bytes;      ///< of a file; of a symlink its target
  uint64_t file = 0;      ///< the same for all names of a file, in one reading
  int64_t changed_ns = 0;  ///< when, since 1970; not put back for symlinks
};

/// Files, folders and symlinks in the order of paths; the folder itself as "". Throws MachineError.
std::vector<FolderEntry> read_folder(const std::string& folder);
/// Empties the folder first. Entries of one file other than 0 become names of one file. Throws MachineError.
void write_folder(const std::string& folder, const std::vector<FolderEntry>& entries);

/// Copies all that stands below `from`, times included, to `to`, which may stand. Throws MachineError.
void copy_folder(const std::string& from, const std::string& to);

/// Makes it, or takes away what stands in it. Throws MachineError.
void make_empty(const std::string& folder);

}  // namespace lockstep::program
