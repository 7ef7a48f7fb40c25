#include "harness/lib/data/data_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace lockstep {

namespace fs = std::filesystem;

std::string find_data_folder(const std::string& folder) {
  std::error_code error;
  fs::path place = fs::absolute(folder, error);
  while (!error) {
    const fs::path candidate = place / ".lockstep" / "data";
    if (fs::is_directory(candidate, error)) return candidate.string();
    error.clear();  // an unreadable folder on the way is as good as an empty one
    if (!place.has_relative_path()) break;
    place = place.parent_path();
  }
  return "";
}

std::string data_folder() {
  if (const char* chosen = std::getenv("LOCKSTEP_DATA"); chosen != nullptr && *chosen != '\0') return chosen;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return data_folder_of(error ? "." : program.parent_path().string());
}

std::string data_folder_of(const std::string& program_folder) {
  std::error_code error;
  const fs::path share = fs::path(program_folder).parent_path() / "share" / "lockstep";
  if (fs::is_directory(share, error)) return (share / "data").string();
  const std::string found = find_data_folder(program_folder);
  return found.empty() ? program_folder + "/.lockstep/data" : found;
}

}  // namespace lockstep
