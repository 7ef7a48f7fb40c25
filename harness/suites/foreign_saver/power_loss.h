#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "harness/suites/engine/suite.h"
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

/// The operations around the failure, in their order.
std::vector<TimelineStep> timeline_of(const TracedRun& run, const PlannedFailure& planned,
                                      const std::vector<std::string>& writers);

// What a power loss may leave of a recorded save, by three models of a file system.

/// A save without a failure, and what stood in its folder.
struct Recording {
  std::string out;  ///< the folder
  std::vector<FolderEntry> before, after;
  int64_t began_ns = 0;  ///< since 1970
  TracedRun run;         ///< with positions and data
};

/// One disk that may be left.
struct LeftDisk {
  std::string name;  ///< "ordered:7:2": the model, the operation before which the power goes, and which disk of these
  power::DiskModel model = power::DiskModel::least;
  std::size_t moment = 0;  ///< operations that were done
  power::Remains remains;
  bool told = false;  ///< the save has reported success
};

struct LeftDisks {
  std::vector<LeftDisk> disks;
  std::size_t all = 0;  ///< different disks, those left out included
  bool every = true;    ///< no disk that a model allows was left out before they were told apart
};

class PowerLoss {
 public:
  /// The recording must outlive it.
  explicit PowerLoss(const Recording& recording);

  /// Why the recording does not say what a power loss may leave, a reason each; empty: it does.
  const std::set<std::string>& unknown() const { return unknown_; }
  /// Different disks, at most `most`, each of the first model that allows it. Half of them are left after success was reported, if there are so
  /// many; then come those that lack an operation and have a later one, and last those that a kill leaves, too. Within these parts: of each
  /// model and moment in turn, with the fewest losses first.
  LeftDisks disks(std::size_t most) const;
  std::vector<FolderEntry> files(const LeftDisk& disk) const;
  /// What was lost and what was kept although it came later, and what would have ordered them.
  std::string words(const LeftDisk& disk) const;
  /// The operations up to the loss; those that were lost are marked.
  std::vector<TimelineStep> timeline(const LeftDisk& disk, const std::vector<std::string>& writers) const;
  /// Does what was written hold the folder's own path? Then its disks mean something there alone.
  bool names_its_folder() const;
  /// Are the operations of the same kinds and lengths in the same order?
  bool is_like(const PowerLoss& other) const;

 private:
  class Replay;
  /// The recorded operations before the power goes.
  Replay replay_to(const LeftDisk& disk) const;
  std::vector<std::size_t> moments() const;
  /// What was kept of what came after the operation, and is not the rest of the same file: best of all what names the new state. Null: nothing.
  const Operation* kept_after(const Operation& gone, const std::map<int, std::string>& lost, std::size_t moment) const;
  void check_end(const Replay& replay);

  const Recording& recording_;
  std::set<std::string> unknown_;
};

}  // namespace lockstep::program
