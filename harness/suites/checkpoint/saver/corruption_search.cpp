#include "harness/suites/checkpoint/saver/corruption_search.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/lib/checkpoint/manifest.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/suites/checkpoint/saver/judge.h"
#include "harness/suites/checkpoint/saver/kill.h"

namespace lockstep::saver {
namespace {

using checkpoint::MemoryStorage;

std::string file_name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

std::string of_older(const CorruptFixture& corrupt_fixture, const std::string& path) {
  std::string other = path;
  const std::size_t at = other.find(corrupt_fixture.newest());
  if (at != std::string::npos) other.replace(at, corrupt_fixture.newest().size(), corrupt_fixture.older());
  return other;
}

using NewBytes = std::function<std::string(const CorruptFixture&)>;

Damage of_file(std::string name, std::string failure, const std::string& path, std::string words, NewBytes bytes) {
  Damage damage{std::move(name), std::move(failure), CorruptFixture::kind_of(path), std::move(words), {}};
  damage.judge = [path, bytes = std::move(bytes)](const CorruptFixture& corrupt_fixture) {
    MemoryStorage disk(corrupt_fixture.disk());
    disk.put_file(path, bytes(corrupt_fixture));
    return corrupt_fixture.judge(disk, CorruptFixture::look_at(path));
  };
  return damage;
}

enum class BlockDamage { zeroed, stale, exchanged };

/// The file's bytes with that done to its block; `other` is the block that it changes places with.
std::string damaged(const CorruptFixture& corrupt_fixture, const std::string& path, BlockDamage how, std::size_t block, std::size_t first,
                    std::size_t other) {
  const std::string& whole = *corrupt_fixture.disk().bytes(path);
  const std::size_t begin = first * block, length = std::min(block, whole.size() - begin);
  std::string bytes = whole;
  switch (how) {
    case BlockDamage::zeroed:
      return bytes.replace(begin, length, length, '\0');
    case BlockDamage::stale: {
      const auto older = corrupt_fixture.disk().bytes(of_older(corrupt_fixture, path));
      return begin + length > older->size() ? bytes : bytes.replace(begin, length, *older, begin, length);
    }
    case BlockDamage::exchanged:
      if (other * block + length > whole.size()) return bytes;
      bytes.replace(begin, length, whole, other * block, length);
      return bytes.replace(other * block, length, whole, begin, length);
  }
  return bytes;
}

/// Blocks of one size in one file.
void add_blocks(const CorruptFixture& corrupt_fixture, const std::string& path, std::size_t block, std::vector<Damage>& all) {
  const std::size_t count = (corrupt_fixture.disk().bytes(path)->size() + block - 1) / block;
  const std::string file = file_name(path);
  const auto add = [&](BlockDamage how, std::string_view kind, std::string_view what, std::size_t first, std::size_t second) {
    if (damaged(corrupt_fixture, path, how, block, first, second) == *corrupt_fixture.disk().bytes(path)) return;
    all.push_back(of_file(fmt::format("{}-{}:{}:{}-{}", kind, block, file, first, second), fmt::format("{} of {} bytes", what, block),
                          path, fmt::format("{}: {} of {} bytes, {} and {}", file, what, block, first, second),
                          [=](const CorruptFixture& one) { return damaged(one, path, how, block, first, second); }));
  };
  for (std::size_t first = 0; first < count; ++first) {
    add(BlockDamage::zeroed, "zero", "block of zeros", first, first);
    if (CorruptFixture::look_at(path) == Look::newest) add(BlockDamage::stale, "stale", "stale block", first, first);
    for (std::size_t second = first + 1; second < count; ++second)
      add(BlockDamage::exchanged, "swap", "exchanged blocks", first, second);
  }
}

using Change = std::function<void(MemoryStorage&)>;

Damage of_files(const std::string& name, const std::string& failure, const std::string& place, Change change,
                Look look = Look::newest) {
  Damage damage{name, failure, place, place, {}};
  damage.judge = [change = std::move(change), look](const CorruptFixture& corrupt_fixture) {
    MemoryStorage disk(corrupt_fixture.disk());
    change(disk);
    return corrupt_fixture.judge(disk, look);
  };
  return damage;
}

}  // namespace

/// Blocks of 512 and 4,096 bytes exchanged, zeroed, and those of the older checkpoint; whole files exchanged, missing, and
/// those of the older one. What changes no byte is left out.
static std::vector<Damage> block_damages(const CorruptFixture& corrupt_fixture) {
  std::vector<Damage> all;
  for (const std::string& path : corrupt_fixture.files()) {
    for (const std::size_t block : {std::size_t{512}, std::size_t{4096}}) {
      if (corrupt_fixture.disk().bytes(path)->size() > block) add_blocks(corrupt_fixture, path, block, all);
    }
  }
  return all;
}

static std::vector<Damage> file_damages(const CorruptFixture& corrupt_fixture) {
  std::vector<Damage> all;
  std::vector<std::string> parts;
  for (const std::string& path : corrupt_fixture.files()) {
    const std::string file = file_name(path);
    all.push_back(of_file("longer:" + file, "a byte more at the end", path, file + ": a byte more",
                          [path](const CorruptFixture& one) { return *one.disk().bytes(path) + '\0'; }));
    if (CorruptFixture::look_at(path) != Look::newest) continue;
    parts.push_back(path);
    all.push_back(of_files("missing:" + file, "missing", file, [path](MemoryStorage& disk) { disk.take(path); }));
    all.push_back(of_files("older:" + file, "that of the older step", file, [path, &corrupt_fixture](MemoryStorage& disk) {
      disk.put_file(path, *corrupt_fixture.disk().bytes(of_older(corrupt_fixture, path)));
    }));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t j = i + 1; j < parts.size(); ++j) {
      const std::string first = parts[i], second = parts[j];
      const std::string both = file_name(first) + "-" + file_name(second);
      all.push_back(of_files("exchanged:" + both, "two files exchanged", both, [=, &corrupt_fixture](MemoryStorage& disk) {
        disk.put_file(first, *corrupt_fixture.disk().bytes(second));
        disk.put_file(second, *corrupt_fixture.disk().bytes(first));
      }));
      all.push_back(of_files("both-older:" + both, "two files of the older step", both, [=, &corrupt_fixture](MemoryStorage& disk) {
        for (const std::string& path : {first, second}) disk.put_file(path, *corrupt_fixture.disk().bytes(of_older(corrupt_fixture, path)));
      }));
    }
  }
  all.push_back(of_files("all-older", "all files of the older step", "the whole folder", [parts, &corrupt_fixture](MemoryStorage& disk) {
    for (const std::string& path : parts) disk.put_file(path, *corrupt_fixture.disk().bytes(of_older(corrupt_fixture, path)));
  }));
  return all;
}

