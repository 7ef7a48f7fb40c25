#pragma once
// What a power loss may leave of a recorded save, by three models of a file system.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "harness/suites/engine/suite.h"
#include "harness/suites/foreign_saver/recording.h"
#include "harness/suites/foreign_saver/tracer.h"
#include "harness/suites/power_loss/power_disk.h"

namespace lockstep::program {

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
