#include "harness/lib/checkpoint/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "harness/base/hex.h"
#include "harness/lib/checkpoint/shard.h"

namespace lockstep::checkpoint {
namespace {

void set(Entry& entry, Standing standing, std::string problem) {
  entry.standing = standing;
  entry.problem = std::move(problem);
}

/// A file that could not be read: the machine refuses, or it is gone or broken.
void set_unreadable(Entry& entry, std::string_view name, const SmallFile& file) {
  const std::string message = file.failure.error.message();
  set(entry, is_refusal(file.failure.error) ? Standing::refusing : Standing::damaged,
      file.missing ? fmt::format("{}: missing", name) : fmt::format("{}: cannot read: {}", name, message));
}

/// Reads the manifest and holds it against what was committed.
void examine_manifest(Storage& storage, const std::string& folder, Entry& entry) {
  const SmallFile file = read_small_file(storage, fmt::format("{}/{}", folder, kManifest));
  if (file.failure) return set_unreadable(entry, kManifest, file);
  std::string problem;
  bool newer = false;
  Manifest manifest = manifest_from(file.text, problem, &newer);
  if (newer) return set(entry, Standing::newer, fmt::format("{}: {}", kManifest, problem));
  // A changed field says more than a checksum that does not fit.
  if (!manifest.save_id.empty()) {
    const std::string changed = contradiction(entry.commit, manifest);
    if (!changed.empty()) problem = changed;
  }
  if (problem.empty() && file.text.size() != entry.commit.manifest_length) {
    problem = fmt::format("length: {} bytes were committed, found {}", entry.commit.manifest_length,
                          file.text.size());
  }
  if (const std::string hash = long_hash_in_hex(file.text);
      problem.empty() && hash != entry.commit.manifest_hash) {
    problem = fmt::format("hash: {} was committed, found {}", entry.commit.manifest_hash, hash);
  }
  if (!problem.empty()) return set(entry, Standing::damaged, fmt::format("{}: {}", kManifest, problem));
  entry.manifest = std::move(manifest);
  set(entry, Standing::whole, "");
}

void examine_lengths(Storage& storage, const std::string& folder, Entry& entry) {
  for (const FileEntry& file : entry.manifest.files) {
    PathStatus status;
    const auto error = uninterrupted([&] { return storage.stat(folder + "/" + file.name, status); });
    if (error)
      return set(entry, Standing::refusing, fmt::format("{}: cannot read: {}", file.name, error.message()));
    if (status.exists && status.file && status.length == file.length) continue;
    const std::string found = status.exists ? std::to_string(status.length) : "no file";
    return set(entry, Standing::damaged,
               fmt::format("{}: length: {} bytes expected, found {}", file.name, file.length, found));
  }
}

void examine(Storage& storage, const std::string& root, bool lengths, Sightings* seen, Entry& entry) {
  if (entry.parsed.kind == EntryKind::saving)
    return set(entry, Standing::unfinished, "a save that did not finish");
  const std::string folder = root + "/" + entry.name;
  const SmallFile file = read_small_file(storage, fmt::format("{}/{}", folder, kCommit));
  if (file.missing)
    return set(entry, Standing::unfinished, fmt::format("{}: missing, the save did not finish", kCommit));
  if (file.failure) {
    set_unreadable(entry, kCommit, file);
    entry.unread = true;
    // It may be read again later; until then its manifest tells its place.
    std::string unfit;
    entry.commit.sequence =
        manifest_from(read_small_file(storage, fmt::format("{}/{}", folder, kManifest)).text, unfit).sequence;
    if (!unfit.empty()) entry.commit.sequence = 0;
    return;
  }
  std::string problem;
  bool newer = false;
  entry.commit = commit_from(file.text, problem, &newer);
  if (!problem.empty()) {
    return set(entry, newer ? Standing::newer : Standing::damaged, fmt::format("{}: {}", kCommit, problem));
  }
  if (seen != nullptr) {
    const auto known = seen->whole.find(entry.name);
    if (known != seen->whole.end() && known->second.commit_text == file.text && known->second.lengths >= lengths)
      return set(entry, Standing::whole, "");
  }
  examine_manifest(storage, folder, entry);
  if (lengths && entry.standing == Standing::whole) examine_lengths(storage, folder, entry);
  if (seen != nullptr && entry.standing == Standing::whole) seen->whole[entry.name] = {file.text, lengths};
}

/// Newest first; a commit record that cannot be read might be the newest one's.
bool before(const Entry& a, const Entry& b) {
  const auto place = [](const Entry& entry) {
    const bool unknown = entry.standing != Standing::unfinished && entry.commit.save_id.empty();
    return std::tuple(unknown, entry.commit.sequence, entry.commit.step, entry.commit.save_id, entry.name);
  };
  return place(a) > place(b);
}

}  // namespace

Entry look_at(Storage& storage, const std::string& root, const std::string& name, bool lengths) {
  Entry entry{.name = name, .parsed = parse_entry_name(name)};
  examine(storage, root, lengths, nullptr, entry);
  return entry;
}

Survey survey(Storage& storage, const std::string& root, bool lengths, Sightings* seen) {
  Survey result;
  std::vector<std::string> names;
  if (const auto error = uninterrupted([&] { return storage.list(root, names); })) {
    if (error != std::errc::no_such_file_or_directory) result.failure = failure_of(root, "list", error);
    return result;
  }
  result.exists = true;
  for (const std::string& name : names) {
    const EntryKind kind = parse_entry_name(name).kind;
    if (kind == EntryKind::temporary) {
      result.temporaries.push_back(name);
    } else if (kind != EntryKind::other) {
      result.entries.push_back({.name = name, .parsed = parse_entry_name(name)});
      examine(storage, root, lengths, seen, result.entries.back());
    } else if (name != kLatest && name != kBest && name != kLock) {
      result.strangers.push_back(name);
    }
  }
  std::sort(result.entries.begin(), result.entries.end(), before);
  if (seen != nullptr) std::erase_if(seen->whole, [&](const auto& known) { return !std::ranges::binary_search(names, known.first); });
  return result;
}

ReadPointer read_pointer(Storage& storage, const std::string& root, std::string_view name) {
  ReadPointer result;
  const SmallFile file = read_small_file(storage, fmt::format("{}/{}", root, name));
  result.missing = file.missing;
  if (file.missing) {
    result.problem = fmt::format("{}: missing", name);
  } else if (file.failure) {
    result.problem = fmt::format("{}: cannot read: {}", name, file.failure.error.message());
  } else {
    std::string problem;
    result.pointer = pointer_from(file.text, problem);
    if (!problem.empty()) result.problem = fmt::format("{}: {}", name, problem);
  }
  return result;
}

const Entry* entry_of(const Survey& survey, const std::string& save_id) {
  for (const Entry& entry : survey.entries) {
    if (!save_id.empty() && entry.commit.save_id == save_id) return &entry;
  }
  return nullptr;
}

bool superseded(const Survey& survey, const Entry& entry) {
  return entry.parsed.kind == EntryKind::replaced &&
         std::any_of(survey.entries.begin(), survey.entries.end(), [&](const Entry& other) {
           return other.standing == Standing::whole && other.commit.step == entry.commit.step &&
                  other.commit.epoch == entry.commit.epoch && other.commit.sequence > entry.commit.sequence;
         });
}

const Entry* newest_of(const Survey& survey) {
  const auto whole = [](const Entry& entry) { return entry.standing == Standing::whole; };
  const auto found = std::ranges::find_if(survey.entries, whole);
  return found == survey.entries.end() ? nullptr : &*found;
}

const Entry* best_of(const Survey& survey, const ReadPointer& pointer) {
  const auto saved_as_best = [&](const Entry& entry) {
    return entry.standing == Standing::whole && entry.commit.best && !superseded(survey, entry);
  };
  const auto found = std::ranges::find_if(survey.entries, saved_as_best);
  if (found != survey.entries.end()) return &*found;
  const Entry* const pointed = entry_of(survey, pointer.pointer.save_id);
  return pointed != nullptr && pointed->standing == Standing::whole ? pointed : nullptr;
}

}  // namespace lockstep::checkpoint