namespace {

using checkpoint::Loaded;
using checkpoint::LoadOutcome;

bool names(const std::vector<std::string>& lines, const std::string& checkpoint) {
  return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(checkpoint) != std::string::npos; });
}

std::string name_in_folder(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

}  // namespace

CorruptFixture::CorruptFixture(int64_t floats)
    : contents_of_{{.step = 11, .floats = floats, .few_kinds = true}, {.step = 10, .floats = floats, .few_kinds = true}},
      disk_(std::make_unique<checkpoint::MemoryStorage>()) {
  disk_->put_folder(std::string(kRoot));
  Scene scene{.name = "specimen", .words = "", .best = true};
  for (int i = 1; i >= 0; --i) {
    SaveCase how;
    how.scene = &scene;
    how.content = contents_of_[static_cast<std::size_t>(i)];
    how.ranks = kRanks;
    how.writer = 30 + i;
    for (const auto& outcome : save_scheduled(*disk_, how, contents_).told)
      LOCKSTEP_CHECK(outcome, "a corrupt fixture is saved: " + outcome.problem);
  }
  newest_ = checkpoint::checkpoint_name(1, 11);
  older_ = checkpoint::checkpoint_name(1, 10);
  for (const std::string& path : disk_->paths()) {
    if (path.ends_with('/') || path.ends_with(checkpoint::kLock) || path.find("/" + older_ + "/") != std::string::npos) continue;
    files_.push_back(path);
  }
}

