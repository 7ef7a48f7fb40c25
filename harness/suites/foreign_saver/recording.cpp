#include "harness/suites/foreign_saver/recording.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <ranges>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/hashing.h"
#include "harness/suites/foreign_saver/system_calls.h"

namespace lockstep::program {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kSecond_ns = 1'000'000'000;

int64_t changed_ns(const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 ? facts.st_mtim.tv_sec * kSecond_ns + facts.st_mtim.tv_nsec : 0;
}

void set_changed(const std::string& path, int64_t ns) {
  const timespec when{ns / kSecond_ns, ns % kSecond_ns};
  const std::array<timespec, 2> both{when, when};
  ::utimensat(AT_FDCWD, path.c_str(), both.data(), 0);
}

void check(const std::error_code& error, const std::string& path) {
  if (error) throw MachineError(path + ": " + error.message());
}

FolderEntry entry_of(const fs::directory_entry& at, const std::string& folder) {
  const std::string path = at.path().string();
  FolderEntry entry{path.substr(folder.size()), power::NodeType::file, "", file_at(path, false), changed_ns(path)};
  std::error_code error;
  if (at.is_symlink(error)) {
    entry.type = power::NodeType::symlink;
    entry.bytes = fs::read_symlink(at.path(), error).string();
  } else if (at.is_directory(error)) {
    entry.type = power::NodeType::folder;
  } else {
    const FileText text = read_file(path);
    if (!text) throw MachineError(path + ": cannot be read");
    entry.bytes = text.text;
  }
  check(error, path);
  return entry;
}

}  // namespace

std::vector<FolderEntry> read_folder(const std::string& folder) {
  std::vector<FolderEntry> entries{{"", power::NodeType::folder, "", file_at(folder, true), changed_ns(folder)}};
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->is_symlink() || at->is_directory() || at->is_regular_file()) entries.push_back(entry_of(*at, folder));
  }
  check(error, folder);
  std::ranges::sort(entries, {}, &FolderEntry::path);
  return entries;
}

void write_folder(const std::string& folder, const std::vector<FolderEntry>& entries) {
  make_empty(folder);
  std::map<uint64_t, std::string> first_name;
  for (const FolderEntry& entry : entries) {
    const std::string path = folder + entry.path;
    std::error_code error;
    if (entry.type == power::NodeType::folder) {
      fs::create_directory(path, error);
    } else if (entry.type == power::NodeType::symlink) {
      fs::create_symlink(entry.bytes, path, error);
    } else if (const auto [at, is_first] = first_name.try_emplace(entry.file, path); !is_first && entry.file != 0) {
      fs::create_hard_link(at->second, path, error);
    } else {
      std::ofstream stream(path, std::ios::binary | std::ios::trunc);
      stream << entry.bytes;
      if (!stream.flush()) throw MachineError(path + ": cannot be written");
    }
    check(error, path);
  }
  // A folder after what it holds.
  for (const FolderEntry& entry : entries | std::views::reverse) {
    if (entry.type != power::NodeType::symlink && entry.changed_ns > 0) set_changed(folder + entry.path, entry.changed_ns);
  }
}

void copy_folder(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
  if (error) throw MachineError(to + ": cannot be copied from " + from + ": " + error.message());
  // A resumption may go by times. A folder's changes when something is put into it.
  std::vector<std::string> below{""};
  for (fs::recursive_directory_iterator at(from, error), end; !error && at != end; at.increment(error)) {
    if (!at->is_symlink()) below.push_back(at->path().string().substr(from.size()));
  }
  check(error, from);
  for (const std::string& path : below | std::views::reverse) set_changed(to + path, changed_ns(from + path));
}

void make_empty(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  fs::create_directories(folder, error);
  if (error) throw MachineError(folder + ": cannot be made empty: " + error.message());
}

namespace {

constexpr int64_t kBefore = 10, kAfter = 8;

std::string mark_of(InjectedFault injected) {
  switch (injected) {
    case InjectedFault::kill: return "killed before it";
    case InjectedFault::kill_all: return "all killed before it";
    case InjectedFault::fail:
    case InjectedFault::fail_space: return "made to fail";
    case InjectedFault::shorten: return "cut short";
    case InjectedFault::hold: return "held before it";
    case InjectedFault::nothing: break;
  }
  return "";
}

}  // namespace

std::string process_words(const std::string& process, const std::vector<std::string>& writers) {
  const auto at = std::ranges::find(writers, process);
  return at == writers.end() ? "process " + process : fmt::format("writer {}", at - writers.begin());
}

void write_recording(const TracedRun& run, const std::string& out_dir) {
  std::string lines, data;
  for (const Operation& operation : run.operations) {
    nlohmann::ordered_json line{{"number", operation.number},
                                {"process", operation.process},
                                {"index", operation.index},
                                {"kind", name_of(operation.kind)},
                                {"call", operation.call},
                                {"path", operation.path}};
    if (!operation.to.empty()) line["to"] = operation.to;
    if (operation.kind == OperationKind::open) line["flags"] = operation.flags;
    if (operation.offset >= 0) line["offset"] = operation.offset;
    if (operation.bytes >= 0) line["bytes"] = operation.bytes;
    line["result"] = operation.result;
    const bool writes = operation.kind == OperationKind::write || operation.kind == OperationKind::copy;
    if (writes && operation.result > 0 && !operation.data.empty()) {
      const std::string written = operation.data.substr(0, static_cast<std::size_t>(operation.result));
      line["data_at"] = data.size();
      line["data_xxh3"] = hash_in_hex(written);
      data += written;
    }
    lines += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  write_file_atomically(out_dir + "/operations.jsonl", lines);
  write_file_atomically(out_dir + "/operations.data", data);
}

std::vector<TimelineStep> timeline_of(const TracedRun& run, const PlannedFailure& planned,
                                      const std::vector<std::string>& writers) {
  std::vector<TimelineStep> steps;
  const Operation* held = nullptr;
  const int64_t last = std::max(run.acted_at, run.released_at) + kAfter;
  for (const Operation& operation : run.operations) {
    if (held != nullptr && operation.number == run.released_at)
      steps.push_back({process_words(held->process, writers), words_of(*held), "goes on"});
    if (operation.number < run.acted_at - kBefore || operation.number > last) continue;
    const bool here = operation.number == run.acted_at && planned.kind != nullptr;
    steps.push_back({process_words(operation.process, writers), words_of(operation),
                     here ? mark_of(planned.intervention.injected) : operation.result < 0 ? "failed" : ""});
    if (here && planned.intervention.injected == InjectedFault::hold) held = &operation;
  }
  if (held != nullptr && run.released_at > static_cast<int64_t>(run.operations.size()))
    steps.push_back({process_words(held->process, writers), words_of(*held), "goes on"});
  return steps;
}

}  // namespace lockstep::program
