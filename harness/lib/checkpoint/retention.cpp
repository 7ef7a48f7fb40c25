#include "harness/lib/checkpoint/retention.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::checkpoint {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Does a newer whole one of the same step stand beside it?
bool superseded(const Survey& survey, const Entry& entry) {
  return entry.parsed.kind == EntryKind::replaced &&
         std::any_of(survey.entries.begin(), survey.entries.end(), [&](const Entry& other) {
           return other.standing == Standing::whole && other.commit.step == entry.commit.step &&
                  other.commit.epoch == entry.commit.epoch && other.commit.sequence > entry.commit.sequence;
         });
}

/// Is it a damaged one, older than enough that are whole?
bool outlived(const Survey& survey, const Entry& entry, const std::vector<std::string>& kept, int keep_last) {
  if (entry.standing != Standing::damaged || entry.commit.save_id.empty()) return false;
  const auto newer = std::count_if(survey.entries.begin(), survey.entries.end(), [&](const Entry& other) {
    return contains(kept, other.name) && other.commit.sequence > entry.commit.sequence;
  });
  return newer >= keep_last;
}

/// A checkpoint that was to be replaced, and was not, has its name again.
Failure give_back_name(Storage& storage, const std::string& root, const std::string& aside) {
  const EntryName parsed = parse_entry_name(aside);
  const std::string path = root + "/" + checkpoint_name(parsed.epoch, parsed.step);
  PathStatus status;
  const auto error = uninterrupted([&] { return storage.stat(path, status); });
  if (error) return failure_of(path, "look", error);
  return status.exists ? Failure{} : rename_path(storage, root + "/" + aside, path);
}

Failure unlink_file(Storage& storage, const std::string& path) {
  const auto error = uninterrupted([&] { return storage.unlink(path); });
  if (error == std::errc::no_such_file_or_directory) return {};
  return failure_of(path, "remove", error);
}

}  // namespace

std::vector<std::string> names_to_keep(const Survey& survey, int keep_last, const std::string& best) {
  std::vector<const Entry*> whole;
  for (const Entry& entry : survey.entries) {
    if (entry.standing == Standing::whole && !superseded(survey, entry)) whole.push_back(&entry);
  }
  std::vector<std::string> kept;
  const bool best_stands = std::any_of(whole.begin(), whole.end(), [&](const Entry* entry) {
    return !best.empty() && entry->commit.save_id == best;
  });
  std::size_t others = static_cast<std::size_t>(std::max(keep_last - (best_stands ? 1 : 0), 1));
  for (const Entry* entry : whole) {
    const bool is_best = best_stands && entry->commit.save_id == best;
    if (!is_best && others == 0) continue;
    if (!is_best) --others;
    kept.push_back(entry->name);
  }
  return kept;
}

Failure take_away(Storage& storage, const std::string& folder, Durability durability) {
  std::vector<std::string> names;
  if (const auto error = uninterrupted([&] { return storage.list(folder, names); })) {
    return error == std::errc::no_such_file_or_directory ? Failure{} : failure_of(folder, "list", error);
  }
  if (contains(names, std::string(kCommit))) {
    if (Failure failure = unlink_file(storage, fmt::format("{}/{}", folder, kCommit))) return failure;
    if (Failure failure = sync_names(storage, folder, durability)) return failure;
  }
  std::string stranger;
  for (const std::string& name : names) {
    if (name == kCommit) continue;
    if (!is_part_name(name)) {
      stranger = name;
    } else if (Failure failure = unlink_file(storage, folder + "/" + name)) {
      return failure;
    }
  }
  if (!stranger.empty()) {
    return {fmt::format("{}: stays, it holds {}, which is no part of a checkpoint", folder, stranger), {}};
  }
  const auto error = uninterrupted([&] { return storage.remove_folder(folder); });
  return error == std::errc::no_such_file_or_directory ? Failure{} : failure_of(folder, "remove", error);
}

std::vector<std::string> retire(Storage& storage, const std::string& root, const Retention& retention) {
  const Survey found = survey(storage, root, true);
  if (found.failure) return {found.failure.text};
  const std::string best = read_pointer(storage, root, kBest).pointer.save_id;
  std::vector<std::string> kept = names_to_keep(found, retention.keep_last, best);
  std::vector<std::string> remarks;
  // Without a whole one to go on from, nothing goes.
  if (kept.empty()) return {root + ": nothing is taken away, since no checkpoint in it is whole"};
  // Where the pointer could not be advanced, what it names stays until it is.
  const Entry* const pointed = entry_of(found, read_pointer(storage, root, kLatest).pointer.save_id);
  if (pointed != nullptr && pointed->standing == Standing::whole && !contains(kept, pointed->name)) {
    kept.push_back(pointed->name);
  }
  bool changed = false;
  for (const Entry& entry : found.entries) {
    const bool goes = entry.standing == Standing::unfinished ||
                      (entry.standing == Standing::whole && !contains(kept, entry.name)) ||
                      outlived(found, entry, kept, retention.keep_last);
    if (!goes && entry.standing == Standing::damaged) {
      remarks.push_back(fmt::format("{} is damaged and stays: {}", entry.name, entry.problem));
    }
    if (!goes) continue;
    changed = true;
    if (const Failure failure = take_away(storage, root + "/" + entry.name, retention.durability)) {
      remarks.push_back(failure.text);
    }
    if (retention.progress) retention.progress();
  }
  for (const std::string& name : kept) {
    if (parse_entry_name(name).kind != EntryKind::replaced) continue;
    changed = true;
    if (const Failure failure = give_back_name(storage, root, name)) remarks.push_back(failure.text);
  }
  for (const std::string& name : found.temporaries) {
    changed = true;
    if (const Failure failure = unlink_file(storage, root + "/" + name)) remarks.push_back(failure.text);
  }
  if (changed) {
    if (const Failure failure = sync_names(storage, root, retention.durability))
      remarks.push_back(failure.text);
  }
  return remarks;
}

}  // namespace lockstep::checkpoint
