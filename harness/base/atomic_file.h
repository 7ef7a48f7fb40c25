#pragma once
// Files that exist whole or not at all, and the removal of temporary files that a killed process left.

#include <functional>
#include <string>
#include <string_view>
#include <system_error>

#include "harness/base/files.h"

namespace lockstep {

/// Writes a whole file: to a temporary name in the same folder, fsync, rename, folder fsync. A reader finds
/// the old content or the new one, after a crash as well.
///
/// Throws MachineError naming the path. The old file is then unchanged and the temporary one removed, or the
/// error says that it could not be removed. If only the folder cannot be synced, the new file stands and the
/// error names the folder. `purpose`: creating, or keeping a secret.
void write_file_atomically(const std::string& path, const std::string& content, Files& files = real_files(), OpenFor purpose = OpenFor::creating);

/// Makes a folder and its parents, and syncs each folder in which a new one stands: POSIX lets a power loss take the name
/// of an unsynced folder, with all that was synced in it. Returns why one could not be made; throws MachineError naming a
/// folder that could not be synced.
std::error_code make_durable_folders(const std::string& path, Files& files = real_files());

/// "PATH.<process id>.<count>.tmp": what `write_file_atomically` writes before it renames.
std::string temporary_name(const std::string& path);

/// Removes from `folder` the temporary files of processes that have ended. The caller says which files these
/// may be: `is_ours` gets each name without its temporary part. Files of other programs and of other living
/// processes stay. Call it before this process writes to the folder itself. Returns how many files were
/// removed.
int remove_left_temporaries(const std::string& folder, const std::function<bool(std::string_view)>& is_ours,
                            Files& files = real_files());

}  // namespace lockstep