std::vector<KnownSave> CorruptFixture::known() const {
  return {{contents_of_[0], kRanks, true}, {contents_of_[1], kRanks, true}};
}

Look CorruptFixture::look_at(std::string_view file) {
  if (name_in_folder(file) == checkpoint::kLatest) return Look::pointer;
  return name_in_folder(file) == checkpoint::kBest ? Look::best_by_name : Look::newest;
}

std::string CorruptFixture::kind_of(std::string_view file) {
  const std::string name = name_in_folder(file);
  return name.ends_with(".safetensors") ? "shard" : name;
}

Judgement CorruptFixture::judge(checkpoint::Storage& disk, Look look) const {
  const auto by_name = [&](std::string_view pointer) {
    return load_scheduled(disk, 1, std::string(pointer))[0].loaded == Loaded::refused;
  };
  if (look == Look::best_by_name) {
    if (by_name(checkpoint::kBest)) return {"refused, and named", false, ""};
    return {"silent", true, "a damaged best_model was to be refused; it is followed"};
  }
  const std::vector<LoadOutcome> loaded = load_scheduled(disk, 1);
  if (loaded[0].loaded == Loaded::refused) {
    if (!loaded[0].problem.empty() && look == Look::newest) return {"refused, and named", false, ""};
    return {"torn", true, "a whole checkpoint was to be loaded; the load refuses: " + loaded[0].problem};
  }
  const std::vector<KnownSave> all = known();
  const Judgement judged = judge_load(contents_, all, false, loaded);
  if (judged.fault) return judged;
  if (look == Look::pointer) {
    if (judged.outcome != "whole, new") return {"lost work", true, "the newest was to be loaded; the load finds the older one"};
    if (!names(loaded[0].remarks, std::string(checkpoint::kLatest)))
      return {"silent", true, "a damaged latest was to be told; nothing is said"};
    if (!by_name(checkpoint::kLatest)) return {"silent", true, "a damaged latest was to be refused by name; it is followed"};
    return {"newest loaded, and said so", false, ""};
  }
  if (judged.outcome == "whole, new") return {"silent", true, "the damaged checkpoint was to be refused; it is loaded"};
  if (!names(loaded[0].refused, newest_) && !names(loaded[0].remarks, newest_))
    return {"silent", true, "the older one is loaded, and nothing is said of the newest"};
  return {"older one loaded, and said so", false, ""};
}

// Fields that are not what was written, in files whose seals fit; and folders and files that are no checkpoint.
namespace {

using Json = nlohmann::json;

/// Another value of the same type.
Json other_value(const Json& value) {
  if (value.is_string()) return value.get<std::string>() + "x";
  if (value.is_number_integer()) return value.get<int64_t>() + 1;
  if (value.is_number()) return value.get<double>() + 1;
  if (value.is_boolean()) return !value.get<bool>();
  return Json("another");
}

/// Every field of the object, the seal excepted, by its JSON pointer.
std::vector<std::string> fields_of(const Json& object) {
  std::vector<std::string> fields;
  const Json flat = object.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    if (pointer != "/checksum") fields.push_back(pointer);
  }
  return fields;
}

Json changed(const Json& object, const std::string& field, bool taken) {
  Json other = object;
  const Json::json_pointer at(field);
  if (!taken) {
    other.at(at) = other_value(other.at(at));
    return other;
  }
  Json& parent = other.at(at.parent_pointer());
  if (parent.is_array())
    parent.erase(static_cast<std::size_t>(std::stoul(at.back())));
  else
    parent.erase(at.back());
  return other;
}

std::string plain(const std::string& field) {
  std::string name = field.substr(1);
  for (char& letter : name) {
    const bool fits = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
                      letter == '_' || letter == '/';
    if (!fits) letter = '-';
  }
  return name;
}

