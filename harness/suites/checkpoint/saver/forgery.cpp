// Fields that are not what was written, in files whose seals fit; and folders and files that are no checkpoint.

#include <fmt/format.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "harness/base/hex.h"
#include "harness/lib/checkpoint/canonical.h"
#include "harness/lib/checkpoint/hooked_storage.h"
#include "harness/lib/checkpoint/names.h"
#include "harness/suites/checkpoint/saver/damage.h"
#include "harness/suites/checkpoint/saver/scene.h"

namespace lockstep::saver {
namespace {

using checkpoint::Loaded;
using checkpoint::LoadOutcome;
using checkpoint::MemoryStorage;
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

std::vector<Damage> field_damages(const CorruptFixture& corrupt_fixture) {
  std::vector<Damage> all;
  for (const std::string& path : corrupt_fixture.files()) {
    if (CorruptFixture::kind_of(path) != "shard") add_fields(corrupt_fixture, path, all);
  }
  return all;
}

std::vector<Damage> bad_inputs(const CorruptFixture& corrupt_fixture) {
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

}  // namespace lockstep::saver
