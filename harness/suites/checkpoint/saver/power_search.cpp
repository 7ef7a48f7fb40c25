// Power losses, offline: from the operations of saves every disk that may be left, each of them loaded.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/base/text.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/suites/checkpoint/saver/search.h"
#include "harness/suites/power_loss/power_disk.h"

namespace lockstep::saver {
namespace {

using checkpoint::MemoryStorage;
using checkpoint::OperationKind;
using power::DiskModel;
using power::kDiskModels;
using power::PowerDisk;
using power::Remains;

/// So that a shard has several writes, and a write several sectors.
constexpr int64_t kDiskFloats = 1500;
constexpr int kResumingWriter = 5;
constexpr std::size_t kDiskBlock_bytes = 2048;
/// Ways at one moment; beyond it, all of one loss and all of one thing left, and a draw.
constexpr std::size_t kMostWays = 1000;
/// The same where only a part of the moments is tried.
constexpr std::size_t kMostWaysOfASlice = 100;
constexpr std::string_view kPowerScenes[] = {"fresh", "over_older", "same_step", "retention", "best", "leftovers"};

/// One save, as it was recorded.
struct Recorded {
  SettingPtr setting;
  bool together = false;  ///< every rank has written before one of them syncs
  std::vector<scheduler::Note> notes;
  std::vector<std::size_t> moments;  ///< operations before which the power goes; the count of them: at the end
};

/// The disk of a save under one model.
class SavedDisk {
 public:
  /// All that stands there is durable.
  SavedDisk(const MemoryStorage& before, DiskModel model) : disk_(model) {
    for (std::string path : before.paths()) {
      const bool folder = path.ends_with('/');
      if (folder) path.pop_back();
      if (!path.empty()) disk_.stand(path, folder ? power::NodeType::folder : power::NodeType::file, folder ? "" : *before.bytes(path));
    }
  }

  void apply(int number, const scheduler::Note& note) {
    const checkpoint::Operation& operation = note.operation;
    const std::string& path = operation.path;
    switch (operation.kind) {
      case OperationKind::lock:
        if (disk_.find(path) >= 0) return;
        [[fallthrough]];
      case OperationKind::create: open_[path] = disk_.make(number, path, power::NodeType::file); return;
      case OperationKind::make_folder: disk_.make(number, path, power::NodeType::folder); return;
      case OperationKind::write: disk_.write(number, open_.at(path), static_cast<uint64_t>(operation.offset), note.bytes); return;
      case OperationKind::sync: disk_.sync_file(open_.at(path)); return;
      case OperationKind::sync_folder: disk_.sync_folder(disk_.find(path)); return;
      case OperationKind::rename: disk_.rename(number, path, operation.to); return;
      case OperationKind::unlink:
      case OperationKind::remove_folder: disk_.remove(number, path); return;
      default: return;
    }
  }

  const PowerDisk& disk() const { return disk_; }

 private:
  PowerDisk disk_;
  std::map<std::string, int> open_;
};

std::unique_ptr<MemoryStorage> storage_of(const std::vector<power::Standing>& standing) {
  auto storage = std::make_unique<MemoryStorage>();
  for (const power::Standing& each : standing) {
    if (each.type == power::NodeType::folder)
      storage->put_folder(each.path);
    else
      storage->put_file(each.path, each.bytes);
  }
  return storage;
}

/// The commit was told, as seen by who looks at the operations.
bool tells_commit(const checkpoint::Operation& operation) {
  return operation.kind == OperationKind::gather && operation.path == "committed";
}

class PowerSearch final : public Search {
 public:
  using Search::Search;

  std::string subject() const override { return "the saver library, the power lost"; }

  std::vector<std::string> plan() const override {
    std::vector<std::string> lines;
    for (const DiskModel model : kDiskModels) lines.push_back(fmt::format("{}: {}", name_of(model), words_of(model)));
    lines.emplace_back("saves are recorded; before each sync, after the commit is told and at the end the power goes; every disk "
                       "that may be left then is loaded");
    return lines;
  }

