#include "harness/lib/checkpoint/saver.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "harness/base/json.h"
#include "harness/lib/checkpoint/loader.h"

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
  if (Failure failure = look(storage, path, status)) return failure;
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

/// Names of the checkpoints that stay: the newest ones and the best, `keep_last` together; all of them whole.
/// `best`: a save id, or empty.
static std::vector<std::string> names_to_keep(const Survey& survey, int keep_last, const std::string& best) {
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

/// Locks the folder against other processes that save into it: sets `file`, which its holder closes. Returns what went wrong, or nothing.
static std::string lock_root(Storage& storage, const std::string& root, int& file) {
  const std::string path = fmt::format("{}/{}", root, kLock);
  const auto error = uninterrupted([&] { return storage.lock(path, file); });
  if (error == std::errc::operation_would_block) return path + ": another process saves into this folder now";
  return failure_of(path, "lock", error).text;
}

/// Takes one checkpoint away: first its commit record, durably, so that a part of it never counts; then its
/// other files, then the folder. Files that are none of ours stay, and so does the folder then.
static Failure take_away(Storage& storage, const std::string& folder, Durability durability) {
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

namespace {

using Json = nlohmann::json;

constexpr const char* kNoNonce = "0000000000000000";

Json parsed(const std::string& text) { return Json::parse(text, nullptr, false); }

std::string problem_in(const Json& message) {
  return message.is_object() ? message.value("problem", "") : "it sent no message that can be read";
}

/// The problems of all ranks in one text, the same on each.
std::string problems_of(const std::vector<Json>& messages) {
  std::string text;
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    const std::string problem = problem_in(messages[rank]);
    if (!problem.empty()) text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank, problem);
  }
  return text;
}

std::vector<Json> messages_of(const Gathered& all) {
  std::vector<Json> messages;
  for (const std::string& text : all.texts) messages.push_back(text.empty() ? Json::object() : parsed(text));
  return messages;
}

/// What every rank must save alike.
std::string mismatch(const Json& first, const Json& other, std::size_t rank) {
  for (const char* field : {"world_size", "epoch", "step", "best", "config_hash"}) {
    const Json expected = first.value(field, Json()), found = other.value(field, Json());
    if (expected != found) {
      return fmt::format("{}: rank 0 has {}, rank {} has {}", field, expected.dump(), rank, found.dump());
    }
  }
  return forms_problem(first.value("forms", Json::object()), other.value("forms", Json::object()),
                       static_cast<int>(rank));
}

/// One save, from the first operation to the last. docs/checkpoint.md has the order and why it is that one.
class SaveProtocol {
 public:
  SaveProtocol(const SaveOptions& options, Storage& storage, Group& group,
                             const SaveRequest& request, const State& state, Sightings& seen)
      : options_(options),
        group_(group),
        seen_(seen),
        progress_(group),
        seam_(progress_),
        storage_(storage, seam_),
        request_(request),
        state_(state),
        name_(checkpoint_name(request.epoch, request.step)) {}

  SaveOutcome run() {
    outcome_.name = name_;
    if (options_.planted.exists_per_rank && planted_exists()) {
      outcome_.saved = Saved::committed;
      return outcome_;
    }
    std::string manifest_text;
    std::string problem = begin();
    if (problem.empty()) problem = write();
    if (problem.empty()) {
      manifest_text = to_text(manifest_);
      problem = rename_all(manifest_text);
    }
    if (problem.empty()) problem = commit(manifest_text);
    outcome_.save_id = manifest_.save_id;
    if (!problem.empty()) {
      if (first()) abandon();
      unlock();
      outcome_.problem = fmt::format("{} was not saved: {}", outcome_.name, problem);
      if (may_be_committed_) {
        outcome_.saved = Saved::unknown;
        outcome_.problem =
            fmt::format("nobody can tell this rank whether {} was saved: {}", outcome_.name, problem);
      }
      return outcome_;
    }
    outcome_.saved = Saved::committed;
    finish();
    unlock();
    return outcome_;
  }

 private:
  bool first() const { return group_.rank() == 0; }
  std::string final_path() const { return options_.root + "/" + name_; }
  Durability durability() const { return durability_of(options_); }

  ShardOptions shard_options() const {
    const bool shared = options_.planted.shared_temporary_name || options_.planted.rename_before_data;
    return {.block_bytes = options_.block_bytes,
            .durability = durability(),
            .progress = [this] { group_.progress(); },
            .takes_over = shared || options_.planted.one_file_name,
            .one_name = options_.planted.one_file_name};
  }

  Gathered gather(const std::string& label, const Json& mine) {
    if (label == options_.planted.skipped_gather) {
      Gathered alone{std::vector<std::string>(static_cast<std::size_t>(group_.size())), ""};
      alone.texts[static_cast<std::size_t>(group_.rank())] = mine.dump();
      return alone;
    }
    return group_.all_gather(label, mine.dump(-1, ' ', false, Json::error_handler_t::replace),
                             options_.deadline_s);
  }

  /// The root and its name, if it does not stand yet.
  std::string make_root() {
    PathStatus status;
    if (const Failure failure = look(storage_, options_.root, status)) return failure.text;
    if (status.folder) return "";
    if (status.exists) return options_.root + ": a folder expected, found a file";
    const auto unmade = uninterrupted([&] { return storage_.make_folder(options_.root); });
    if (unmade && unmade != std::errc::file_exists) return failure_of(options_.root, "make", unmade).text;
    const std::size_t slash = options_.root.find_last_of('/');
    const std::string parent =
        slash == std::string::npos ? "." : options_.root.substr(0, std::max<std::size_t>(slash, 1));
    return sync_names(storage_, parent, durability()).text;
  }

  /// Rank 0: the lock, the number of this save and a folder of its own.
  std::string prepare() {
    if (std::string problem = make_root(); !problem.empty()) return problem;
    if (!options_.planted.no_lock) {
      if (std::string problem = lock_root(storage_, options_.root, lock_); !problem.empty()) return problem;
    }
    const Survey found = survey(storage_, options_.root, false, &seen_);
    if (found.failure) return found.failure.text;
    manifest_.sequence = 1;
    for (const Entry& entry : found.entries) {
      manifest_.sequence = std::max(manifest_.sequence, entry.commit.sequence + 1);
      if (entry.name == name_ && entry.standing == Standing::newer) return name_ + ": " + entry.problem;
      if (entry.unread && entry.commit.sequence == 0) {
        return fmt::format("{}: {}: nobody can tell whether it is newer than what is saved now; mend it or move it away",
                           entry.name, entry.problem);
      }
    }
    settle_earlier(found);
    if (const std::string problem = make_room(); !problem.empty()) return problem;
    const auto error = uninterrupted([&] { return storage_.make_folder(folder_); });
    const bool taken_over = options_.planted.shared_temporary_name || options_.planted.rename_before_data;
    if (error && !(taken_over && error == std::errc::file_exists))
      return failure_of(folder_, "make", error).text;
    made_ = true;
    return "";
  }

  /// Rank 0: a save that was cut short between its commit and its deletions left one more than are kept. They go now,
  /// while keep_last whole ones stay: were it left to this save, another end at the same place would leave two more.
  void settle_earlier(const Survey& found) {
    const auto is_whole = [](const Entry& entry) { return entry.standing == Standing::whole; };
    const auto whole = std::count_if(found.entries.begin(), found.entries.end(), is_whole);
    if (whole <= options_.keep_last || options_.planted.no_lock) return;
    // What cannot be done is told when this save's own deletions come to it.
    settle(storage_, options_.root, retention());
  }

  Retention retention() {
    return {options_.keep_last, durability(), manifest_.writer, [this] { group_.progress(); }, &seen_};
  }

  /// What stands under the final name must be a checkpoint, whole or not: anything else is not ours to move.
  std::string make_room() {
    PathStatus status;
    if (const Failure failure = look(storage_, final_path(), status)) return failure.text;
    if (!status.exists) return "";
    if (!status.folder) return final_path() + ": a folder expected, found a file";
    std::vector<std::string> names;
    const Failure unlisted = attempt(final_path(), "list", [&] { return storage_.list(final_path(), names); });
    if (unlisted) return unlisted.text;
    for (const std::string& name : names) {
      if (!is_part_name(name))
        return fmt::format("{}: it holds {}, which is no part of a checkpoint", final_path(), name);
    }
    return "";
  }

  std::string begin() {
    const bool early = options_.planted.skipped_gather == "begin";
    const bool shared = options_.planted.shared_temporary_name || early;
    const std::string nonce = shared ? kNoNonce : options_.nonce();
    const int64_t process = options_.process > 0 ? options_.process : static_cast<int64_t>(::getpid());
    manifest_.writer = {shared ? 0 : process, nonce};
    manifest_.epoch = request_.epoch;
    manifest_.step = request_.step;
    manifest_.best = request_.best;
    manifest_.world_size = group_.size();
    manifest_.config_hash = options_.config_hash;
    manifest_.sequence = 1;
    manifest_.save_id = long_hash_in_hex(fmt::format("{} {} {} {} {}", options_.config_hash, request_.epoch,
                                                     request_.step, manifest_.writer.process, nonce));
    folder_ = options_.planted.rename_before_data ? final_path()
                                                  : options_.root + "/" + saving_name(name_, manifest_.writer);
    std::string problem = state_problem(state_);
    if (options_.keep_last < (request_.best ? 2 : 1)) {
      problem =
          fmt::format("keep_last: at least {} expected, found {}", request_.best ? 2 : 1, options_.keep_last);
    }
    if (problem.empty() && first()) problem = prepare();
    const Json mine = {{"problem", problem},
                       {"save_id", manifest_.save_id},
                       {"sequence", manifest_.sequence},
                       {"process", manifest_.writer.process},
                       {"nonce", nonce},
                       {"folder", folder_.substr(options_.root.size())},
                       {"world_size", group_.size()},
                       {"epoch", request_.epoch},
                       {"step", request_.step},
                       {"best", request_.best},
                       {"config_hash", options_.config_hash},
                       {"forms", forms_of(state_)}};
    const Gathered all = gather("begin", mine);
    if (!all) return all.problem;
    if (early) return problem;
    const std::vector<Json> messages = messages_of(all);
    outcome_.name =
        checkpoint_name(messages[0].value("epoch", int64_t{0}), messages[0].value("step", int64_t{0}));
    if (std::string theirs = problems_of(messages); !theirs.empty()) return theirs;
    for (std::size_t rank = 1; rank < messages.size(); ++rank) {
      if (std::string other = mismatch(messages[0], messages[rank], rank); !other.empty()) return other;
    }
    manifest_.save_id = messages[0].at("save_id").get<std::string>();
    manifest_.sequence = messages[0].at("sequence").get<int64_t>();
    manifest_.writer = {messages[0].at("process").get<int64_t>(), messages[0].at("nonce").get<std::string>()};
    folder_ = options_.root + messages[0].at("folder").get<std::string>();
    if (first() && options_.planted.latest_before_commit) planted_pointer();
    if (first() && options_.planted.delete_before_commit) planted_deletion();
    return "";
  }

  /// Each rank its file; then all know all files.
  std::string write() {
    const ShardIdentity identity = {manifest_.save_id, request_.epoch, request_.step,
                                    group_.rank(),     group_.size(),  options_.config_hash};
    const bool early = options_.planted.skipped_gather == "written";
    WrittenShard shard;
    if (early) {
      shard.entry = measure_shard(identity, state_, shard_options());
    } else {
      shard = write_shard(storage_, folder_, identity, state_, shard_options());
    }
    const Json mine = {
        {"problem", shard.failure.text},
        {"file", {{"name", shard.entry.name}, {"length", shard.entry.length}, {"hash", shard.entry.hash}}},
        {"kinds", contribution_of(state_)}};
    const Gathered all =
        early ? group_.all_gather("written early", mine.dump(), options_.deadline_s) : gather("written", mine);
    if (!all) return all.problem;
    const std::vector<Json> messages = messages_of(all);
    if (std::string theirs = problems_of(messages); !theirs.empty()) return theirs;
    for (const Json& message : messages) {
      const Json& file = message.at("file");
      manifest_.files.push_back({file.at("name").get<std::string>(), file.at("length").get<uint64_t>(),
                                 file.at("hash").get<std::string>()});
      contributions_.push_back(message.at("kinds"));
    }
    std::string problem;
    manifest_.kinds = assemble(state_, contributions_, problem);
    if (problem.empty() && early) {
      problem = write_shard(storage_, folder_, identity, state_, shard_options()).failure.text;
    }
    return problem;
  }

  /// An older checkpoint of this step goes aside; it still counts there.
  std::string move_aside() {
    PathStatus status;
    if (const Failure failure = look(storage_, final_path(), status)) return failure.text;
    if (!status.exists) return "";
    const std::string aside = options_.root + "/" + replaced_name(name_, manifest_.writer);
    if (const Failure failure = rename_path(storage_, final_path(), aside)) return failure.text;
    aside_ = aside;
    // Durably, before the new one takes its name: a power loss must not keep the second rename alone.
    return sync_names(storage_, options_.root, durability()).text;
  }

  /// Rank 0: the manifest, and the final name.
  std::string install(const std::string& manifest_text) {
    const std::string path = fmt::format("{}/{}", folder_, kManifest);
    if (const Failure failure = write_new_file(storage_, path, manifest_text, durability()))
      return failure.text;
    if (const Failure failure = sync_names(storage_, folder_, durability())) return failure.text;
    if (folder_ == final_path()) return "";
    if (const std::string problem = move_aside(); !problem.empty()) return problem;
    if (const Failure failure = rename_path(storage_, folder_, final_path())) return failure.text;
    folder_ = final_path();
    return sync_names(storage_, options_.root, durability()).text;
  }

  /// All agree on the manifest's bytes before one of them commits it.
  std::string rename_all(const std::string& manifest_text) {
    const std::string problem = first() ? install(manifest_text) : "";
    const Gathered all =
        gather("renamed", {{"problem", problem}, {"manifest", long_hash_in_hex(manifest_text)}});
    may_be_committed_ = !first() && !all;
    if (!all) return all.problem;
    const std::vector<Json> messages = messages_of(all);
    if (std::string theirs = problems_of(messages); !theirs.empty()) return theirs;
    for (std::size_t rank = 1; rank < messages.size() && options_.planted.skipped_gather.empty(); ++rank) {
      const Json expected = messages[0].value("manifest", Json()),
                 found = messages[rank].value("manifest", Json());
      if (expected != found) {
        return fmt::format("{}: rank 0 has one of hash {}, rank {} of {}", kManifest, expected.dump(), rank,
                           found.dump());
      }
    }
    folder_ = final_path();
    return "";
  }

  /// The commit record makes the checkpoint count: the one rename on which everything hangs.
  std::string write_commit(const std::string& manifest_text) {
    bool renamed = false;
    const Failure failure =
        replace_file(storage_, folder_, kCommit, to_text(commit_of(manifest_, manifest_text)), manifest_.writer,
                     durability(), &renamed);
    if (!failure || !renamed) return failure.text;
    // It stands, and may be gone after a power loss: it must not count.
    const std::string path = fmt::format("{}/{}", folder_, kCommit);
    const auto error = uninterrupted([&] { return storage_.unlink(path); });
    may_be_committed_ = static_cast<bool>(error);
    return failure.text;
  }

  std::string commit(const std::string& manifest_text) {
    const std::string problem = first() ? write_commit(manifest_text) : "";
    const Gathered all = gather("committed", {{"problem", problem}, {"may_be_committed", may_be_committed_}});
    if (first() && problem.empty()) {
      if (!all) outcome_.remarks.push_back(all.problem);
      return "";
    }
    if (!all) {
      may_be_committed_ = may_be_committed_ || !first();
      return first() ? problem : all.problem;
    }
    const std::vector<Json> messages = messages_of(all);
    may_be_committed_ = messages[0].value("may_be_committed", false);
    return problems_of(messages);
  }

  /// Only now pointers move and older ones go. What fails from here on does not undo the save; all ranks hear of it.
  void finish() {
    if (first()) {
      const std::vector<std::string> left = settle(storage_, options_.root, retention());
      outcome_.remarks.insert(outcome_.remarks.end(), left.begin(), left.end());
    }
    const Gathered all = gather("finished", {{"remarks", outcome_.remarks}});
    if (!all) {
      outcome_.remarks.push_back(all.problem);
      return;
    }
    const Json theirs = messages_of(all)[0].value("remarks", Json::array());
    if (!first()) outcome_.remarks = theirs.get<std::vector<std::string>>();
  }

  /// Rank 0: as if the save had never begun. What cannot be taken away does not count and goes with the next
  /// save.
  void abandon() {
    if (may_be_committed_ || !made_) return;
    if (const Failure failure = take_away(storage_, folder_, durability()))
      outcome_.remarks.push_back(failure.text);
    if (aside_.empty()) return;
    if (const Failure failure = rename_path(storage_, aside_, final_path()))
      outcome_.remarks.push_back(failure.text);
    if (const Failure failure = sync_names(storage_, options_.root, durability())) {
      outcome_.remarks.push_back(failure.text);
    }
  }

  void unlock() {
    if (lock_ >= 0) close_fully(storage_, lock_);
    lock_ = -1;
  }

  /// A lab's planted mistake: each rank looks for itself, and those that see the step leave the others waiting.
  bool planted_exists() {
    PathStatus status;
    storage_.stat(fmt::format("{}/{}", final_path(), kCommit), status);
    return status.exists;
  }

  /// A lab's planted mistake: the pointer moves before what it names counts.
  void planted_pointer() {
    const std::string text = to_text(Pointer{name_, manifest_.save_id, request_.step});
    replace_file(storage_, options_.root, kLatest, text, manifest_.writer, durability());
  }

  /// A lab's planted mistake: room for the new one is made before it counts.
  void planted_deletion() {
    int kept = 0;
    for (const Entry& entry : survey(storage_, options_.root, false).entries) {
      if (entry.standing != Standing::whole || ++kept < options_.keep_last) continue;
      take_away(storage_, options_.root + "/" + entry.name, durability());
    }
  }

  const SaveOptions& options_;
  Group& group_;
  Sightings& seen_;
  ProgressHook progress_;
  Seam seam_;
  HookedStorage storage_;
  const SaveRequest& request_;
  const State& state_;
  std::string name_;
  std::string folder_;  ///< where the parts are now
  std::string aside_;   ///< where an older checkpoint of this step is now
  Manifest manifest_;
  std::vector<Json> contributions_;
  int lock_ = -1;
  bool made_ = false;  ///< `folder_` is ours
  /// Rank 0 may have committed, whatever this rank has heard of it.
  bool may_be_committed_ = false;
  SaveOutcome outcome_;
};

/// Another at each call and in each process; a number for names, from which nothing is computed.
std::string next_nonce() {
  static std::atomic<uint64_t> count{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return hex16(keyed(static_cast<uint64_t>(now), static_cast<uint64_t>(::getpid()), count++));
}

}  // namespace

/// The save that a thread does meanwhile.
struct Saver::Background {
  std::thread thread;
  SaveRequest request;
  State state;
  std::optional<SaveOutcome> outcome;  ///< written by the thread, read when it has been joined
};

Saver::Saver(SaveOptions options, Storage& storage, Group& group)
    : options_(std::move(options)),
      storage_(storage),
      group_(group),
      background_(std::make_unique<Background>()) {
  if (!options_.nonce) options_.nonce = next_nonce;
  while (options_.root.size() > 1 && options_.root.ends_with('/')) options_.root.pop_back();
}

Saver::~Saver() {
  if (background_->thread.joinable()) background_->thread.join();
}

SaveOutcome Saver::save(const SaveRequest& request, const State& state) {
  if (background_->thread.joinable()) background_->thread.join();
  return SaveProtocol(options_, storage_, group_, request, state, seen_).run();
}

std::optional<SaveOutcome> Saver::save_async(const SaveRequest& request, const State& state) {
  std::optional<SaveOutcome> earlier = wait();
  background_->request = request;
  background_->state = snapshot_of(state);
  background_->thread = std::thread([this] {
    background_->outcome =
        SaveProtocol(options_, storage_, group_, background_->request, background_->state, seen_).run();
  });
  return earlier;
}

std::optional<SaveOutcome> Saver::wait() {
  if (background_->thread.joinable()) background_->thread.join();
  background_->state = {};
  return std::exchange(background_->outcome, std::nullopt);
}

std::vector<std::string> Saver::finish_earlier() {
  PathStatus status;
  if (group_.rank() != 0 || storage_.stat(options_.root, status) || !status.folder) return {};
  int lock = -1;
  if (std::string problem = lock_root(storage_, options_.root, lock); !problem.empty()) return {std::move(problem)};
  const Writer writer{options_.process > 0 ? options_.process : static_cast<int64_t>(::getpid()), options_.nonce()};
  std::vector<std::string> left =
      settle(storage_, options_.root, {options_.keep_last, durability_of(options_), writer, [this] { group_.progress(); }, &seen_});
  close_fully(storage_, lock);
  return left;
}

}  // namespace lockstep::checkpoint
