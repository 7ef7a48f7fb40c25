#include "harness/lib/checkpoint/loader.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/lib/checkpoint/shard.h"
#include "harness/lib/checkpoint/storage.h"

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

namespace {

using Json = nlohmann::json;

/// The tensors in order of their names, whatever order the trainer gave.
std::vector<const Tensor*> sorted(const Section& section) {
  std::vector<const Tensor*> tensors;
  for (const Tensor& tensor : section.tensors) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
  return tensors;
}

Json form_of(const Section& section) {
  Json tensors = Json::array();
  for (const Tensor* tensor : sorted(section)) {
    Json form = {tensor->name, tensor->dtype, name_of(tensor->placement)};
    if (tensor->placement != Placement::per_rank) form.push_back(tensor->shape);
    tensors.push_back(std::move(form));
  }
  return {std::move(tensors), section.values};
}

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// Ranks hold ranges in the order of ranks, without a gap.
std::vector<Slice> slices_of(const Tensor& tensor, const std::string& where,
                             const std::vector<const Json*>& theirs, std::string& problem) {
  std::vector<Slice> slices;
  int64_t at = 0;
  for (std::size_t rank = 0; rank < theirs.size(); ++rank) {
    const Slice slice = {(*theirs[rank])[0].get<int64_t>(), (*theirs[rank])[1].get<int64_t>()};
    if (slice.begin != at && problem.empty()) {
      problem =
          slice.begin > at
              ? fmt::format("{}: elements {} to {} are held by no rank", where, at, slice.begin)
              : fmt::format("{}: rank {} holds elements from {} on, which an earlier rank holds up to {}",
                            where, rank, slice.begin, at);
    }
    at = slice.end;
    slices.push_back(slice);
  }
  if (at != tensor.elements() && problem.empty()) {
    problem = fmt::format("{}: elements {} to {} are held by no rank", where, at, tensor.elements());
  }
  return slices;
}

}  // namespace

Json forms_of(const State& state) {
  Json forms = Json::object();
  for (const auto& [kind, section] : state.sections) forms[kind] = long_hash_in_hex(dumped(form_of(section)));
  return forms;
}

std::string forms_problem(const Json& first, const Json& other, int rank) {
  for (const auto& [kind, form] : first.items()) {
    if (!other.contains(kind)) return fmt::format("{}: rank 0 has it, rank {} has not", words_of(kind), rank);
    if (other[kind] != form) {
      return fmt::format("{}: rank {} holds other tensors or values than rank 0", words_of(kind), rank);
    }
  }
  for (const auto& [kind, form] : other.items()) {
    if (!first.contains(kind)) return fmt::format("{}: rank {} has it, rank 0 has not", words_of(kind), rank);
  }
  return "";
}

Json contribution_of(const State& state) {
  Json kinds = Json::object();
  for (const auto& [kind, section] : state.sections) {
    Json own = {{"values", section.rank_values}, {"held", Json::object()}};
    for (const Tensor& tensor : section.tensors) {
      if (tensor.placement == Placement::sharded)
        own["held"][tensor.name] = {tensor.slice.begin, tensor.slice.end};
      if (tensor.placement == Placement::per_rank) own["held"][tensor.name] = tensor.shape;
    }
    kinds[kind] = std::move(own);
  }
  return kinds;
}

std::map<std::string, KindEntry> assemble(const State& state, const std::vector<Json>& contributions,
                                          std::string& problem) {
  problem.clear();
  std::map<std::string, KindEntry> kinds;
  for (const auto& [kind, section] : state.sections) {
    KindEntry& entry = kinds[kind];
    entry.values = section.values;
    for (const Json& contribution : contributions)
      entry.rank_values.push_back(contribution.at(kind).at("values"));
    for (const Tensor* tensor : sorted(section)) {
      TensorEntry& form = entry.tensors.emplace_back();
      form.name = tensor->name;
      form.dtype = tensor->dtype;
      form.placement = tensor->placement;
      std::vector<const Json*> theirs;
      if (tensor->placement != Placement::replicated) {
        for (const Json& contribution : contributions) {
          theirs.push_back(&contribution.at(kind).at("held").at(tensor->name));
        }
      }
      if (tensor->placement == Placement::per_rank) {
        for (const Json* shape : theirs) form.shapes.push_back(shape->get<std::vector<int64_t>>());
        continue;
      }
      form.shape = tensor->shape;
      if (tensor->placement != Placement::sharded) continue;
      form.slices = slices_of(*tensor, words_of(kind) + ": " + tensor->name, theirs, problem);
    }
  }
  return kinds;
}

static void to_json(Json& json, const ReadPointer& read) {
  json = {{"missing", read.missing}, {"problem", read.problem}, {"checkpoint", read.pointer.checkpoint},
          {"save_id", read.pointer.save_id}, {"step", read.pointer.step}};
}
static void from_json(const Json& json, ReadPointer& read) {
  read = {{json.at("checkpoint"), json.at("save_id"), json.at("step")}, json.at("problem"), json.at("missing")};
}

