#include "harness/lib/checkpoint/retention.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::checkpoint {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
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

/// Lets a pointer name the entry, unless it names that or a newer one. Returns the entry that it named and still names
/// because it could not be replaced; null if there is none.
const Entry* advance(Storage& storage, const std::string& root, std::string_view name, const ReadPointer& pointer,
                     const Survey& found, const Entry* entry, const Retention& retention, std::vector<std::string>& remarks) {
  const Entry* const pointed = entry_of(found, pointer.pointer.save_id);
  if (entry == nullptr || (pointed != nullptr && pointed->commit.sequence >= entry->commit.sequence)) return nullptr;
  const std::string text = to_text(
      Pointer{checkpoint_name(entry->commit.epoch, entry->commit.step), entry->commit.save_id, entry->commit.step});
  const Failure failure = replace_file(storage, root, name, text, retention.writer, retention.durability);
  if (!failure) return nullptr;
  remarks.push_back(failure.text);
  return pointed;
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

std::string lock_root(Storage& storage, const std::string& root, int& file) {
  const std::string path = fmt::format("{}/{}", root, kLock);
  const auto error = uninterrupted([&] { return storage.lock(path, file); });
  if (error == std::errc::operation_would_block) return path + ": another process saves into this folder now";
  return failure_of(path, "lock", error).text;
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

std::vector<std::string> settle(Storage& storage, const std::string& root, const Retention& retention) {
  const Survey found = survey(storage, root, true, retention.seen);
  if (found.failure) return {found.failure.text};
  std::vector<std::string> remarks;
  const ReadPointer latest = read_pointer(storage, root, kLatest), best = read_pointer(storage, root, kBest);
  // Without a whole one to go on from, nothing goes.
  if (newest_of(found) == nullptr) return {root + ": nothing is taken away, since no checkpoint in it is whole"};
  const Entry* const best_entry = best_of(found, best);
  std::vector<std::string> kept =
      names_to_keep(found, retention.keep_last, best_entry == nullptr ? "" : best_entry->commit.save_id);
  // Where a pointer cannot be advanced, what it names stays until it is.
  const auto keep_pointed = [&](const Entry* pointed) {
    if (pointed != nullptr && pointed->standing == Standing::whole && !contains(kept, pointed->name)) kept.push_back(pointed->name);
  };
  keep_pointed(advance(storage, root, kBest, best, found, best_entry, retention, remarks));
  keep_pointed(advance(storage, root, kLatest, latest, found, newest_of(found), retention, remarks));
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