  Facts facts(const Measurements& m) const override {
    Facts facts;
    facts.emplace_back("distinct disks", with_commas(static_cast<int64_t>(m.entries("distinct").size())));
    for (const DiskModel model : kDiskModels)
      facts.emplace_back(fmt::format("loads of disks that need no less than: {}", words_of(model)),
                         with_commas(m.count(std::string(name_of(model)))));
    facts.emplace_back("moments at which the power goes",
                       fmt::format("{} under three models, at {} of them every way that the model allows, at the others a part",
                                   with_commas(m.count("moments")), with_commas(m.count("whole moments"))));
    facts.emplace_back("saves that were told to be committed before the power went, and are lost", with_commas(m.count("lost")));
    facts.emplace_back("loads that took what no save had saved", with_commas(m.count("silent")));
    return facts;
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {"A disk is labelled with the most that a file system may promise where it can still be left. Torn: a write is there "
            "up to, or from, any multiple of 512 bytes of its file, those of 4,096 among them.",
            fmt::format("Where a moment allows more than {} disks: all with one thing lost, all with one thing left, pairs of "
                        "them, and a draw, the same each time.",
                        most_ways())};
  }

 private:
  std::vector<Choice> choices(const SuiteRun&) override {
    std::vector<Choice> all;
    for (const std::string_view scene : kPowerScenes) {
      for (const int64_t ranks : config_.world_sizes) {
        for (const bool together : {false, true}) {
          if (together && ranks == 1) continue;
          const auto recorded = record(scene_named(scene), static_cast<int>(ranks), together, {});
          for (const DiskModel model : kDiskModels) all.push_back(states(recorded, model));
        }
      }
    }
    return all;
  }

  /// The model that promises the most first.
  std::vector<Choice> choices_of(const checkpoint::Planted& planted, const Names& among) override {
    std::vector<Choice> all;
    for (const DiskModel model : kDiskModels) {
      for (const std::string_view scene : among) all.push_back(states(record(scene_named(scene), 2, false, planted), model));
    }
    return all;
  }

  std::size_t most_ways() const { return config_.points > 0 ? kMostWaysOfASlice : kMostWays; }

  std::shared_ptr<const Recorded> record(const Scene& scene, int ranks, bool together,
                                         const checkpoint::Planted& planted) {
    auto recorded = std::make_shared<Recorded>();
    recorded->together = together;
    recorded->setting = setting_of(scene, ranks, planted, contents_, kDiskBlock_bytes, kDiskFloats);
    SaveCase how = recorded->setting->how;
    for (int rank = 0; together && rank + 1 < ranks; ++rank) {
      const auto& kinds = recorded->setting->operations[static_cast<std::size_t>(rank)];
      how.preemptions.push_back({rank, std::ranges::find(kinds, OperationKind::sync) - kinds.begin(), rank + 1});
    }
    how.notes = how.bytes = true;
    MemoryStorage disk(*recorded->setting->disk);
    recorded->notes = save_scheduled(disk, how, contents_).notes;
    std::erase_if(recorded->notes, [](const scheduler::Note& note) { return note.error || !note.mark.empty(); });
    recorded->moments = moments_of(recorded->notes);
    return recorded;
  }

  std::vector<std::size_t> moments_of(const std::vector<scheduler::Note>& notes) const {
    std::vector<std::size_t> moments;
    for (std::size_t i = 0; i < notes.size(); ++i) {
      if (is_sync(notes[i].operation.kind) || tells_commit(notes[i == 0 ? 0 : i - 1].operation)) moments.push_back(i);
    }
    moments.push_back(notes.size());
    return even_sample(moments, config_.points);
  }

