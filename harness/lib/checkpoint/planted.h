#pragma once
// The classic mistakes of savers, which a lab plants to see them found. All off: the saver as it is.

#include <string>

namespace lockstep::checkpoint {

struct Planted {
  bool one_file_name = false;          ///< all ranks write the file of rank 0, and none of them exclusively
  bool shared_temporary_name = false;  ///< of all tries and writers; what stands there already is taken over
  bool no_lock = false;                ///< another process may save into the folder meanwhile
  bool rename_before_data = false;     ///< the folder has its final name before anything is in it
  bool latest_before_commit = false;   ///< the pointer is advanced before the data are durable and committed
  bool delete_before_commit = false;   ///< older checkpoints go before the new one is committed
  bool exists_per_rank = false;        ///< each rank asks the disk by itself whether the step was saved
  bool no_data_sync = false;           ///< no fsync of files
  bool no_folder_sync = false;         ///< no fsync of folders
  /// Ranks do not wait for each other here: "begin", "written", "renamed", "committed", "finished".
  std::string skipped_gather = {};
};

}  // namespace lockstep::checkpoint
