#include "harness/base/atomic_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Fills the open temporary file, closes it and gives it its name. Returns what failed and why, or nothing.
std::string put_in_place(int file, const std::string& temporary, const std::string& path,
                         const std::string& content, Files& files) {
  const char* doing = "write";
  std::error_code error = files.write(file, content);
  if (!error) {
    doing = "sync";
    error = files.sync(file);
  }
  const std::error_code unclosed = files.close(file);
  if (!error) {
    doing = "close";
    error = unclosed;
  }
  if (!error) {
    doing = "put the finished file in place";
    error = files.rename(temporary, path);
  }
  return error ? fmt::format("cannot {}: {}", doing, error.message()) : "";
}

void sync_folder_of(const std::string& path, Files& files) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  int file = -1;
  if (const auto error = files.open(folder, OpenFor::syncing, file)) {
    throw MachineError(folder + ": cannot open: " + error.message());
  }
  const std::error_code error = files.sync(file);
  files.close(file);
  // Some file systems know no fsync of folders and say EINVAL.
  if (error && error != std::errc::invalid_argument) {
    throw MachineError(folder + ": cannot sync: " + error.message());
  }
}

std::optional<long> number_in(std::string_view digits) {
  long number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return std::nullopt;
  return number;
}

struct TemporaryName {
  std::string_view of;  ///< the file that was to be written
  long process = 0;
};

/// The parts of what `temporary_name` gave; nothing if the name is none of those.
std::optional<TemporaryName> parts_of(std::string_view name) {
  constexpr std::string_view kEnd = ".tmp";
  if (!name.ends_with(kEnd)) return std::nullopt;
  name.remove_suffix(kEnd.size());
  const std::size_t count = name.rfind('.');
  if (count == std::string_view::npos || count == 0 || !number_in(name.substr(count + 1)))
    return std::nullopt;
  const std::size_t process = name.rfind('.', count - 1);
  if (process == std::string_view::npos) return std::nullopt;
  const std::optional<long> number = number_in(name.substr(process + 1, count - process - 1));
  if (!number) return std::nullopt;
  return TemporaryName{name.substr(0, process), *number};
}

/// Does another process with this number live, so that it may still be writing? An earlier process that had
/// our own number cannot.
bool lives(long process) {
  if (process == ::getpid()) return false;
  return ::kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM;
}

}  // namespace

void write_file_atomically(const std::string& path, const std::string& content, Files& files, OpenFor purpose) {
  const std::string temporary = temporary_name(path);
  int file = -1;
  if (const auto error = files.open(temporary, purpose, file)) {
    throw MachineError(path + ": cannot create: " + error.message());
  }
  if (const std::string problem = put_in_place(file, temporary, path, content, files); !problem.empty()) {
    const std::error_code left = files.remove(temporary);
    const bool stays = left && left != std::errc::no_such_file_or_directory;
    throw MachineError(path + ": " + problem +
                       (stays ? "; " + temporary + " stays, it cannot be removed: " + left.message() : ""));
  }
  sync_folder_of(path, files);
}

std::error_code make_durable_folders(const std::string& path, Files& files) {
  std::vector<std::string> made;
  std::error_code unseen;
  std::filesystem::path at(path);
  if (!at.has_filename()) at = at.parent_path();
  for (; !at.empty() && !std::filesystem::exists(at, unseen); at = at.parent_path()) made.push_back(at.string());
  if (const auto error = files.make_folders(path)) return error;
  for (const std::string& folder : made) sync_folder_of(folder, files);
  return {};
}

std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return fmt::format("{}.{}.{}.tmp", path, ::getpid(), counter++);
}

int remove_left_temporaries(const std::string& folder, const std::function<bool(std::string_view)>& is_ours,
                            Files& files) {
  std::vector<std::string> left;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const std::optional<TemporaryName> parts = parts_of(name);
    std::error_code unknown;
    // Process 0 would ask for our own group.
    if (!parts || !is_ours(parts->of) || parts->process <= 0 || lives(parts->process)) continue;
    if (at->is_regular_file(unknown)) left.push_back(at->path().string());
  }
  int removed = 0;
  for (const std::string& path : left) removed += files.remove(path) ? 0 : 1;
  return removed;
}

}  // namespace lockstep