/// The commit record that fits such a manifest.
std::string forged_commit(const Json& commit, const Json& manifest, const std::string& text) {
  Json forged = commit;
  for (const auto& [name, value] : commit.items()) {
    if (name != "checksum" && name != "format" && manifest.contains(name)) forged[name] = manifest[name];
  }
  forged["manifest_length"] = text.size();
  forged["manifest_hash"] = long_hash_in_hex(text);
  forged.erase("checksum");
  return checkpoint::canonical_text(forged);
}

Judgement judge_forged(const CorruptFixture& corrupt_fixture, MemoryStorage& disk) {
  const Judgement judged = corrupt_fixture.judge(disk, Look::newest);
  if (!judged.fault) return judged;
  // A forger who makes every seal anew is not found by hashes: that is counted and not claimed.
  return {"forged throughout, accepted", false, ""};
}

void add_fields(const CorruptFixture& corrupt_fixture, const std::string& path, std::vector<Damage>& all) {
  const Json object = Json::parse(*corrupt_fixture.disk().bytes(path));
  const std::string kind = CorruptFixture::kind_of(path), folder = path.substr(0, path.rfind('/') + 1);
  for (const std::string& field : fields_of(object)) {
    for (const bool taken : {false, true}) {
      Json other = changed(object, field, taken);
      other.erase("checksum");
      const std::string text = checkpoint::canonical_text(other);
      const std::string what = taken ? "field taken away, sealed anew" : "field changed, sealed anew";
      const std::string name = fmt::format("{}:{}:{}", taken ? "taken" : "changed", kind, plain(field));
      Damage damage{name, what, kind, fmt::format("{}: {} {}", kind, field, what), {}};
      damage.judge = [path, text](const CorruptFixture& one) {
        MemoryStorage disk(one.disk());
        disk.put_file(path, text);
        return one.judge(disk, CorruptFixture::look_at(path));
      };
      all.push_back(damage);
      if (kind != checkpoint::kManifest) continue;
      const std::string commit_path = folder + std::string(checkpoint::kCommit);
      const std::string commit = forged_commit(Json::parse(*corrupt_fixture.disk().bytes(commit_path)), other, text);
      damage.name = "forged-" + name;
      damage.failure = taken ? "field taken away, every seal anew" : "field changed, every seal anew";
      damage.judge = [=](const CorruptFixture& one) {
        MemoryStorage disk(one.disk());
        disk.put_file(path, text);
        disk.put_file(commit_path, commit);
        return judge_forged(one, disk);
      };
      all.push_back(damage);
    }
  }
}

/// Opening a path that ends so fails.
class Unreadable final : public checkpoint::Hook {
 public:
  Unreadable(std::string end, int error) : end_(std::move(end)), error_(error) {}
  checkpoint::Intervention before(const checkpoint::Operation& operation) override {
    const bool opens = operation.kind == checkpoint::OperationKind::open || operation.kind == checkpoint::OperationKind::list;
    if (opens && operation.path.ends_with(end_)) return {.error = {error_, std::generic_category()}};
    return {};
  }

 private:
  std::string end_;
  int error_;
};

struct BadInput {
  std::string name, words, named;  ///< what the refusal must name
  std::function<void(MemoryStorage&)> change;
  std::string config_hash = std::string(kConfigHash);
  std::string unreadable = {};
  std::string root = std::string(kRoot);
};