namespace {

/// A reader that finds files gone looks again this often: a save may have taken the older ones away
/// meanwhile.
constexpr int kMostRounds = 3;

/// A checkpoint as rank 0 saw it.
struct Attempt {
  std::string name, save_id;
  int64_t step = 0;
  Standing standing = Standing::whole;
  std::string problem;
  bool operator==(const Attempt&) const = default;
  std::string told() const { return name + ": " + problem; }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Attempt, name, save_id, step, standing, problem)

/// What rank 0 saw in the folder, for all ranks.
struct Sight {
  std::string problem;
  bool exists = false;
  std::vector<Attempt> attempts = {};
  std::vector<std::string> strangers = {};
  ReadPointer latest = {}, best = {};
  int64_t best_step = -1;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Sight, problem, exists, attempts, strangers, latest, best, best_step)

Sight sight_of(const LoadOptions& options, Storage& storage) {
  const Survey found = survey(storage, options.root, false);
  Sight sight{found.failure.text, found.exists, {}, found.strangers};
  for (const Entry& entry : found.entries)
    sight.attempts.push_back({entry.name, entry.commit.save_id, entry.commit.step, entry.standing, entry.problem});
  sight.latest = read_pointer(storage, options.root, kLatest);
  sight.best = read_pointer(storage, options.root, kBest);
  if (const Entry* const best = best_of(found, sight.best)) sight.best_step = best->commit.step;
  return sight;
}

/// A pointer holds a save's id, its folder's name and its step: what does not belong together is damage that no seal shows.
std::string contradiction(std::string_view name, const Pointer& pointer, const Attempt& attempt) {
  const EntryName named = parse_entry_name(pointer.checkpoint), found = parse_entry_name(attempt.name);
  const bool same = named.epoch == found.epoch && named.step == found.step && named.kind == EntryKind::checkpoint &&
                    pointer.step == attempt.step;
  if (same) return "";
  return fmt::format("{}: names {} (step {}), and its save_id is that of {} (step {})", name,
                     in_quotes(pointer.checkpoint), pointer.step, attempt.name, attempt.step);
}

class Loading {
 public:
  Loading(const LoadOptions& options, Storage& storage, Group& group)
      : options_(options), group_(group), progress_(group), seam_(progress_), storage_(storage, seam_) {}

  LoadOutcome run() {
    std::vector<Attempt> earlier;
    for (int round = 0; round < kMostRounds; ++round) {
      if (!look()) return outcome_;
      // Refused as before: looking once more shows nothing else.
      if (round > 0 && sight_.attempts == earlier) break;
      earlier = sight_.attempts;
      outcome_.refused.clear();
      outcome_.remarks.clear();
      if (options_.name.empty() ? try_newest() : try_named()) return outcome_;
    }
    refuse(fmt::format("{}: no checkpoint in it is whole: {}", options_.root, fmt::join(outcome_.refused, "; ")));
    return outcome_;
  }

 private:
  /// True: it is decided.
  bool refuse(const std::string& problem) {
    outcome_.loaded = Loaded::refused;
    outcome_.problem = problem;
    outcome_.state = {};
    outcome_.of_ranks.clear();
    return true;
  }

  /// One rank looks at the folder, so that all see the same.
  bool look() {
    const std::string mine = group_.rank() == 0 ? dumped(sight_of(options_, storage_)) : "";
    const Gathered all = group_.all_gather("survey", mine, options_.deadline_s);
    if (!all) return !refuse("the ranks could not agree on a checkpoint: " + all.problem);
    sight_ = Json::parse(all.texts[0]).get<Sight>();
    return sight_.problem.empty() || !refuse(sight_.problem);
  }

  bool try_newest() {
    for (const Attempt& attempt : sight_.attempts) {
      if (attempt.standing == Standing::unfinished) outcome_.remarks.push_back(attempt.told() + "; it does not count");
    }
    for (const Attempt& attempt : sight_.attempts) {
      switch (attempt.standing) {
        case Standing::unfinished:
          break;
        case Standing::damaged:
          outcome_.refused.push_back(attempt.told());
          break;
        case Standing::newer:
        case Standing::refusing:
          return refuse(attempt.told());
        case Standing::whole:
          if (attempt_decides(attempt)) return true;
          break;
      }
    }
    return outcome_.refused.empty() && none();
  }

  bool try_named() {
    if (options_.name == kLatest || options_.name == kBest) {
      const ReadPointer& read = options_.name == kLatest ? sight_.latest : sight_.best;
      if (!read.problem.empty()) return refuse(options_.root + "/" + read.problem);
      for (const Attempt& attempt : sight_.attempts) {
        if (attempt.save_id != read.pointer.save_id) continue;
        if (attempt.standing != Standing::whole) return refuse(attempt.told());
        const std::string problem = contradiction(options_.name, read.pointer, attempt);
        return problem.empty() ? attempt_decides(attempt) : refuse(options_.root + "/" + problem);
      }
      // Its commit record may not tell its save any more.
      return none_named(read.pointer.checkpoint, true);
    }
    for (const Attempt& attempt : sight_.attempts) {
      if (attempt.name != options_.name) continue;
      return attempt.standing == Standing::whole ? attempt_decides(attempt) : refuse(attempt.told());
    }
    return none_named(options_.name, false);
  }

