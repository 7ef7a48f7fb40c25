#pragma once
// Files that are there whole or not at all, and what a killed process leaves of those it was writing.

#include <functional>
#include <string>
#include <string_view>

#include "harness/base/files.h"

namespace lockstep {

/// Writes a whole file: to a temporary name in the same folder, fsync, rename, folder fsync. A reader finds
/// the old content or the new one, after a crash as well.
///
/// Throws MachineError naming the path. The old file then stands and the temporary one is gone, or the error
/// says that it stays; where the folder alone cannot be synced, the new file stands and the error names the
/// folder.
void write_file_atomically(const std::string& path, const std::string& content, Files& files = real_files());

/// "PATH.<process id>.<count>.tmp": what `write_file_atomically` writes before it renames.
std::string temporary_name(const std::string& path);

/// Removes from `folder` what `temporary_name` named for a process that is gone. Of which files is the
/// caller's to say: `is_ours` is asked about names without the temporary part. What another program or another
/// living process named stays. To be called before this process writes there itself. Returns how many were
/// removed.
int remove_left_temporaries(const std::string& folder, const std::function<bool(std::string_view)>& is_ours,
                            Files& files = real_files());

}  // namespace lockstep