Judgement judge_bad_input(const CorruptFixture& corrupt_fixture, const BadInput& bad) {
  MemoryStorage disk(corrupt_fixture.disk());
  if (bad.change) bad.change(disk);
  const std::vector<std::string> before = disk.paths();
  for (const int ranks : {1, 2}) {
    scheduler::Scheduler scheduler(ranks);
    scheduler::Meeting meeting(scheduler, 0, ranks);
    std::vector<LoadOutcome> loaded(static_cast<std::size_t>(ranks));
    scheduler.run([&](int rank) {
      scheduler::ScheduledGroup group(meeting, rank);
      Unreadable hook(bad.unreadable.empty() ? "\n" : bad.unreadable, EACCES);
      checkpoint::Seam seam(hook);
      checkpoint::HookedStorage hooked(disk, seam);
      checkpoint::LoadOptions options;
      options.root = bad.root;
      options.config_hash = bad.config_hash;
      loaded[static_cast<std::size_t>(rank)] = checkpoint::load(options, hooked, group);
      group.end();
    });
    for (const LoadOutcome& outcome : loaded) {
      if (outcome.loaded != Loaded::refused)
        return {"silent", true, fmt::format("a refusal expected; {} is loaded", outcome.name)};
      if (outcome.problem.find(bad.named) == std::string::npos)
        return {"not named", true, fmt::format("the refusal is to name {}: {}", bad.named, outcome.problem)};
      if (outcome.problem != loaded[0].problem)
        return {"mixed", true, fmt::format("the ranks refuse apart: \"{}\" and \"{}\"", loaded[0].problem, outcome.problem)};
    }
    if (scheduler.stalled()) return {"hang", true, "a rank waited for the whole deadline"};
  }
  if (disk.paths() != before) return {"changed", true, "a load is to change nothing on the disk; names changed"};
  return {"refused, and named", false, ""};
}

void make_newer(const CorruptFixture& corrupt_fixture, MemoryStorage& disk, bool commit_too) {
  const std::string folder = std::string(kRoot) + "/" + corrupt_fixture.newest() + "/";
  Json manifest = Json::parse(*disk.bytes(folder + "manifest.json")), commit = Json::parse(*disk.bytes(folder + "commit.json"));
  manifest["format_version"] = checkpoint::kFormatVersion + 1;
  manifest.erase("checksum");
  if (commit_too) commit["format_version"] = checkpoint::kFormatVersion + 1;
  const std::string text = checkpoint::canonical_text(manifest);
  disk.put_file(folder + "manifest.json", text);
  disk.put_file(folder + "commit.json", forged_commit(commit, commit_too ? manifest : Json::object(), text));
}

}  // namespace

/// Each field of the manifest, the commit record and the pointers changed or taken away, with the file's own seal made anew.
/// `whole`: also with the commit record made anew, as a forger would: what is then accepted is counted, and not claimed.
static std::vector<Damage> field_damages(const CorruptFixture& corrupt_fixture) {
  std::vector<Damage> all;
  for (const std::string& path : corrupt_fixture.files()) {
    if (CorruptFixture::kind_of(path) != "shard") add_fields(corrupt_fixture, path, all);
  }
  return all;
}

/// Newer format, another config, files that nobody may read, folders that hold no checkpoint. Each must be refused, name what
/// it is about, and change nothing.
static std::vector<Damage> bad_inputs(const CorruptFixture& corrupt_fixture) {
  const std::string root(kRoot), newest = corrupt_fixture.newest();
  const auto emptied = [root](MemoryStorage& disk) {
    disk.take(root);
    disk.put_folder(root);
  };
  std::vector<BadInput> inputs{
      {"newer-format", "a newer format", "format_version", [&corrupt_fixture](MemoryStorage& disk) { make_newer(corrupt_fixture, disk, true); }},
      {"newer-manifest", "a newer format of the manifest alone", "format_version",
       [&corrupt_fixture](MemoryStorage& disk) { make_newer(corrupt_fixture, disk, false); }},
      {"other-config", "another config", "config_hash", {}, "another"},
      {"empty-folder", "an empty folder", "no checkpoint in it", emptied},
      {"strange-folder", "a folder of other files", "none of a saver's",
       [=](MemoryStorage& disk) {
         emptied(disk);
         disk.put_file(root + "/notes.txt", "hello");
       }},
      {"no-folder", "a folder that does not stand", "no such folder", {}, std::string(kConfigHash), "", "/run/elsewhere"},
      {"file-for-folder", "a file in the folder's place", root,
       [=](MemoryStorage& disk) {
         disk.take(root);
         disk.put_file(root, "hello");
       }},
      {"checkpoint-itself", "a checkpoint's own folder", "looks like a checkpoint itself", {}, std::string(kConfigHash), "",
       root + "/" + newest},
      {"all-gone", "latest without any checkpoint", "what was saved is gone",
       [=, &corrupt_fixture](MemoryStorage& disk) {
         disk.take(root + "/" + corrupt_fixture.newest());
         disk.take(root + "/" + corrupt_fixture.older());
       }},
      {"unreadable-folder", "a folder that nobody may read", root, {}, std::string(kConfigHash), root},
  };
  for (const std::string& path : corrupt_fixture.files()) {
    if (CorruptFixture::look_at(path) != Look::newest) continue;
    const std::string file = path.substr(path.rfind('/') + 1);
    inputs.push_back({"unreadable:" + file, "a file that nobody may read", file, {}, std::string(kConfigHash), newest + "/" + file});
  }
  std::vector<Damage> all;
  for (const BadInput& input : inputs) {
    all.push_back({"input:" + input.name, "bad input", input.words, input.words,
                   [input](const CorruptFixture& one) { return judge_bad_input(one, input); }});
  }
  return all;
}

