#pragma once
// Which checkpoints stay and which of them the pointers name, and the taking away of the others, so that a deletion that
// is cut short leaves nothing that counts.

#include <functional>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/file_steps.h"
#include "harness/lib/checkpoint/save.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/lib/checkpoint/survey.h"

namespace lockstep::checkpoint {

struct Retention {
  int keep_last = 3;
  Durability durability = {};
  Writer writer = {};              ///< in the names of temporary files
  std::function<void()> progress = {};  ///< after each folder; may be empty
  Sightings* seen = nullptr;       ///< of the process that settles; may be null
};

/// All of it, but for what a planted mistake leaves out.
inline Durability durability_of(const SaveOptions& options) { return {!options.planted.no_data_sync, !options.planted.no_folder_sync}; }

/// Names of the checkpoints that stay: the newest ones and the best, `keep_last` together; all of them whole.
/// `best`: a save id, or empty.
std::vector<std::string> names_to_keep(const Survey& survey, int keep_last, const std::string& best);

/// Finishes what a save does after its commit, this one or an earlier one that was cut short: lets `best_model` and `latest`
/// name the best and the newest whole checkpoint, as the commit records have it, and takes away older ones and what saves
/// left that did not finish. Only who holds the folder's lock may call it: then no save is under way that could still need
/// these. What a pointer names stays while the pointer cannot be replaced. Returns what could not be done and why.
std::vector<std::string> settle(Storage& storage, const std::string& root, const Retention& retention);

/// Locks the folder against other processes that save into it: sets `file`, which its holder closes. Returns what went wrong, or nothing.
std::string lock_root(Storage& storage, const std::string& root, int& file);

/// Takes one checkpoint away: first its commit record, durably, so that a part of it never counts; then its
/// other files, then the folder. Files that are none of ours stay, and so does the folder then.
Failure take_away(Storage& storage, const std::string& folder, Durability durability);

}  // namespace lockstep::checkpoint
