// Corruption: every bit, every length, exchanged and stale blocks and files, forged fields, bad input; and clean loads.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/manifest.h"
#include "harness/suites/checkpoint/saver/search.h"

namespace lockstep::saver {
namespace {

using checkpoint::Loaded;
using checkpoint::LoadOutcome;
using checkpoint::MemoryStorage;

/// How a damaged disk is looked at.
enum class Look {
  newest,       ///< the newest must be refused, the older one loaded, and that said
  pointer,      ///< `latest` is damaged: the newest is loaded, and that is said; `latest` by name is refused
  best_by_name, ///< `best_model` by name is refused
};

bool names(const std::vector<std::string>& lines, const std::string& checkpoint) {
  return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(checkpoint) != std::string::npos; });
}

std::string file_name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

/// A small checkpoint to damage: two ranks saved two steps, the older one stays whole.
class CorruptFixture {
 public:
  /// `floats`: of each of two moments; they are most of its bytes.
  explicit CorruptFixture(int64_t floats);

  static constexpr int kRanks = 2;
  const MemoryStorage& disk() const { return *disk_; }
  const std::string& bytes(const std::string& path) const { return *disk_->bytes(path); }
  const std::string& newest() const { return newest_; }  ///< its folder
  const std::string& older() const { return older_; }
  /// Every file of the newest checkpoint, and the pointers.
  const std::vector<std::string>& files() const { return files_; }
  /// The bytes of the older checkpoint's file of that name.
  const std::string& older_bytes(std::string path) const {
    const std::size_t at = path.find(newest_);
    return bytes(at == std::string::npos ? path : path.replace(at, newest_.size(), older_));
  }

  /// What a load makes of a damaged disk.
  Judgement judge(MemoryStorage& disk, Look look) const;

 private:
  mutable Contents contents_;
  std::vector<Content> contents_of_;  ///< the newer one first
  std::unique_ptr<MemoryStorage> disk_;
  std::string newest_, older_;
  std::vector<std::string> files_;
};