// Corruption: every bit, every length, exchanged and stale blocks and files, forged fields, bad input; and clean loads.
namespace {

/// Of each of two moments: the newest checkpoint's files and the pointers have some 65,000 bytes.
constexpr int64_t kCorruptFixtureFloats = 7700;
/// A trial holds the flips of so many bytes, or so many lengths.
constexpr std::size_t kBytes_a_trial = 64;
constexpr int kCleanCheckpoints = 500, kLoadsOfEach = 20;

/// Counts cases that ended alike; faults are told one by one, the first few of a trial.
class CaseCounts {
 public:
  void add(const Judgement& judgement, const std::string& words) {
    if ((!judgement.fault || told_ >= kMostTold) && count_alike(cases_, judgement.outcome, judgement.verdict())) return;
    cases_.push_back(case_of(judgement, words));
    if (judgement.fault) ++told_;
  }
  std::vector<CaseResult> take() { return std::move(cases_); }

 private:
  static constexpr int kMostTold = 3;
  std::vector<CaseResult> cases_;
  int told_ = 0;
};

class CorruptionSearch final : public Suite {
 public:
  explicit CorruptionSearch(const SaverConfig& config) : config_(config), corrupt_fixture_(kCorruptFixtureFloats) {}

  std::string subject() const override { return "the saver library, its files damaged"; }

  std::vector<std::string> plan() const override {
    std::size_t bytes = 0;
    for (const std::string& path : corrupt_fixture_.files()) bytes += corrupt_fixture_.disk().bytes(path)->size();
    return {fmt::format("every one of {} bits, and every length, of {}", with_commas(static_cast<int64_t>(bytes * 8)),
                        counted(static_cast<int64_t>(corrupt_fixture_.files().size()), "file")),
            "blocks of 512 and 4,096 bytes exchanged, zeroed, and those of an older checkpoint",
            "files exchanged between ranks and steps, missing, longer",
            "each field of manifest, commit record and pointers changed or taken away, its seal made anew",
            "newer format, another config, unreadable files, folders that are no checkpoint",
            fmt::format("{} loads of what nothing befell, none of which may say a word",
                        with_commas(int64_t{kCleanCheckpoints} * kLoadsOfEach))};
  }

