#include "harness/suites/foreign_saver/power_loss.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <linux/fs.h>
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

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
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

/// "writer 1".
static std::string process_words(const std::string& process, const std::vector<std::string>& writers) {
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

using power::DiskModel;
using power::NodeType;
using power::PowerDisk;
using power::Remains;

namespace {

/// Into how many places of one write a tear falls, and how many disks of one moment are told apart.
constexpr std::size_t kMostCuts = 3, kMostWays = 400, kFewestWays = 40;
/// Of one moment: so many bytes are hashed to tell disks apart.
constexpr std::size_t kMostHashed_bytes = 4'000'000'000;
constexpr int64_t kBetween_ns = 1'000'000;  ///< of the times of two operations on a disk that is left

std::string disk_path(const std::string& path) { return path == "." ? "" : "/" + path; }
std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
bool is_name(const Operation& operation) {
  using enum OperationKind;
  return operation.kind == rename || operation.kind == remove || operation.kind == make_dir ||
         (operation.kind == open && !operation.existed);
}
bool changes_files(const Operation& operation) {
  using enum OperationKind;
  if (operation.kind == open) return !operation.existed || (operation.flags & O_TRUNC) != 0;
  return operation.kind != sync && operation.kind != close;
}
bool makes_durable(const Operation& operation) {
  return operation.kind == OperationKind::sync && operation.call != "sync_file_range" && operation.call != "msync";
}
std::string with_number(const Operation& operation) {
  return fmt::format("{} (operation {})", words_of(operation), operation.number);
}

}  // namespace

/// The recorded operations on a disk of one model.
class PowerLoss::Replay {
 public:
  Replay(const Recording& recording, DiskModel model) : disk_(model, kMostCuts) {
    for (const FolderEntry& entry : recording.before) {
      if (entry.path.empty()) {
        nodes_[entry.file] = 0;
        times_[0] = entry.changed_ns;
      } else if (const auto known = nodes_.find(entry.file); known != nodes_.end() && entry.type == NodeType::file) {
        disk_.stand(entry.path, known->second);
      } else {
        const int node = disk_.stand(entry.path, entry.type, entry.bytes);
        nodes_[entry.file] = node;
        times_[node] = entry.changed_ns;
      }
    }
  }

  const PowerDisk& disk() const { return disk_; }
  /// Of what stood there before the save.
  int64_t changed_ns(int node) const {
    const auto at = times_.find(node);
    return at == times_.end() ? 0 : at->second;
  }

  /// Why the operation cannot be followed; empty: it was.
  std::string apply(const Operation& operation) {
    if (operation.result < 0) return "";
    using enum OperationKind;
    const int number = static_cast<int>(operation.number);
    switch (operation.kind) {
      case open: return opened(number, operation);
      case write:
      case copy: return written(number, operation);
      case resize: return resized(number, operation);
      case sync: return synced(operation);
      case close: return "";
      case rename: return renamed(number, operation);
      case remove:
        if (disk_.find(disk_path(operation.path)) < 0) return "it was not known";
        disk_.remove(number, disk_path(operation.path));
        return "";
      case make_dir:
        if (!has_folder(operation.path)) return "its folder is not known";
        nodes_[operation.file] = disk_.make(number, disk_path(operation.path), NodeType::folder);
        return "";
      case map: return "";  // the tracer notes it
    }
    return "";
  }

 private:
  bool has_folder(const std::string& path) const { return disk_.find(folder_of(disk_path(path))) >= 0; }
  /// -1: not known.
  int node_of(const Operation& operation) const {
    if (const auto known = nodes_.find(operation.file); operation.file != 0 && known != nodes_.end()) return known->second;
    return -1;
  }

  std::string opened(int number, const Operation& operation) {
    const std::string path = disk_path(operation.path);
    const bool unnamed = (operation.flags & O_TMPFILE) == O_TMPFILE;
    const int known = node_of(operation), named = disk_.find(path);
    // A number of a file that is gone may be given again.
    if (unnamed || (!operation.existed && (named < 0 || named != known))) {
      if (!unnamed && !has_folder(operation.path)) return "its folder is not known";
      nodes_[operation.file] = disk_.make(number, unnamed ? "" : path, NodeType::file);
      return "";
    }
    if (known < 0) return "it was made where nobody looked";
    if ((operation.flags & O_TRUNC) != 0) disk_.resize(number, known, 0);
    return "";
  }

  std::string written(int number, const Operation& operation) {
    if (operation.result == 0 && operation.call != "ioctl") return "";
    const int node = node_of(operation);
    const auto bytes = static_cast<std::size_t>(operation.result);
    if (node < 0) return "it was made where nobody looked";
    if (operation.offset < 0 || operation.call == "ioctl" || operation.data.size() < bytes) return "what it wrote is not known";
    disk_.write(number, node, static_cast<uint64_t>(operation.offset), operation.data.substr(0, bytes));
    if (operation.synced) disk_.sync_file(node);
    return "";
  }

  std::string resized(int number, const Operation& operation) {
    const int node = node_of(operation);
    if (node < 0) return "it was made where nobody looked";
    if (operation.call == "fallocate") {
      if ((operation.flags & FALLOC_FL_KEEP_SIZE) == operation.flags && operation.flags != 0) return "";
      if (operation.flags != 0) return fmt::format("fallocate with mode {} is not followed", operation.flags);
    }
    disk_.resize(number, node, static_cast<uint64_t>(operation.bytes), operation.call == "fallocate");
    return "";
  }

  std::string synced(const Operation& operation) {
    if (!makes_durable(operation)) return "";
    if (operation.call == "sync" || operation.call == "syncfs") {
      disk_.sync_all();
      return "";
    }
    int node = operation.path == "." ? 0 : node_of(operation);
    if (node < 0) node = disk_.find(disk_path(operation.path));
    if (node < 0) return "it was made where nobody looked";
    disk_.sync_file(node);
    disk_.sync_folder(node);
    return "";
  }

  std::string renamed(int number, const Operation& operation) {
    const std::string from = disk_path(operation.path), to = disk_path(operation.to);
    if (operation.to.empty()) return "it left the folder";
    if (!has_folder(operation.to)) return "its folder is not known";
    if (operation.call.starts_with("symlink")) {
      nodes_[operation.file] = disk_.make(number, to, NodeType::symlink, operation.data);
      return "";
    }
    if (operation.call.starts_with("link")) {
      const int node = node_of(operation);
      if (node < 0) return "it was made where nobody looked";
      disk_.link(number, node, to);
      return "";
    }
    if (operation.path.empty() || disk_.find(from) < 0) return "it came from elsewhere";
    if ((operation.flags & RENAME_WHITEOUT) != 0) return "it left a whiteout";
    if ((operation.flags & RENAME_EXCHANGE) != 0)
      disk_.exchange(number, from, to);
    else
      disk_.rename(number, from, to);
    return "";
  }

  PowerDisk disk_;
  std::map<uint64_t, int> nodes_;
  std::map<int, int64_t> times_;
};

PowerLoss::PowerLoss(const Recording& recording) : recording_(recording) {
  for (const std::string& note : recording.run.notes) unknown_.insert(note);
  Replay replay(recording, DiskModel::least);
  for (const Operation& operation : recording.run.operations) {
    const std::string problem = replay.apply(operation);
    if (!problem.empty()) unknown_.insert(words_of(operation) + ": " + problem);
  }
  if (unknown_.empty()) check_end(replay);
}

/// Whatever the tracer did not see would show as a difference.
void PowerLoss::check_end(const Replay& replay) {
  std::map<std::string, const FolderEntry*> found;
  for (const FolderEntry& entry : recording_.after) {
    if (!entry.path.empty()) found[entry.path] = &entry;
  }
  const auto differs = [&](const std::string& path) {
    unknown_.insert(fmt::format("{} is not what the operations that were seen make of it", path.substr(1)));
  };
  for (const power::Standing& each : replay.disk().standing(replay.disk().whole())) {
    const auto at = found.find(each.path);
    if (at == found.end() || at->second->type != each.type || at->second->bytes != each.bytes) differs(each.path);
    if (at != found.end()) found.erase(at);
  }
  for (const auto& [path, entry] : found) differs(path);
}

/// Before each operation that makes something durable, and at the end: a disk that may be left in between may be left there, too.
std::vector<std::size_t> PowerLoss::moments() const {
  const std::vector<Operation>& operations = recording_.run.operations;
  std::vector<std::size_t> moments{operations.size()};
  for (std::size_t i = operations.size(); i > 0; --i) {
    const Operation& operation = operations[i - 1];
    if (makes_durable(operation) || operation.synced || operation.kind == OperationKind::rename) moments.push_back(i - 1);
  }
  return moments;
}

const Operation* PowerLoss::kept_after(const Operation& gone, const std::map<int, std::string>& lost, std::size_t moment) const {
  const Operation* kept = nullptr;
  for (std::size_t i = static_cast<std::size_t>(gone.number); i < moment; ++i) {
    const Operation& later = recording_.run.operations[i];
    const bool is_lost = lost.contains(static_cast<int>(later.number));
    if (later.result < 0 || !changes_files(later) || is_lost || (is_name(gone) && later.path == gone.path)) continue;
    if (is_name(later)) return &later;
    if (kept == nullptr) kept = &later;
  }
  return kept;
}

LeftDisks PowerLoss::disks(std::size_t most) const {
  const std::vector<Operation>& operations = recording_.run.operations;
  std::size_t bytes = 1;
  for (const Operation& operation : operations) bytes += operation.data.size();
  const std::size_t most_ways = std::clamp(kMostHashed_bytes / bytes, kFewestWays, kMostWays);
  enum Part { told, reordered, cut_off, kParts };
  std::vector<std::vector<LeftDisk>> groups[kParts];
  LeftDisks left;
  std::set<std::string> seen;
  const std::vector<std::size_t> moments = this->moments();
  for (const DiskModel model : power::kDiskModels) {
    Replay replay(recording_, model);
    std::size_t done = 0;
    for (auto moment = moments.rbegin(); moment != moments.rend(); ++moment) {
      for (; done < *moment; ++done) replay.apply(operations[done]);
      const bool is_told = *moment == operations.size();
      bool every = false;
      std::vector<Remains> ways = replay.disk().ways(most_ways, *moment, every);
      left.every = left.every && every;
      std::ranges::stable_sort(ways, {}, [](const Remains& each) {
        const int64_t lost = power::lost_count(each);
        return std::min(lost, static_cast<int64_t>(each.size()) - lost);
      });
      std::vector<LeftDisk> of_part[kParts];
      int number = 0;
      for (Remains& remains : ways) {
        if (!seen.insert(replay.disk().hash(remains) + (is_told ? "+" : "-")).second) continue;
        const std::map<int, std::string> lost = replay.disk().lost(remains);
        const bool behind = !lost.empty() && kept_after(operations[static_cast<std::size_t>(lost.begin()->first) - 1], lost, *moment) != nullptr;
        const std::string name = fmt::format("{}:{}:{}", name_of(model), is_told ? "end" : std::to_string(*moment + 1), ++number);
        of_part[is_told ? told : behind ? reordered : cut_off].push_back({name, model, *moment, std::move(remains), is_told});
        ++left.all;
      }
      for (int part = 0; part < kParts; ++part) groups[part].push_back(std::move(of_part[part]));
    }
  }
  const auto take = [&](std::vector<std::vector<LeftDisk>>& part, std::size_t until) {
    for (bool more = true; more && left.disks.size() < until;) {
      more = false;
      for (std::vector<LeftDisk>& group : part) {
        if (group.empty() || left.disks.size() >= until) continue;
        left.disks.push_back(std::move(group.front()));
        group.erase(group.begin());
        more = true;
      }
    }
  };
  take(groups[told], (most + 1) / 2);
  for (auto& part : groups) {
    if (&part != &groups[told]) take(part, most);
  }
  take(groups[told], most);
  return left;
}

PowerLoss::Replay PowerLoss::replay_to(const LeftDisk& disk) const {
  Replay replay(recording_, disk.model);
  for (std::size_t i = 0; i < disk.moment; ++i) replay.apply(recording_.run.operations[i]);
  return replay;
}

std::vector<FolderEntry> PowerLoss::files(const LeftDisk& disk) const {
  const Replay replay = replay_to(disk);
  std::vector<FolderEntry> entries{{"", NodeType::folder, "", 0, 0}};
  for (power::Standing& each : replay.disk().standing(disk.remains)) {
    const int64_t changed_ns = each.changed > 0 ? recording_.began_ns + each.changed * kBetween_ns : replay.changed_ns(each.node);
    entries.push_back({each.path, each.type, std::move(each.bytes), static_cast<uint64_t>(each.node) + 1, changed_ns});
  }
  return entries;
}

std::string PowerLoss::words(const LeftDisk& disk) const {
  const std::vector<Operation>& operations = recording_.run.operations;
  const Replay replay = replay_to(disk);
  const std::map<int, std::string> lost = replay.disk().lost(disk.remains);
  const std::string when = disk.told ? "The power goes after the save reported success"
                                     : fmt::format("The power goes before operation {}, {}", operations[disk.moment].number,
                                                   words_of(operations[disk.moment]));
  std::string text = fmt::format("{} ({})", when, words_of(disk.model));
  if (lost.empty()) return text + ": all that was done is there";
  // The last one that is gone, or one before it that stands behind something that was kept: after a success none may be gone.
  const Operation* gone = &operations[static_cast<std::size_t>(lost.rbegin()->first) - 1];
  const Operation* kept = kept_after(*gone, lost, disk.moment);
  for (auto each = lost.rbegin(); each != lost.rend() && kept == nullptr && !disk.told; ++each) {
    kept = kept_after(operations[static_cast<std::size_t>(each->first) - 1], lost, disk.moment);
    if (kept != nullptr) gone = &operations[static_cast<std::size_t>(each->first) - 1];
  }
  const std::string torn = lost.at(static_cast<int>(gone->number)).starts_with("torn") ? "torn" : "lost";
  const std::string name = gone->to.empty() ? gone->path : gone->to;
  const std::size_t slash = name.rfind('/');
  const std::string sync = is_name(*gone) ? fmt::format("an fsync of the folder {}", slash == std::string::npos ? "." : name.substr(0, slash))
                                          : "an fsync of " + gone->path;
  text += fmt::format(": {}{} {}", with_number(*gone), lost.size() > 1 ? fmt::format(" and {} more were", lost.size() - 1) : " was", torn);
  if (kept != nullptr)
    return text + fmt::format(", and {}, which came later, was kept: nothing orders the two; {} between them would", with_number(*kept), sync);
  if (disk.told) return text + fmt::format(": nothing made it durable; {} before success is reported would", sync);
  return text + ", and so was all that came later";
}

std::vector<TimelineStep> PowerLoss::timeline(const LeftDisk& disk, const std::vector<std::string>& writers) const {
  constexpr std::size_t kMost = 40;
  Replay replay(recording_, disk.model);
  for (std::size_t i = 0; i < disk.moment; ++i) replay.apply(recording_.run.operations[i]);
  const std::map<int, std::string> lost = replay.disk().lost(disk.remains);
  std::vector<TimelineStep> steps;
  for (std::size_t i = disk.moment > kMost ? disk.moment - kMost : 0; i < disk.moment; ++i) {
    const Operation& operation = recording_.run.operations[i];
    const auto mark = lost.find(static_cast<int>(operation.number));
    steps.push_back({process_words(operation.process, writers), words_of(operation),
                     mark != lost.end() ? mark->second : operation.result < 0 ? "failed" : ""});
  }
  steps.push_back({"machine", "the power goes", disk.told ? "success was reported" : ""});
  return steps;
}

bool PowerLoss::names_its_folder() const {
  const auto holds = [&](const std::string& text) { return text.find(recording_.out) != std::string::npos; };
  return std::ranges::any_of(recording_.run.operations, holds, &Operation::data) ||
         std::ranges::any_of(recording_.before, holds, &FolderEntry::bytes);
}

bool PowerLoss::is_like(const PowerLoss& other) const {
  return std::ranges::equal(recording_.run.operations, other.recording_.run.operations, [](const Operation& a, const Operation& b) {
    return a.kind == b.kind && (a.result < 0) == (b.result < 0) && a.existed == b.existed;
  });
}

}  // namespace lockstep::program
