#pragma once
// Which configs of the repository hold a suite and no matrix.

#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep::support {

/// Does a line of the file begin with the key `suite`?
inline bool is_suite_config(const std::filesystem::path& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("suite:")) return true;
  }
  return false;
}

}  // namespace lockstep::support
