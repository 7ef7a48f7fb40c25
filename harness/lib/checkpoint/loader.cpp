#include "harness/lib/checkpoint/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/base/clean_text.h"
#include "harness/lib/checkpoint/hooked_storage.h"
#include "harness/lib/checkpoint/part.h"
#include "harness/lib/checkpoint/survey.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

/// A reader that finds files gone looks again this often: a save may have taken the older ones away
/// meanwhile.
constexpr int kMostRounds = 3;

/// What rank 0 saw in the folder, for all ranks. Each of `attempts` is {"name", "save_id", "standing",
/// "problem"}.
Json sight_of(const LoadOptions& options, Storage& storage) {
  const Survey found = survey(storage, options.root, false);
  Json sight = {{"problem", found.failure.text}, {"exists", found.exists}, {"attempts", Json::array()}};
  for (const Entry& entry : found.entries) {
    sight["attempts"].push_back({{"name", entry.name},
                                 {"save_id", entry.commit.save_id},
                                 {"step", entry.commit.step},
                                 {"standing", static_cast<int>(entry.standing)},
                                 {"problem", entry.problem}});
  }
  sight["strangers"] = found.strangers;
  for (const std::string_view name : {kLatest, kBest}) {
    const ReadPointer read = read_pointer(storage, options.root, name);
    sight[std::string(name)] = {{"missing", read.missing},
                                {"problem", read.problem},
                                {"checkpoint", read.pointer.checkpoint},
                                {"save_id", read.pointer.save_id},
                                {"step", read.pointer.step}};
    if (name != kBest) continue;
    const Entry* const best = best_of(found, read);
    sight["best_step"] = best == nullptr ? int64_t{-1} : best->commit.step;
  }
  return sight;
}

std::string to_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }
std::string text_in(const Json& object, const char* name) { return object.value(name, ""); }
Standing standing_of(const Json& attempt) { return static_cast<Standing>(attempt.value("standing", 0)); }

/// A pointer holds a save's id, its folder's name and its step: what does not belong together is damage that no seal shows.
std::string contradiction(std::string_view pointer, const Json& held, const Json& attempt) {
  const EntryName named = parse_entry_name(text_in(held, "checkpoint")), found = parse_entry_name(text_in(attempt, "name"));
  const bool same = named.epoch == found.epoch && named.step == found.step && named.kind == EntryKind::checkpoint &&
                    held.value("step", int64_t{0}) == attempt.value("step", int64_t{0});
  if (same) return "";
  return fmt::format("{}: names {} (step {}), and its save_id is that of {} (step {})", pointer,
                     in_quotes(text_in(held, "checkpoint")), held.value("step", int64_t{0}), text_in(attempt, "name"),
                     attempt.value("step", int64_t{0}));
}

class Loading {
 public:
  Loading(const LoadOptions& options, Storage& storage, Group& group)
      : options_(options), group_(group), progress_(group), seam_(progress_), storage_(storage, seam_) {}

  LoadOutcome run() {
    std::string earlier;
    for (int round = 0; round < kMostRounds; ++round) {
      if (!look()) return outcome_;
      // Refused as before: looking once more shows nothing else.
      if (round > 0 && sight_["attempts"].dump() == earlier) break;
      earlier = sight_["attempts"].dump();
      outcome_.refused.clear();
      outcome_.remarks.clear();
      if (options_.name.empty() ? try_newest() : try_named()) return outcome_;
    }
    return refuse(exhausted());
  }

 private:
  LoadOutcome& refuse(const std::string& problem) {
    outcome_.loaded = Loaded::refused;
    outcome_.problem = problem;
    outcome_.state = {};
    outcome_.of_ranks.clear();
    return outcome_;
  }

  /// One rank looks at the folder, so that all see the same.
  bool look() {
    const std::string mine = group_.rank() == 0 ? to_text(sight_of(options_, storage_)) : "";
    const Gathered all = group_.all_gather("survey", mine, options_.deadline_s);
    if (!all) {
      refuse("the ranks could not agree on a checkpoint: " + all.problem);
      return false;
    }
    sight_ = Json::parse(all.texts[0], nullptr, false);
    const std::string problem = text_in(sight_, "problem");
    if (!problem.empty()) refuse(problem);
    return problem.empty();
  }

