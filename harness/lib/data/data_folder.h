#pragma once
// Where the files of BasicMotions lie.

#include <string>

namespace lockstep {

/// Folder of the BasicMotions files: $LOCKSTEP_DATA, else that of the running program.
std::string data_folder();

/// Where a program in that folder looks for them: in its prefix's share/lockstep/data if it is installed,
/// else in the first `.lockstep/data`, where ci/bootstrap keeps them, at or above the folder; if there is
/// none, the place beside the program where it would be looked for first.
std::string data_folder_of(const std::string& program_folder);

/// The first existing `.lockstep/data` at or above `folder`, or empty.
std::string find_data_folder(const std::string& folder);

}  // namespace lockstep