  bool none_named(const std::string& name, bool unknown_save) {
    for (const Attempt& attempt : sight_.attempts) {
      if (unknown_save && attempt.name == name && attempt.save_id.empty()) return refuse(attempt.told());
    }
    return refuse(fmt::format("{}: no checkpoint {} stands there", options_.root, in_quotes(name)));
  }

  /// All ranks read their part of it. True: it is loaded, or refused for good.
  bool attempt_decides(const Attempt& attempt) {
    const std::string& name = attempt.name;
    bool hard = false;
    const std::string problem = read_part(attempt, hard);
    const Json mine = {{"problem", problem}, {"hard", hard}};
    const Gathered all = group_.all_gather("verified", dumped(mine), options_.deadline_s);
    if (!all) return refuse("the ranks could not agree on " + name + ": " + all.problem);
    bool any_hard = false;
    std::vector<std::string> told;
    for (std::size_t rank = 0; rank < all.texts.size(); ++rank) {
      const Json theirs = Json::parse(all.texts[rank], nullptr, false);
      const std::string text = theirs.value("problem", "");
      if (text.empty()) continue;
      any_hard = any_hard || theirs.value("hard", false);
      if (std::find(told.begin(), told.end(), text) == told.end()) told.push_back(text);
    }
    if (told.empty()) {
      outcome_.loaded = Loaded::loaded;
      outcome_.name = name;
      outcome_.best_step = sight_.best_step;
      note_pointer(attempt);
      return true;
    }
    const std::string text = fmt::format("{}: {}", name, fmt::join(told, "; "));
    if (any_hard) return refuse(text);
    outcome_.refused.push_back(text);
    return false;
  }

  /// This rank's part, and its share of verifying the files that no rank needs. `hard`: no reason to take an
  /// older one.
  std::string read_part(const Attempt& attempt, bool& hard) {
    Entry entry = look_at(storage_, options_.root, attempt.name);
    hard = entry.standing == Standing::refusing || entry.standing == Standing::newer;
    if (entry.standing != Standing::whole) return entry.problem;
    Manifest& manifest = entry.manifest;
    if (manifest.save_id != attempt.save_id) {
      return fmt::format("save_id: {} expected, found {}: another save took its place", attempt.save_id,
                         manifest.save_id);
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
    if (!sight_.latest.missing) {
      const std::string& named = sight_.latest.pointer.checkpoint;
      return refuse(fmt::format("{}: {} stands there{}, but no checkpoint: what was saved is gone", options_.root,
                                kLatest, named.empty() ? "" : " and names " + named));
    }
    if (options_.fresh_start) {
      outcome_.loaded = Loaded::fresh;
      return true;
    }
    if (!sight_.exists) return refuse(options_.root + ": no such folder; ask for a fresh start to begin at step 0");
    std::string others;
    if (std::ranges::find(sight_.strangers, kManifest) != sight_.strangers.end())
      others = "; it looks like a checkpoint itself, give the folder that it stands in";
    else if (!sight_.strangers.empty())
      others = fmt::format("; it holds {}, which is none of a saver's", in_quotes(sight_.strangers.front()));
    return refuse(fmt::format("{}: no checkpoint in it{}; ask for a fresh start to begin at step 0", options_.root,
                              others));
  }

  /// Says where `latest` is not what was loaded.
  void note_pointer(const Attempt& attempt) {
    const Pointer& latest = sight_.latest.pointer;
    const std::string& name = outcome_.name;
    if (!options_.name.empty()) return;
    if (latest.save_id == attempt.save_id) {
      const std::string other = contradiction(kLatest, latest, attempt);
      if (!other.empty()) outcome_.remarks.push_back(other + ": the latter is loaded");
      return;
    }
    if (!sight_.latest.problem.empty()) {
      outcome_.remarks.push_back(
          fmt::format("{}; the newest checkpoint that is whole is loaded, {}", sight_.latest.problem, name));
      return;
    }
    const Attempt* found = nullptr;
    for (const Attempt& other : sight_.attempts) {
      if (other.save_id == latest.save_id) found = &other;
    }
    const bool older = outcome_.manifest.step >= latest.step;
    const std::string fault = found == nullptr                             ? "which is not there"
                              : found->standing == Standing::whole && older ? "and a newer one is whole"
                                                                           : "which is refused";
    outcome_.remarks.push_back(fmt::format("{} names {} (step {}), {}: {} is loaded", kLatest, latest.checkpoint,
                                           latest.step, fault, name));
  }

  const LoadOptions& options_;
  Group& group_;
  ProgressHook progress_;
  Seam seam_;
  HookedStorage storage_;
  Sight sight_;
  LoadOutcome outcome_;
};

}  // namespace

LoadOutcome load(const LoadOptions& options, Storage& storage, Group& group) {
  return Loading(options, storage, group).run();
}

}  // namespace lockstep::checkpoint