  /// True: it is decided.
  bool try_newest() {
    for (const Json& attempt : sight_["attempts"]) {
      if (standing_of(attempt) != Standing::unfinished) continue;
      const std::string told = text_in(attempt, "name") + ": " + text_in(attempt, "problem");
      outcome_.remarks.push_back(told + "; it does not count");
    }
    for (const Json& attempt : sight_["attempts"]) {
      const std::string told = text_in(attempt, "name") + ": " + text_in(attempt, "problem");
      switch (standing_of(attempt)) {
        case Standing::unfinished:
          break;
        case Standing::damaged:
          outcome_.refused.push_back(told);
          break;
        case Standing::newer:
        case Standing::refusing:
          refuse(told);
          return true;
        case Standing::whole:
          if (attempt_decides(attempt)) return true;
          break;
      }
    }
    return outcome_.refused.empty() && none();
  }

  bool try_named() {
    std::string name = options_.name;
    std::string save_id;
    if (name == kLatest || name == kBest) {
      const Json& pointer = sight_[name];
      if (const std::string problem = text_in(pointer, "problem"); !problem.empty()) {
        refuse(options_.root + "/" + problem);
        return true;
      }
      save_id = text_in(pointer, "save_id");
      name = text_in(pointer, "checkpoint");
    }
    for (const Json& attempt : sight_["attempts"]) {
      if (save_id.empty() ? text_in(attempt, "name") != name : text_in(attempt, "save_id") != save_id)
        continue;
      if (!save_id.empty() && standing_of(attempt) == Standing::whole) {
        const std::string problem = contradiction(options_.name, sight_[options_.name], attempt);
        if (!problem.empty()) {
          refuse(options_.root + "/" + problem);
          return true;
        }
      }
      if (standing_of(attempt) == Standing::whole) return attempt_decides(attempt);
      refuse(text_in(attempt, "name") + ": " + text_in(attempt, "problem"));
      return true;
    }
    for (const Json& attempt : sight_["attempts"]) {
      // Its commit record does not tell its save any more.
      if (text_in(attempt, "name") != name || !text_in(attempt, "save_id").empty()) continue;
      refuse(name + ": " + text_in(attempt, "problem"));
      return true;
    }
    refuse(fmt::format("{}: no checkpoint {} stands there", options_.root, in_quotes(name)));
    return true;
  }

  /// All ranks read their part of it. True: it is loaded, or refused for good.
  bool attempt_decides(const Json& attempt) {
    const std::string name = text_in(attempt, "name");
    bool hard = false;
    const std::string problem = read_part(attempt, hard);
    const Json mine = {{"problem", problem}, {"hard", hard}};
    const Gathered all = group_.all_gather("verified", to_text(mine), options_.deadline_s);
    if (!all) {
      refuse("the ranks could not agree on " + name + ": " + all.problem);
      return true;
    }
    bool any_hard = false;
    std::vector<std::string> told;
    for (std::size_t rank = 0; rank < all.texts.size(); ++rank) {
      const Json theirs = Json::parse(all.texts[rank], nullptr, false);
      const std::string text = text_in(theirs, "problem");
      if (text.empty()) continue;
      any_hard = any_hard || theirs.value("hard", false);
      if (std::find(told.begin(), told.end(), text) == told.end()) told.push_back(text);
    }
    if (told.empty()) {
      outcome_.loaded = Loaded::loaded;
      outcome_.name = name;
      outcome_.best_step = sight_.value("best_step", int64_t{-1});
      note_pointer(attempt);
      return true;
    }
    const std::string text = fmt::format("{}: {}", name, fmt::join(told, "; "));
    if (any_hard) {
      refuse(text);
      return true;
    }
    outcome_.refused.push_back(text);
    return false;
  }

