#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/suites/foreign_saver/failures.h"
#include "harness/suites/foreign_saver/tracer.h"
#include "harness/suites/power_loss/power_disk.h"

// What stands below a folder, taken and put back.

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

// What a traced save did, for people and for other programs.

/// Writes OUT/operations.jsonl, an operation a line, and OUT/operations.data, the bytes of all writes one after the other;
/// docs/savers.md says what stands in them. Throws MachineError.
void write_recording(const TracedRun& run, const std::string& out_dir);

/// "writer 1".
std::string process_words(const std::string& process, const std::vector<std::string>& writers);

/// The operations around the failure, in their order.
std::vector<TimelineStep> timeline_of(const TracedRun& run, const PlannedFailure& planned,
                                      const std::vector<std::string>& writers);

}  // namespace lockstep::program