CorruptFixture::CorruptFixture(int64_t floats)
    : contents_of_{{.step = 11, .floats = floats, .few_kinds = true}, {.step = 10, .floats = floats, .few_kinds = true}},
      disk_(std::make_unique<checkpoint::MemoryStorage>()) {
  disk_->put_folder(std::string(kRoot));
  Scene scene{.name = "specimen", .words = "", .best = true};
  for (int i = 1; i >= 0; --i) {
    const SaveCase how{{contents_of_[static_cast<std::size_t>(i)], kRanks, 30 + i}, &scene};
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

Look look_at(std::string_view path) {
  if (file_name(path) == checkpoint::kLatest) return Look::pointer;
  return file_name(path) == checkpoint::kBest ? Look::best_by_name : Look::newest;
}

/// Which table row a file stands in: "shard", "manifest.json".
std::string kind_of(std::string_view path) { return path.ends_with(".safetensors") ? "shard" : file_name(path); }

Judgement CorruptFixture::judge(MemoryStorage& disk, Look look) const {
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
  const Judgement judged = judge_load(contents_, {{{contents_of_[0], kRanks}, {contents_of_[1], kRanks}}}, loaded);
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

/// What is done to the fixture's disk, and how the load after it is looked at.
using Change = std::function<void(MemoryStorage&)>;
/// One damage: a choice of a single try.
struct Damage {
  std::string name;     ///< of the trial: "swap:rank-0-of-2.safetensors:3:7"
  std::string failure;  ///< a row of the table
  std::string place;
  std::string words;    ///< "blocks 3 and 7 of 512 bytes exchanged in rank-0-of-2.safetensors"
  Change change;
  Look look = Look::newest;
  bool sealed_anew = false;  ///< all that hashes say of it: what is then accepted is counted, and not claimed
};

/// The file gets other bytes.
Damage of_file(std::string name, std::string failure, const std::string& path, std::string words,
               std::function<std::string()> bytes) {
  return {std::move(name), std::move(failure), kind_of(path), std::move(words),
          [path, bytes = std::move(bytes)](MemoryStorage& disk) { disk.put_file(path, bytes()); }, look_at(path)};
}

/// Blocks of one size in one file exchanged, zeroed, and those of the older one. What changes no byte is left out.
void add_blocks(const CorruptFixture& fixture, const std::string& path, std::size_t block, std::vector<Damage>& all) {
  const std::string &whole = fixture.bytes(path), &older = fixture.older_bytes(path), file = file_name(path);
  const auto add = [&](std::string_view kind, std::string what, std::size_t first, std::size_t second, auto bytes) {
    if (bytes() == whole) return;
    what += fmt::format(" of {} bytes", block);
    all.push_back(of_file(fmt::format("{}-{}:{}:{}-{}", kind, block, file, first, second), what, path,
                          fmt::format("{}: {}, {} and {}", file, what, first, second), bytes));
  };
  for (std::size_t first = 0; first * block < whole.size(); ++first) {
    const std::size_t begin = first * block, length = std::min(block, whole.size() - begin);
    add("zero", "block of zeros", first, first,
        [&whole, begin, length] { return std::string(whole).replace(begin, length, length, '\0'); });
    if (look_at(path) == Look::newest && begin + length <= older.size())
      add("stale", "stale block", first, first,
          [&whole, &older, begin, length] { return std::string(whole).replace(begin, length, older, begin, length); });
    for (std::size_t second = first + 1; second * block + length <= whole.size(); ++second) {
      add("swap", "exchanged blocks", first, second, [&whole, begin, length, other = second * block] {
        return std::string(whole).replace(begin, length, whole, other, length).replace(other, length, whole, begin, length);
      });
    }
  }
}

std::vector<Damage> block_damages(const CorruptFixture& fixture) {
  std::vector<Damage> all;
  for (const std::string& path : fixture.files()) {
    for (const std::size_t block : {std::size_t{512}, std::size_t{4096}}) {
      if (fixture.bytes(path).size() > block) add_blocks(fixture, path, block, all);
    }
  }
  return all;
}

/// Whole files exchanged, missing, longer, and those of the older checkpoint.
std::vector<Damage> file_damages(const CorruptFixture& fixture) {
  std::vector<Damage> all;
  std::vector<std::string> parts;
  const auto add = [&](const std::string& name, const std::string& failure, const std::string& place, Change change) {
    all.push_back({name, failure, place, place, std::move(change)});
  };
  const auto older = [&fixture](const std::vector<std::string>& paths) {
    return [&fixture, paths](MemoryStorage& disk) {
      for (const std::string& path : paths) disk.put_file(path, fixture.older_bytes(path));
    };
  };
  for (const std::string& path : fixture.files()) {
    const std::string file = file_name(path);
    all.push_back(of_file("longer:" + file, "a byte more at the end", path, file + ": a byte more",
                          [&fixture, path] { return fixture.bytes(path) + '\0'; }));
    if (look_at(path) != Look::newest) continue;
    parts.push_back(path);
    add("missing:" + file, "missing", file, [path](MemoryStorage& disk) { disk.take(path); });
    add("older:" + file, "that of the older step", file, older({path}));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t j = i + 1; j < parts.size(); ++j) {
      const std::string first = parts[i], second = parts[j], both = file_name(first) + "-" + file_name(second);
      add("exchanged:" + both, "two files exchanged", both, [&fixture, first, second](MemoryStorage& disk) {
        disk.put_file(first, fixture.bytes(second));
        disk.put_file(second, fixture.bytes(first));
      });
      add("both-older:" + both, "two files of the older step", both, older({first, second}));
    }
  }
  add("all-older", "all files of the older step", "the whole folder", older(parts));
  return all;
}

// Fields that are not what was written, in files whose seals fit; and folders and files that are no checkpoint.

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

/// Each field of a file changed or taken away, with the file's own seal made anew; of the manifest also with the commit
/// record made anew, as a forger would.
void add_fields(const CorruptFixture& fixture, const std::string& path, std::vector<Damage>& all) {
  const Json object = Json::parse(fixture.bytes(path));
  const std::string kind = kind_of(path), commit_path = path.substr(0, path.rfind('/') + 1) + std::string(checkpoint::kCommit);
  for (const std::string& field : fields_of(object)) {
    for (const bool taken : {false, true}) {
      Json other = changed(object, field, taken);
      other.erase("checksum");
      const std::string text = checkpoint::canonical_text(other);
      const std::string what = taken ? "field taken away" : "field changed";
      Damage damage = of_file(fmt::format("{}:{}:{}", taken ? "taken" : "changed", kind, plain(field)), what + ", sealed anew", path,
                              fmt::format("{}: {} {}, sealed anew", kind, field, what), [text] { return text; });
      all.push_back(damage);
      if (kind != checkpoint::kManifest) continue;
      damage.name = "forged-" + damage.name;
      damage.failure = what + ", every seal anew";
      damage.sealed_anew = true;
      damage.change = [=, commit = forged_commit(Json::parse(fixture.bytes(commit_path)), other, text)](MemoryStorage& disk) {
        disk.put_file(path, text);
        disk.put_file(commit_path, commit);
      };
      all.push_back(damage);
    }
  }
}

std::vector<Damage> field_damages(const CorruptFixture& fixture) {
  std::vector<Damage> all;
  for (const std::string& path : fixture.files()) {
    if (kind_of(path) != "shard") add_fields(fixture, path, all);
  }
  return all;
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

Judgement judge_bad_input(const CorruptFixture& fixture, const BadInput& bad) {
  MemoryStorage disk(fixture.disk());
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

void make_newer(const CorruptFixture& fixture, MemoryStorage& disk, bool commit_too) {
  const std::string folder = std::string(kRoot) + "/" + fixture.newest() + "/";
  Json manifest = Json::parse(*disk.bytes(folder + "manifest.json")), commit = Json::parse(*disk.bytes(folder + "commit.json"));
  manifest["format_version"] = checkpoint::kFormatVersion + 1;
  manifest.erase("checksum");
  if (commit_too) commit["format_version"] = checkpoint::kFormatVersion + 1;
  const std::string text = checkpoint::canonical_text(manifest);
  disk.put_file(folder + "manifest.json", text);
  disk.put_file(folder + "commit.json", forged_commit(commit, commit_too ? manifest : Json::object(), text));
}

/// Newer format, another config, files that nobody may read, folders that hold no checkpoint. Each must be refused, name
/// what it is about, and change nothing.
std::vector<BadInput> bad_inputs(const CorruptFixture& fixture) {
  const std::string root(kRoot), newest = fixture.newest();
  const auto emptied = [root](MemoryStorage& disk) {
    disk.take(root);
    disk.put_folder(root);
  };
  std::vector<BadInput> inputs{
      {"newer-format", "a newer format", "format_version", [&fixture](MemoryStorage& disk) { make_newer(fixture, disk, true); }},
      {"newer-manifest", "a newer format of the manifest alone", "format_version",
       [&fixture](MemoryStorage& disk) { make_newer(fixture, disk, false); }},
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
       [=, &fixture](MemoryStorage& disk) {
         disk.take(root + "/" + fixture.newest());
         disk.take(root + "/" + fixture.older());
       }},
      {"unreadable-folder", "a folder that nobody may read", root, {}, std::string(kConfigHash), root},
  };
  for (const std::string& path : fixture.files()) {
    if (look_at(path) != Look::newest) continue;
    const std::string file = path.substr(path.rfind('/') + 1);
    inputs.push_back({"unreadable:" + file, "a file that nobody may read", file, {}, std::string(kConfigHash), newest + "/" + file});
  }
  return inputs;
}

/// Of each of two moments: the newest checkpoint's files and the pointers have some 65,000 bytes.
constexpr int64_t kCorruptFixtureFloats = 7700;
/// A trial holds the flips of so many bytes, or so many lengths.
constexpr std::size_t kBytes_a_trial = 64;
constexpr int kCleanCheckpoints = 500, kLoadsOfEach = 20;

class CorruptionSearch final : public Search {
 public:
  explicit CorruptionSearch(const SaverConfig& config) : Search(config), fixture_(kCorruptFixtureFloats) {}

  std::string subject() const override { return "the saver library, its files damaged"; }

  std::vector<std::string> plan() const override {
    std::size_t bytes = 0;
    for (const std::string& path : fixture_.files()) bytes += fixture_.bytes(path).size();
    return {fmt::format("every one of {} bits, and every length, of {}", with_commas(static_cast<int64_t>(bytes * 8)),
                        counted(static_cast<int64_t>(fixture_.files().size()), "file")),
            "blocks of 512 and 4,096 bytes exchanged, zeroed, and those of an older checkpoint",
            "files exchanged between ranks and steps, missing, longer",
            "each field of manifest, commit record and pointers changed or taken away, its seal made anew",
            "newer format, another config, unreadable files, folders that are no checkpoint",
            fmt::format("{} loads of what nothing befell, none of which may say a word",
                        with_commas(int64_t{kCleanCheckpoints} * kLoadsOfEach))};
  }

  Facts facts(const Measurements& m) const override {
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
  std::vector<Choice> choices(const SuiteRun&) override {
    std::vector<Choice> all;
    const auto append = [&](const std::vector<Choice>& some) {
      for (const Choice& choice : even_sample(some, config_.points)) all.push_back(choice);
    };
    for (const std::string& path : fixture_.files()) {
      std::vector<Choice> of_file;
      const std::size_t length = fixture_.bytes(path).size();
      for (std::size_t begin = 0; begin < length; begin += kBytes_a_trial) {
        const std::size_t end = std::min(begin + kBytes_a_trial, length);
        of_file.push_back(flips(path, begin, end));
        of_file.push_back(lengths(path, begin, end));
      }
      append(of_file);
    }
    append(choices_of(block_damages(fixture_), "parts"));
    append(choices_of(file_damages(fixture_), "parts"));
    append(choices_of(field_damages(fixture_), "fields"));
    std::vector<Choice> inputs, clean;
    for (const BadInput& input : bad_inputs(fixture_)) {
      inputs.push_back({"input:" + input.name, "bad input", input.words, 0.001, [this, input](const Each& each) {
                          count(each, judge_bad_input(fixture_, input), "inputs", [&] { return input.words; });
                        }});
    }
    append(inputs);
    for (int i = 0; i < kCleanCheckpoints; ++i) clean.push_back(clean_loads(i));
    append(clean);
    return all;
  }

  /// As if the seals had not been looked at. Damage that no hash shows must be seen by the comparison with what was saved.
  std::vector<Choice> choices_of(const checkpoint::Planted&, const std::vector<std::string_view>&) override {
    std::vector<Damage> forged = field_damages(fixture_);
    std::erase_if(forged, [](const Damage& each) { return !each.sealed_anew; });
    for (Damage& each : forged) each.sealed_anew = false;
    return choices_of(forged, "fields");
  }

  std::vector<Choice> choices_of(const std::vector<Damage>& damages, const std::string& counter) {
    std::vector<Choice> all;
    for (const Damage& damage : damages) {
      all.push_back({damage.name, damage.failure, damage.place, 0.001, [this, damage, counter](const Each& each) {
                       MemoryStorage disk(fixture_.disk());
                       damage.change(disk);
                       Judgement judgement = fixture_.judge(disk, damage.look);
                       // A forger who makes every seal anew is not found by hashes: that is counted and not claimed.
                       if (judgement.fault && damage.sealed_anew) judgement = {"forged throughout, accepted", false, ""};
                       count(each, judgement, counter, [&] { return damage.words; });
                     }});
    }
    return all;
  }

  static bool count(const Each& each, const Judgement& judgement, const std::string& counter,
                    std::function<std::string()> words) {
    measured().add(counter);
    if (judgement.outcome == "forged throughout, accepted")
      measured().add("forged");
    else if (!judgement.fault)
      measured().add("noticed");
    return each({judgement, std::move(words)});
  }

  Choice flips(const std::string& path, std::size_t begin, std::size_t end) {
    const std::string file = file_name(path);
    return {fmt::format("flip:{}:{}-{}", file, begin, end), "one bit flipped", kind_of(path), 0.5,
            [this, path, file, begin, end](const Each& each) {
              MemoryStorage disk(fixture_.disk());
              for (std::size_t bit = begin * 8; bit < end * 8; ++bit) {
                std::string bytes = fixture_.bytes(path);
                bytes[bit / 8] = static_cast<char>(static_cast<unsigned char>(bytes[bit / 8]) ^ (1U << (bit % 8)));
                disk.put_file(path, std::move(bytes));
                count(each, fixture_.judge(disk, look_at(path)), "flips",
                      [&] { return fmt::format("Bit {} of byte {} of {} is flipped", bit % 8, bit / 8, file); });
              }
            }};
  }

  Choice lengths(const std::string& path, std::size_t begin, std::size_t end) {
    const std::string file = file_name(path);
    return {fmt::format("cut:{}:{}-{}", file, begin, end), "cut short", kind_of(path), 0.1,
            [this, path, file, begin, end](const Each& each) {
              MemoryStorage disk(fixture_.disk());
              for (std::size_t length = begin; length < end; ++length) {
                disk.put_file(path, fixture_.bytes(path).substr(0, length));
                count(each, fixture_.judge(disk, look_at(path)), "cuts",
                      [&] { return fmt::format("{} is cut to {} bytes", file, length); });
              }
            }};
  }

  /// A checkpoint of its own, loaded by other numbers of ranks and by its names.
  Choice clean_loads(int number) {
    return {fmt::format("clean:{}", number), "nothing", "clean loads", 0.02, [number](const Each& each) {
              Contents contents;
              const Scene scene{.name = "clean", .words = "", .best = number % 3 == 0};
              const SaveCase how{{{.step = 1 + number, .writer = number % 5, .floats = 5 + number % 60}, 1 + number % 4}, &scene};
              MemoryStorage disk;
              disk.put_folder(std::string(kRoot));
              const SaveEnd saved = save_scheduled(disk, how, contents);
              const std::string own = checkpoint::checkpoint_name(how.content.step / 10, how.content.step);
              for (int i = 0; i < kLoadsOfEach; ++i) {
                const int ranks = 1 + i % 5;
                const std::string name = i % 4 == 1 ? std::string(checkpoint::kLatest) : i % 4 == 2 ? own : "";
                const std::vector<LoadOutcome> loaded = load_scheduled(disk, ranks, name);
                Judgement judgement = judge_load(contents, {{{how.content, how.ranks}}}, loaded);
                const bool alarm = judgement.fault || !saved.told[0] || !loaded[0].refused.empty() || !loaded[0].remarks.empty();
                if (alarm) measured().add("alarms");
                if (alarm && !judgement.fault) judgement = {"false alarm", true, "a clean load tells of damage"};
                measured().add("clean");
                const std::string saved_by = counted(how.ranks, "rank");
                each({judgement, [&] { return fmt::format("{} ranks load {}, which {} saved", ranks, own, saved_by); }});
              }
            }};
  }

  const CorruptFixture fixture_;
};

}  // namespace

std::unique_ptr<Suite> make_corruption_search(const SaverConfig& config) { return std::make_unique<CorruptionSearch>(config); }

}  // namespace lockstep::saver