  std::vector<Trial> trials(const SuiteRun& run) override {
    std::vector<Trial> all;
    for (const std::string& path : corrupt_fixture_.files()) {
      const std::size_t length = corrupt_fixture_.disk().bytes(path)->size();
      std::vector<Trial> of_file;
      for (std::size_t begin = 0; begin < length; begin += kBytes_a_trial) {
        const std::size_t end = std::min(begin + kBytes_a_trial, length);
        of_file.push_back(flips(path, begin, end));
        of_file.push_back(lengths(path, begin, end));
      }
      append(all, of_file);
    }
    append(all, damages("block", block_damages(corrupt_fixture_)));
    append(all, damages("file", file_damages(corrupt_fixture_)));
    append(all, damages("field", field_damages(corrupt_fixture_)));
    append(all, damages("input", bad_inputs(corrupt_fixture_)));
    std::vector<Trial> clean;
    for (int i = 0; i < kCleanCheckpoints; ++i) clean.push_back(clean_loads(i));
    append(all, clean);
    if (config_.planted) add_blind(all);
    run.say(fmt::format("{} trials", with_commas(static_cast<int64_t>(all.size()))));
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    return {{"bits flipped, one at a time", with_commas(m.count("flips"))},
            {"lengths to which a file was cut", with_commas(m.count("cuts"))},
            {"blocks and files exchanged, stale, zeroed, missing or longer", with_commas(m.count("parts"))},
            {"fields changed or taken away", with_commas(m.count("fields"))},
            {"bad inputs", with_commas(m.count("inputs"))},
            {"damaged in all", fmt::format("{}; refused, or the older one loaded and said so: {}",
                                           with_commas(m.count("flips") + m.count("cuts") + m.count("parts") + m.count("fields") + m.count("inputs")), with_commas(m.count("noticed")))},
            {"forged with every seal made anew, and accepted", with_commas(m.count("forged"))},
            {"clean loads", fmt::format("{}, with a word about damage: {}", with_commas(m.count("clean")), with_commas(m.count("alarms")))}};
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {"What counts: the damaged checkpoint is refused and named, the older one is loaded and that is said, or, where only "
            "a pointer is damaged, the newest is loaded and that is said.",
            "A forger who makes the manifest's seal and the commit record anew changes what no file repeats, as a value; hashes "
            "find accidents and not intent. Such cases are counted and not claimed."};
  }

 private:
  void append(std::vector<Trial>& all, const std::vector<Trial>& some) const {
    const std::vector<Trial> sample = even_sample(some, static_cast<std::size_t>(config_.points));
    all.insert(all.end(), sample.begin(), sample.end());
  }

  void count(const Judgement& judgement) {
    if (judgement.outcome == "forged throughout, accepted")
      measured().add("forged");
    else if (!judgement.fault)
      measured().add("noticed");
  }

  Trial flips(const std::string& path, std::size_t begin, std::size_t end) {
    const std::string file = path.substr(path.rfind('/') + 1);
    Trial planned{fmt::format("flip:{}:{}-{}", file, begin, end), "one bit flipped", CorruptFixture::kind_of(path),
                  0.5};
    planned.run = [this, path, file, begin, end](Slot&) {
      CaseCounts counts;
      MemoryStorage disk(corrupt_fixture_.disk());
      const std::string whole = *corrupt_fixture_.disk().bytes(path);
      for (std::size_t bit = begin * 8; bit < end * 8; ++bit) {
        std::string bytes = whole;
        bytes[bit / 8] = static_cast<char>(static_cast<unsigned char>(bytes[bit / 8]) ^ (1U << (bit % 8)));
        disk.put_file(path, std::move(bytes));
        const Judgement judgement = corrupt_fixture_.judge(disk, CorruptFixture::look_at(path));
        counts.add(judgement, fmt::format("Bit {} of byte {} of {} is flipped", bit % 8, bit / 8, file));
        count(judgement);
        measured().add("flips");
      }
      return counts.take();
    };
    return planned;
  }

  Trial lengths(const std::string& path, std::size_t begin, std::size_t end) {
    const std::string file = path.substr(path.rfind('/') + 1);
    Trial planned{fmt::format("cut:{}:{}-{}", file, begin, end), "cut short", CorruptFixture::kind_of(path), 0.1};
    planned.run = [this, path, file, begin, end](Slot&) {
      CaseCounts counts;
      MemoryStorage disk(corrupt_fixture_.disk());
      const std::string whole = *corrupt_fixture_.disk().bytes(path);
      for (std::size_t length = begin; length < end; ++length) {
        disk.put_file(path, whole.substr(0, length));
        const Judgement judgement = corrupt_fixture_.judge(disk, CorruptFixture::look_at(path));
        counts.add(judgement, fmt::format("{} is cut to {} bytes", file, length));
        count(judgement);
        measured().add("cuts");
      }
      return counts.take();
    };
    return planned;
  }

