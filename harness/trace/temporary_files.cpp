#include "harness/trace/temporary_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Files that are written whole under OUT, OUT/runs/<id> and OUT/replay/<id>.
constexpr std::string_view kWritten[] = {"results.json", "report.html", "junit.xml",   "summary.md",
                                         "report.txt",   "matrix.json", "judged.json", "looks.json",
                                         "run.json",     "done",        "replay.yaml"};

std::optional<long> number_in(std::string_view digits) {
  long number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return std::nullopt;
  return number;
}

bool is_written(std::string_view name) {
  constexpr std::string_view kRank = "rank-", kResult = ".result.json";
  if (std::find(std::begin(kWritten), std::end(kWritten), name) != std::end(kWritten)) return true;
  if (!name.starts_with(kRank) || !name.ends_with(kResult) || name.size() < kRank.size() + kResult.size()) {
    return false;
  }
  return number_in(name.substr(kRank.size(), name.size() - kRank.size() - kResult.size())).has_value();
}

/// The process that named the file, if it is one of ours.
std::optional<long> process_of(std::string_view name) {
  constexpr std::string_view kEnd = ".tmp";
  if (!name.ends_with(kEnd)) return std::nullopt;
  name.remove_suffix(kEnd.size());
  const std::size_t count = name.rfind('.');
  if (count == std::string_view::npos || count == 0 || !number_in(name.substr(count + 1)))
    return std::nullopt;
  const std::size_t process = name.rfind('.', count - 1);
  if (process == std::string_view::npos || !is_written(name.substr(0, process))) return std::nullopt;
  return number_in(name.substr(process + 1, count - process - 1));
}

/// Of the living that may still be writing: an earlier process of our own number cannot.
bool lives(long process) {
  if (process == ::getpid()) return false;
  return ::kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM;
}

}  // namespace

std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return fmt::format("{}.{}.{}.tmp", path, ::getpid(), counter++);
}

int remove_left_temporaries(const std::string& folder) {
  std::vector<fs::path> left;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const std::optional<long> process = process_of(name);
    std::error_code unknown;
    // Process 0 would ask for our own group.
    if (process && *process > 0 && !lives(*process) && at->is_regular_file(unknown))
      left.push_back(at->path());
  }
  int removed = 0;
  for (const fs::path& path : left) removed += fs::remove(path, error) ? 1 : 0;
  return removed;
}

}  // namespace lockstep