  /// Every disk of the model that none before it allows.
  void explore(const Recorded& recorded, DiskModel model, const Each& each) {
    std::set<std::string> seen;
    for (const DiskModel at : kDiskModels) {
      SavedDisk saved(*recorded.setting->disk, at);
      const PowerDisk& disk = saved.disk();
      bool told = false;
      std::size_t next = 0;
      for (const std::size_t moment : recorded.moments) {
        for (; next < moment; ++next) {
          saved.apply(static_cast<int>(next), recorded.notes[next]);
          told = told || tells_commit(recorded.notes[next].operation);
        }
        bool every = false;
        const std::vector<Remains> ways = disk.ways(most_ways(), moment, every);
        if (at == model) {
          measured().add("moments");
          if (every) measured().add("whole moments");
        }
        for (const Remains& remains : ways) {
          const std::string hash = disk.hash(remains);
          if (!seen.insert(hash + (told ? "+" : "-")).second || at != model) continue;
          measured().keep("distinct", hash);
          if (!each(tried(recorded, model, disk, remains, moment, told))) return;
        }
      }
      if (at == model) return;
    }
  }

  /// What stands on the disk `remains` is loaded.
  Tried tried(const Recorded& recorded, DiskModel model, const PowerDisk& disk, const Remains& remains,
              std::size_t moment, bool told) {
    const Judgement judgement = judge(recorded, *storage_of(disk.standing(remains)), told);
    measured().add(std::string(name_of(model)));
    if (judgement.fault && told) measured().add("lost");
    if (judgement.outcome == "silent" || judgement.outcome == "mixed") measured().add("silent");
    const auto words = [&recorded, model, moment, told] {
      const std::string at = moment == recorded.notes.size() ? "after the last operation"
                                                             : "before " + checkpoint::in_words(recorded.notes[moment].operation);
      return fmt::format("{}: the power goes {}{} ({})", recorded.setting->in_words(), at, told ? ", the commit being told" : "",
                         words_of(model));
    };
    const auto timeline = [&recorded, &disk, &remains, moment, told] {
      std::vector<scheduler::Note> until(recorded.notes.begin(), recorded.notes.begin() + static_cast<std::ptrdiff_t>(moment));
      for (const auto& [number, mark] : disk.lost(remains)) until[static_cast<std::size_t>(number)].mark = mark;
      std::vector<TimelineStep> steps = timeline_of(until, rank_names(recorded.setting->how.ranks));
      steps.push_back({"machine", "the power goes", told ? "the commit was told" : ""});
      return steps;
    };
    return {judgement, words, timeline};
  }

  Judgement judge(const Recorded& recorded, MemoryStorage& disk, bool told) {
    const SaveCase& how = recorded.setting->how;
    // The first save makes the folder: whether it stands is not yet certain.
    const Allowed allowed = allowed_after(*how.scene, how, told, false);
    Judgement judged = judge_load(contents_, allowed, load_scheduled(disk, 1));
    if (judged.fault || checkpoint::read_pointer(disk, std::string(kRoot), checkpoint::kLatest).missing) return judged;
    if (Judgement latest = judge_latest(disk, allowed, contents_); latest.fault) return latest;
    checkpoint::AloneGroup alone;
    const std::vector<std::string> left = checkpoint::Saver(options_of(*how.scene, kResumingWriter), disk, alone).finish_earlier();
    if (!left.empty()) return {"not cleaned", true, "what the save left undone is not finished: " + left.front()};
    const Judgement best = judge_best(disk, *how.scene, allowed, judged.save, contents_);
    return best.fault ? best : judged;
  }

  Choice states(const std::shared_ptr<const Recorded>& recorded, DiskModel model) {
    const SaveCase& how = recorded->setting->how;
    return {fmt::format("{}:{}-ranks{}:{}", how.scene->name, how.ranks, recorded->together ? "-together" : "", name_of(model)),
            fmt::format("power lost, {}", words_of(model)), std::string(how.scene->words), model == DiskModel::least ? 1.0 : 0.2,
            [this, recorded, model](const Each& each) { explore(*recorded, model, each); }};
  }
};

}  // namespace

std::unique_ptr<Suite> make_power_search(const SaverConfig& config) { return std::make_unique<PowerSearch>(config); }

}  // namespace lockstep::saver