  std::vector<Trial> damages(std::string_view kind, const std::vector<Damage>& all) {
    std::vector<Trial> trials;
    const std::string counter = kind == "field" ? "fields" : kind == "input" ? "inputs" : "parts";
    for (const Damage& damage : all) {
      Trial planned{damage.name, damage.failure, damage.place, 0.001};
      planned.run = [this, damage, counter](Slot&) {
        const Judgement judgement = damage.judge(corrupt_fixture_);
        count(judgement);
        measured().add(counter);
        return std::vector<CaseResult>{case_of(judgement, damage.words)};
      };
      trials.push_back(std::move(planned));
    }
    return trials;
  }

  /// A checkpoint of its own, loaded by other numbers of ranks and by its names.
  Trial clean_loads(int number) {
    Trial planned{fmt::format("clean:{}", number), "nothing", "clean loads", 0.02};
    planned.run = [this, number](Slot&) {
      CaseCounts counts;
      Contents contents;
      Scene scene{.name = "clean", .words = "", .best = number % 3 == 0};
      SaveCase how;
      how.scene = &scene;
      how.content = {.step = 1 + number, .writer = number % 5, .floats = 5 + number % 60};
      how.ranks = 1 + number % 4;
      MemoryStorage disk;
      disk.put_folder(std::string(kRoot));
      const SaveEnd saved = save_scheduled(disk, how, contents);
      const std::string own = checkpoint::checkpoint_name(how.content.step / 10, how.content.step);
      for (int i = 0; i < kLoadsOfEach; ++i) {
        const int ranks = 1 + i % 5;
        const std::string name = i % 4 == 1 ? std::string(checkpoint::kLatest) : i % 4 == 2 ? own : "";
        const std::vector<LoadOutcome> loaded = load_scheduled(disk, ranks, name);
        Judgement judgement = judge_load(contents, {{how.content, how.ranks, true}}, false, loaded);
        const bool alarm = judgement.fault || !saved.told[0] || !loaded[0].refused.empty() || !loaded[0].remarks.empty();
        if (alarm) measured().add("alarms");
        if (alarm && !judgement.fault) judgement = {"false alarm", true, "a clean load tells of damage"};
        counts.add(judgement, fmt::format("{} ranks load {}, which {} saved", ranks, own, counted(how.ranks, "rank")));
        measured().add("clean");
      }
      return counts.take();
    };
    return planned;
  }

  /// Damage that no hash can show: the comparison with what was saved must see it, or the search is blind.
  void add_blind(std::vector<Trial>& all) {
    Trial planned{"planted:sealed_damage", "planted: seals that fit damaged values", "manifest.json", 0.01};
    planned.run = [this](Slot&) {
      // As if the seals had not been looked at: a damaged manifest, and all that is said of it made anew.
      std::vector<Damage> forged = field_damages(corrupt_fixture_);
      std::erase_if(forged, [](const Damage& each) { return !each.name.starts_with("forged-"); });
      const auto accepted = std::ranges::find_if(
          forged, [&](const Damage& each) { return each.judge(corrupt_fixture_).outcome == "forged throughout, accepted"; });
      const bool found = accepted != forged.end();
      return std::vector<CaseResult>{{found ? "planted, found: silent" : "planted, not found",
                                      found ? CaseVerdict::planted : CaseVerdict::fault, 1,
                                      found ? "a value that is another, with every seal made anew: " + accepted->words +
                                                  ". The load takes it, and the comparison with what was saved shows it"
                                            : "no forged value shows that the comparison sees what hashes do not",
                                      {}}};
    };
    all.push_back(std::move(planned));
  }

  const SaverConfig config_;
  const CorruptFixture corrupt_fixture_;
};

}  // namespace

std::unique_ptr<Suite> make_corruption_search(const SaverConfig& config) { return std::make_unique<CorruptionSearch>(config); }

}  // namespace lockstep::saver
