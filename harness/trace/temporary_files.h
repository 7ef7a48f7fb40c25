#pragma once
// Names of files that are being written, and what a killed process leaves of them.

#include <string>

namespace lockstep {

/// "PATH.<process id>.<count>.tmp": what `write_file_atomically` writes before it renames.
std::string temporary_name(const std::string& path);

/// Removes from `folder` the temporary files of our own making whose process is gone: names that
/// `temporary_name` gives of a file that a matrix leaves (results, reports, run.json, done, ranks' results,
/// replays). What another program or another living process named stays. To be called before this process
/// writes there itself. Returns how many were removed.
int remove_left_temporaries(const std::string& folder);

}  // namespace lockstep
