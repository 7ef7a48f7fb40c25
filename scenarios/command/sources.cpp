#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <sstream>

#include "harness/base/errors.h"
#include "harness/base/hex.h"
#include "harness/base/read_file.h"
#include "scenarios/command/spec.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 2000;
constexpr uint64_t kMostBytes = uint64_t{32} << 20;

bool is_source(const fs::path& file) {
  constexpr std::array<std::string_view, 18> kEnds = {".py",  ".pyi", ".pyx", ".sh",  ".bash", ".yaml", ".yml", ".toml", ".cfg",
                                                      ".ini", ".json", ".c",  ".cc", ".cpp",  ".cu",   ".cuh", ".h",    ".hpp"};
  return std::ranges::find(kEnds, file.extension().string()) != kEnds.end();
}

/// Folders of results, caches, environments and version control change without changing what is trained.
bool is_passed_over(const fs::path& folder) {
  constexpr std::array<std::string_view, 8> kNames = {"__pycache__", "node_modules", "site-packages", "out", "outputs", "build", "wandb", "lightning_logs"};
  const std::string name = folder.filename().string();
  std::error_code error;
  return name.starts_with('.') || std::ranges::find(kNames, name) != kNames.end() || fs::exists(folder / "pyvenv.cfg", error) ||
         fs::exists(folder / "matrix.json", error);
}

/// Folders of the files that the command's words name; without any, the folder that it runs in.
std::set<fs::path> script_folders(const CommandConfig& command) {
  std::set<fs::path> folders;
  std::istringstream words(command.command);
  for (std::string word; words >> word;) {
    std::erase_if(word, [](char c) { return c == '"' || c == '\''; });
    const fs::path path = (fs::path(command.folder) / word).lexically_normal();
    std::error_code error;
    if (is_source(path) && fs::is_regular_file(path, error)) folders.insert(path.parent_path());
  }
  if (folders.empty()) folders.insert(fs::path(command.folder));
  return folders;
}

class Sources {
 public:
  void add_folder(const fs::path& folder) {
    found_.folders.push_back(folder.string());
    std::vector<fs::path> files;
    std::error_code error;
    fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
    for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
      std::error_code unknown;
      if (at->is_directory(unknown)) {
        if (is_passed_over(at->path())) at.disable_recursion_pending();
      } else if (is_source(at->path()) && at->is_regular_file(unknown)) {
        files.push_back(at->path());
      }
      if (files.size() > 10 * kMostFiles) break;
    }
    std::ranges::sort(files);
    for (const fs::path& file : files) add_file(file, file.lexically_relative(folder).string(), false);
  }

  void add_listed(const CommandConfig& command) {
    std::istringstream patterns(command.files);
    for (std::string pattern; patterns >> pattern;) {
      const std::string whole = (fs::path(command.folder) / pattern).string();
      glob_t matches{};
      const int status = ::glob(whole.c_str(), 0, nullptr, &matches);
      const std::vector<std::string> paths(matches.gl_pathv, matches.gl_pathv + (status == 0 ? matches.gl_pathc : 0));
      ::globfree(&matches);
      if (paths.empty()) throw ConfigError(fmt::format("files: there is no {}", whole));
      for (const std::string& path : paths) add_file(path, fs::path(path).lexically_relative(command.folder).string(), true);
    }
  }

  CommandSources done() {
    found_.hash = hash_in_hex(content_);
    return std::move(found_);
  }

 private:
  void add_file(const fs::path& path, const std::string& name, bool listed) {
    if (std::ranges::find(found_.files, path.string()) != found_.files.end()) return;
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (!listed && (found_.files.size() >= kMostFiles || found_.bytes + bytes > kMostBytes)) {
      found_.all = false;
      return;
    }
    const FileText file = read_file(path.string());
    if (!file) throw ConfigError(fmt::format("{} {}", path.string(), file.problem));
    content_ += name + "\n" + hash_in_hex(file.text) + "\n";
    found_.bytes += file.text.size();
    found_.files.push_back(path.string());
  }

  CommandSources found_;
  std::string content_;
};

}  // namespace

CommandSources sources_of(const CommandConfig& command) {
  std::error_code error;
  if (!fs::is_directory(command.folder, error)) throw ConfigError(fmt::format("folder: there is no folder {}", command.folder));
  Sources sources;
  for (const fs::path& folder : script_folders(command)) sources.add_folder(folder);
  sources.add_listed(command);
  return sources.done();
}

}  // namespace lockstep
