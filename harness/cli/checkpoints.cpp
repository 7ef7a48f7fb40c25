// `lockstep checkpoints OUT`: which checkpoints of each run count, read to their last byte.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/shard.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Listed {
  std::string name, problem;
  checkpoint::Standing standing = checkpoint::Standing::unfinished;
  int64_t step = 0;
  int ranks = 0;
  uint64_t bytes = 0;
  bool newest = false, best = false;
};

/// One folder of checkpoints.
struct Root {
  std::string path;
  std::vector<Listed> checkpoints;    ///< newest first
  std::vector<std::string> problems;  ///< of the folder and its pointers
};

const char* word_of(checkpoint::Standing standing) {
  switch (standing) {
    case checkpoint::Standing::whole:
      return "whole";
    case checkpoint::Standing::damaged:
      return "damaged";
    case checkpoint::Standing::unfinished:
      return "unfinished";
    case checkpoint::Standing::newer:
      return "newer format";
    case checkpoint::Standing::refusing:
      return "unreadable";
  }
  return "";
}

/// Reads each of its files. Returns the first problem.
std::string damage_in(const std::string& root, const checkpoint::Entry& entry) {
  const checkpoint::Manifest& m = entry.manifest;
  for (int rank = 0; rank < m.world_size; ++rank) {
    const checkpoint::ReadShard shard = checkpoint::read_shard(checkpoint::posix_storage(), root + "/" + entry.name,
                                                               m.files[static_cast<std::size_t>(rank)], checkpoint::identity_of(m, rank), {});
    if (!shard.problem.empty()) return shard.problem;
  }
  return "";
}

Root look_into(const std::string& path) {
  Root root{path, {}, {}};
  checkpoint::Storage& disk = checkpoint::posix_storage();
  checkpoint::Survey found = checkpoint::survey(disk, path, true);
  if (found.failure) root.problems.push_back(found.failure.text);
  for (checkpoint::Entry& entry : found.entries) {
    if (entry.standing != checkpoint::Standing::whole) continue;
    entry.problem = damage_in(path, entry);
    if (!entry.problem.empty()) entry.standing = checkpoint::Standing::damaged;
  }
  const checkpoint::ReadPointer latest_pointer = checkpoint::read_pointer(disk, path, checkpoint::kLatest),
                                best_pointer = checkpoint::read_pointer(disk, path, checkpoint::kBest);
  const checkpoint::Entry *const newest = checkpoint::newest_of(found), *const best = checkpoint::best_of(found, best_pointer);
  for (const checkpoint::Entry& entry : found.entries) {
    Listed listed{entry.name, entry.problem, entry.standing, entry.commit.save_id.empty() ? entry.parsed.step : entry.commit.step,
                  entry.commit.save_id.empty() ? 0 : entry.commit.world_size, 0, &entry == newest, &entry == best};
    for (const checkpoint::FileEntry& file : entry.manifest.files) listed.bytes += file.length;
    root.checkpoints.push_back(std::move(listed));
  }
  const auto pointer_problem = [&](std::string_view name, const checkpoint::ReadPointer& read, const checkpoint::Entry* expected) {
    if (expected == nullptr && read.missing) return;
    if (!read.problem.empty())
      root.problems.push_back(read.problem);
    else if (expected == nullptr || read.pointer.save_id != expected->commit.save_id)
      root.problems.push_back(fmt::format("{} names {}; {}", name, in_quotes(read.pointer.checkpoint),
                                          expected == nullptr ? "no checkpoint is whole"
                                                              : fmt::format("{} is the one: the next save or resumption mends it", expected->name)));
  };
  pointer_problem(checkpoint::kLatest, latest_pointer, newest);
  pointer_problem(checkpoint::kBest, best_pointer, best);
  return root;
}

/// The folders of checkpoints at a path: it is one, or a run's folder, or that of a matrix.
std::vector<std::string> roots_at(const std::string& path) {
  std::error_code unseen;
  if (!fs::is_directory(path, unseen))
    throw ConfigError(path + ": no such folder; give a folder of results, a run's folder or a folder of checkpoints");
  if (fs::is_directory(path + "/checkpoints", unseen)) return {path + "/checkpoints"};
  std::vector<std::string> roots;
  for (fs::directory_iterator at(path + "/runs", unseen), end; !unseen && at != end; at.increment(unseen)) {
    const std::string root = at->path().string() + "/checkpoints";
    if (std::error_code none; fs::is_directory(root, none)) roots.push_back(root);
  }
  std::ranges::sort(roots);
  if (!roots.empty()) return roots;
  const checkpoint::Survey found = checkpoint::survey(checkpoint::posix_storage(), path, false);
  return found.entries.empty() ? std::vector<std::string>{} : std::vector<std::string>{path};
}

std::string text_of(const Root& root) {
  const auto whole = std::ranges::count(root.checkpoints, checkpoint::Standing::whole, &Listed::standing);
  std::string text = fmt::format("{}: {}\n", root.path, whole == 0 ? std::string("no checkpoint counts") : counted(whole, "checkpoint") + (whole == 1 ? " counts" : " count"));
  std::size_t name_width = 0;
  for (const Listed& one : root.checkpoints) name_width = std::max(name_width, one.name.size());
  for (const Listed& one : root.checkpoints) {
    std::string state = word_of(one.standing);
    if (one.newest) state += ", newest";
    if (one.best) state += ", best";
    if (!one.problem.empty()) state += ": " + one.problem;
    text += fmt::format("  {:<{}}  {:>8}  {:>14}  {}\n", one.name, name_width, one.ranks > 0 ? counted(one.ranks, "rank") : "",
                        one.bytes > 0 ? with_commas(static_cast<int64_t>(one.bytes)) + " B" : "", state);
  }
  for (const std::string& problem : root.problems) text += "  " + problem + "\n";
  return text;
}

nlohmann::json json_of(const Root& root) {
  nlohmann::json checkpoints = nlohmann::json::array();
  for (const Listed& one : root.checkpoints) {
    checkpoints.push_back({{"name", one.name}, {"step", one.step}, {"ranks", one.ranks}, {"bytes", one.bytes},
                           {"state", word_of(one.standing)}, {"newest", one.newest}, {"best", one.best}, {"problem", one.problem}});
  }
  return {{"folder", root.path}, {"checkpoints", checkpoints}, {"problems", root.problems}};
}

}  // namespace

int checkpoints_command(const CheckpointsOptions& options, const Console& console) {
  std::string folder = options.dir;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  std::vector<Root> roots;
  for (const std::string& path : roots_at(folder)) roots.push_back(look_into(path));
  if (options.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const Root& root : roots) all.push_back(json_of(root));
    console.out << clean_json(all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else {
    for (const Root& root : roots) console.out << clean_text(text_of(root));
    if (roots.empty()) console.out << clean_text(folder) << ": no run in it has checkpoints\n";
  }
  if (roots.empty()) return kExitNothing;
  const auto sound = [](const Root& root) {
    return root.problems.empty() && std::ranges::all_of(root.checkpoints, [](const Listed& one) {
      return one.standing == checkpoint::Standing::whole || one.standing == checkpoint::Standing::unfinished;
    });
  };
  return std::ranges::all_of(roots, sound) ? kExitAsExpected : kExitUnexpected;
}

}  // namespace lockstep
