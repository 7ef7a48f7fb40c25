#include "harness/suites/checkpoint/saver/corrupt_fixture.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/errors.h"
#include "harness/lib/checkpoint/names.h"
#include "harness/suites/checkpoint/saver/scene.h"

namespace lockstep::saver {
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

}  // namespace lockstep::saver