  /// This rank's part, and its share of verifying the files that no rank needs. `hard`: no reason to take an
  /// older one.
  std::string read_part(const Json& attempt, bool& hard) {
    Entry entry = look_at(storage_, options_.root, text_in(attempt, "name"));
    hard = entry.standing == Standing::refusing || entry.standing == Standing::newer;
    if (entry.standing != Standing::whole) return entry.problem;
    Manifest& manifest = entry.manifest;
    if (manifest.save_id != text_in(attempt, "save_id")) {
      return fmt::format("save_id: {} expected, found {}: another save took its place",
                         text_in(attempt, "save_id"), manifest.save_id);
    }
    hard = true;
    if (!options_.config_hash.empty() && manifest.config_hash != options_.config_hash) {
      return fmt::format("config_hash: {} expected, found {}: it is of a run with another config",
                         options_.config_hash, manifest.config_hash);
    }
    if (std::string problem = misfit(manifest, options_.expected); !problem.empty()) return problem;
    hard = false;
    const PartRequest request = {group_.rank(), group_.size(), options_.expected};
    const std::set<int> needed = files_of_part(manifest, request);
    std::map<int, ReadShard> shards;
    for (int rank = 0; rank < manifest.world_size; ++rank) {
      if (!needed.contains(rank) && rank % group_.size() != group_.rank()) continue;
      ReadShard shard = read_shard(
          storage_, options_.root + "/" + entry.name, manifest.files[static_cast<std::size_t>(rank)],
          identity_of(manifest, rank), {.block_bytes = options_.block_bytes, .progress = [this] { group_.progress(); }});
      hard = shard.refusing;
      if (!shard.problem.empty()) return shard.problem;
      if (needed.contains(rank)) shards[rank] = std::move(shard);
    }
    Part part = part_of(manifest, shards, request);
    outcome_.state = std::move(part.state);
    outcome_.of_ranks = std::move(part.of_ranks);
    outcome_.manifest = std::move(manifest);
    return part.problem;
  }

  /// There is no checkpoint: a fresh start, if it was asked for and nothing tells that there was one.
  bool none() {
    const Json& latest = sight_[std::string(kLatest)];
    if (!latest.value("missing", true)) {
      const std::string named = text_in(latest, "checkpoint");
      refuse(fmt::format("{}: {} stands there{}, but no checkpoint: what was saved is gone", options_.root,
                         kLatest, named.empty() ? "" : " and names " + named));
    } else if (options_.fresh_start) {
      outcome_.loaded = Loaded::fresh;
    } else if (!sight_.value("exists", false)) {
      refuse(options_.root + ": no such folder; ask for a fresh start to begin at step 0");
    } else {
      std::string others;
      for (const Json& name : sight_["strangers"]) {
        if (name == kManifest)
          others = "; it looks like a checkpoint itself, give the folder that it stands in";
      }
      if (others.empty() && !sight_["strangers"].empty()) {
        others = fmt::format("; it holds {}, which is none of a saver's",
                             in_quotes(sight_["strangers"][0].get<std::string>()));
      }
      refuse(fmt::format("{}: no checkpoint in it{}; ask for a fresh start to begin at step 0", options_.root,
                         others));
    }
    return true;
  }

  std::string exhausted() const {
    return fmt::format("{}: no checkpoint in it is whole: {}", options_.root,
                       fmt::join(outcome_.refused, "; "));
  }

  /// Says where `latest` is not what was loaded.
  void note_pointer(const Json& attempt) {
    const Json& latest = sight_[std::string(kLatest)];
    const std::string name = outcome_.name, problem = text_in(latest, "problem"),
                      named = text_in(latest, "checkpoint");
    if (!options_.name.empty()) return;
    if (text_in(latest, "save_id") == text_in(attempt, "save_id")) {
      const std::string other = contradiction(kLatest, latest, attempt);
      if (!other.empty()) outcome_.remarks.push_back(other + ": the latter is loaded");
      return;
    }
    if (!problem.empty()) {
      outcome_.remarks.push_back(
          fmt::format("{}; the newest checkpoint that is whole is loaded, {}", problem, name));
      return;
    }
    const Json* found = nullptr;
    for (const Json& other : sight_["attempts"]) {
      if (text_in(other, "save_id") == text_in(latest, "save_id")) found = &other;
    }
    const bool older = outcome_.manifest.step >= latest.value("step", int64_t{0});
    const std::string fault = found == nullptr                                  ? "which is not there"
                              : standing_of(*found) == Standing::whole && older ? "and a newer one is whole"
                                                                                : "which is refused";
    outcome_.remarks.push_back(fmt::format("{} names {} (step {}), {}: {} is loaded", kLatest, named,
                                           latest.value("step", int64_t{0}), fault, name));
  }

  const LoadOptions& options_;
  Group& group_;
  ProgressHook progress_;
  Seam seam_;
  HookedStorage storage_;
  Json sight_;
  LoadOutcome outcome_;
};

}  // namespace

LoadOutcome load(const LoadOptions& options, Storage& storage, Group& group) {
  return Loading(options, storage, group).run();
}

}  // namespace lockstep::checkpoint
