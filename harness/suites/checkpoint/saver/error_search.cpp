// Errors: each operation of a save fails, is cut short, is interrupted, is slow or never returns.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "harness/base/text.h"
#include "harness/suites/checkpoint/saver/kill.h"

namespace lockstep::saver {
namespace {

using checkpoint::MemoryStorage;
using checkpoint::OperationKind;
using checkpoint::Saved;

constexpr std::string_view kErrorScenes[] = {"fresh", "over_older", "same_step", "retention", "best", "async"};
/// A slow file's operations take this share of the deadline each, some dozens of them in all.
constexpr double kSlow = 0.6;
/// A rank that is a process stops at each of so many operations.
constexpr std::size_t kStops = 10;

struct Failing {
  std::string_view name, words;
  scheduler::InjectedFault injected;
  int error;
  bool mended;  ///< the save must succeed all the same
  std::vector<OperationKind> kinds;  ///< at which it is tried; empty: at every one but collectives
};

const std::vector<Failing>& failings() {
  using enum OperationKind;
  const std::vector<OperationKind> room{create, write, sync, close, rename, make_folder};
  static const std::vector<Failing> kAll{
      {"ENOSPC", "fails with ENOSPC", scheduler::InjectedFault::fail, ENOSPC, false, room},
      {"EDQUOT", "fails with EDQUOT", scheduler::InjectedFault::fail, EDQUOT, false, room},
      {"EIO", "fails with EIO", scheduler::InjectedFault::fail, EIO, false, {}},
      {"EACCES", "fails with EACCES", scheduler::InjectedFault::fail, EACCES, false, {}},
      {"done-EIO", "is done, and fails with EIO", scheduler::InjectedFault::fail_done, EIO, false,
       {sync, sync_folder, rename, close, unlink, make_folder, remove_folder}},
      {"full", "finds the disk full, as do all after it", scheduler::InjectedFault::fail_onward, ENOSPC, false, {create, write, make_folder}},
      {"read-only", "finds the disk read-only, as do all after it", scheduler::InjectedFault::fail_folder, EROFS, false,
       {create, write, rename, make_folder, unlink, remove_folder, lock}},
      {"short", "takes one byte of many", scheduler::InjectedFault::shorten, 0, true, {write}},
      {"EINTR", "is interrupted", scheduler::InjectedFault::fail, EINTR, true, {}},
  };
  return kAll;
}

struct Setting {
  const Scene* scene = nullptr;
  int ranks = 1;
  std::unique_ptr<MemoryStorage> disk;
  std::vector<std::vector<OperationKind>> operations;
};

class ErrorSearch final : public Suite {
 public:
  explicit ErrorSearch(const SaverConfig& config) : config_(config) {}

  std::string subject() const override { return "the saver library, an operation failing"; }

  std::vector<std::string> plan() const override {
    std::vector<std::string> lines;
    for (const Failing& failing : failings()) lines.push_back(fmt::format("{}: an operation {}", failing.name, failing.words));
    lines.push_back(
        fmt::format("slow: each operation of a rank takes {:g} of the deadline; none may be mistaken for hung", kSlow));
    lines.emplace_back("hang: an operation never returns; the others must give up on that rank, with the same words");
    lines.emplace_back("stopped: the same with SIGSTOP and ranks that are processes");
    return lines;
  }

  std::vector<Trial> trials(const SuiteRun& run) override {
    std::vector<Trial> all;
    if (config_.planted) add_mutants(all);
    for (const std::string_view name : kErrorScenes) {
      for (const int64_t ranks : config_.world_sizes) {
        settings_.push_back(setting_of(scene_named(name), static_cast<int>(ranks), {}));
        std::vector<Trial> of_setting;
        add_failing(*settings_.back(), of_setting);
        if (ranks > 1) add_waiting(*settings_.back(), of_setting);
        for (Trial& planned : even_sample(of_setting, static_cast<std::size_t>(config_.points))) all.push_back(std::move(planned));
      }
    }
    add_stops(all, run.out_dir + "/work");
    run.say(fmt::format("{} trials", with_commas(static_cast<int64_t>(all.size()))));
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    return {{"errors, one at a time", with_commas(m.count("errors"))},
            {"of these the save came to its end all the same", with_commas(m.count("committed"))},
            {"of these the save failed, with the same words on all ranks, and the next one of the same ranks succeeded",
             with_commas(m.count("failed"))},
            {"saves through slow files", with_commas(m.count("slow"))},
            {"operations that never returned", fmt::format("{}, {} of them of processes that stopped", with_commas(m.count("hangs") + m.count("stops")),
                                                           with_commas(m.count("stops")))}};
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {fmt::format("Time is the scheduler's: a slow operation takes {:g} of the deadline without anybody's waiting for it. A "
                        "process that stops is given up on after 0.3 s of the machine's.",
                        kSlow)};
  }

 private:
  SaveCase case_in(const Setting& setting, const checkpoint::Planted& planted) const {
    SaveCase how;
    how.scene = setting.scene;
    how.content = new_content(*setting.scene);
    how.ranks = setting.ranks;
    how.planted = planted;
    // Enough writes for each place of one.
    how.block_bytes = 512;
    return how;
  }

  std::unique_ptr<Setting> setting_of(const Scene& scene, int ranks, const checkpoint::Planted& planted) {
    auto setting = std::make_unique<Setting>();
    setting->scene = &scene;
    setting->ranks = ranks;
    setting->disk = disk_of(scene, ranks, contents_);
    MemoryStorage disk(*setting->disk);
    setting->operations = save_scheduled(disk, case_in(*setting, planted), contents_).kinds;
    return setting;
  }

  /// What the ranks were told, and what a load finds; then the same savers go on.
  Judgement judge(const Setting& setting, SaveCase how, bool mended, std::vector<scheduler::Note>* notes = nullptr) {
    MemoryStorage disk(*setting.disk);
    how.notes = notes != nullptr;
    const SaveEnd end = save_scheduled(disk, how, contents_);
    if (notes != nullptr) *notes = end.notes;
    if (!end.acted) return {"not reached", true, "the operation was not reached"};
    const bool waits = how.script.injected == scheduler::InjectedFault::hang;
    if (end.stalled != waits && !waits) return {"hang", true, "a rank waited for the whole deadline"};
    std::vector<bool> untold = end.ended;
    // A rank that gave up on another around the commit cannot know whether rank 0 made it, and is told so.
    for (std::size_t rank = 0; waits && rank < untold.size(); ++rank)
      untold[rank] = untold[rank] || end.told[rank].saved == Saved::unknown;
    if (const std::string apart = told_problem(end.told, untold); !apart.empty()) return {"told apart", true, apart};
    bool none_may = false;
    const std::vector<KnownSave> known = allowed_after(*setting.scene, setting.ranks, end.told, end.ended, none_may);
    for (std::size_t rank = 0; rank < end.told.size(); ++rank) {
      const checkpoint::SaveOutcome& told = end.told[rank];
      if (mended && !told) return {"save failed", true, "it was to be mended; the save fails: " + told.problem};
      if (!end.ended[rank] && !told && told.problem.empty()) return {"silent", true, "the save fails without a word"};
      const bool counts = rank == 0 && !waits && how.script.injected != scheduler::InjectedFault::slow && how.planted.skipped_gather.empty();
      if (counts) measured().add(told ? "committed" : "failed");
    }
    const Judgement judgement = judge_disk(disk, *setting.scene, setting.ranks, known, none_may, contents_);
    return judgement.fault || waits ? judgement : judge_then(setting, how, judgement);
  }

  /// Training goes on with the same savers: the next save must succeed.
  Judgement judge_then(const Setting& setting, SaveCase how, const Judgement& so_far) {
    if (setting.scene->async) return so_far;
    MemoryStorage disk(*setting.disk);
    how.then = true;
    how.notes = false;
    for (const checkpoint::SaveOutcome& then : save_scheduled(disk, how, contents_).then) {
      if (!then) return {"save failed", true, "training goes on, and the next save of the same ranks fails: " + then.problem};
    }
    const Judgement loaded =
        judge_load(contents_, {{then_content(*setting.scene), setting.ranks, true}}, false, load_scheduled(disk, 1));
    if (loaded.fault) return {loaded.outcome, true, "after the next save of the same ranks: " + loaded.found};
    return so_far;
  }

  CaseResult case_at(const Setting& setting, const SaveCase& how, bool mended, const std::string& words) {
    const Judgement judgement = judge(setting, how, mended);
    CaseResult result = case_of(judgement, words);
    if (judgement.outcome == "not reached") result.verdict = CaseVerdict::undecided;
    if (!judgement.fault) return result;
    std::vector<scheduler::Note> notes;
    judge(setting, how, mended, &notes);
    result.timeline = timeline_of(notes, rank_names(setting.ranks));
    return result;
  }

  static std::string words_of_case(const Setting& setting, const SaveCase& how, std::string_view what) {
    const OperationKind kind =
        setting.operations[static_cast<std::size_t>(how.victim)][static_cast<std::size_t>(how.script.at)];
    return fmt::format("A save {} by {}: operation {} of rank {} ({}) {}", setting.scene->words,
                       counted(setting.ranks, "rank"), how.script.at, how.victim, checkpoint::name_of(kind), what);
  }

  SaveCase failing_case(const Setting& setting, const Failing& failing, int rank, int64_t at,
                        const checkpoint::Planted& planted) const {
    SaveCase how = case_in(setting, planted);
    how.victim = rank;
    how.script = {.injected = failing.injected, .at = at, .error = {failing.error, std::generic_category()}};
    return how;
  }

  static bool tried_at(const Failing& failing, OperationKind kind) {
    if (failing.kinds.empty()) return kind != OperationKind::gather;
    return std::ranges::find(failing.kinds, kind) != failing.kinds.end();
  }

  /// each(failing, rank, at, kind) for every place of every error; false ends it.
  template <class Each>
  static void places_of(const Setting& setting, Each each) {
    for (const Failing& failing : failings()) {
      for (int rank = 0; rank < setting.ranks; ++rank) {
        const auto& kinds = setting.operations[static_cast<std::size_t>(rank)];
        for (std::size_t at = 0; at < kinds.size(); ++at) {
          if (tried_at(failing, kinds[at]) && !each(failing, rank, static_cast<int64_t>(at), kinds[at])) return;
        }
      }
    }
  }

  void add_failing(const Setting& setting, std::vector<Trial>& all) {
    places_of(setting, [&](const Failing& failing, int rank, int64_t at, OperationKind kind) {
      Trial planned{
          fmt::format("{}:{}:{}-ranks:rank-{}:op-{}", failing.name, setting.scene->name, setting.ranks, rank, at),
          std::string(failing.words), std::string(checkpoint::name_of(kind)), 0.002 * setting.ranks};
      planned.run = [this, &setting, &failing, rank, at](Slot&) {
        measured().add("errors");
        const SaveCase how = failing_case(setting, failing, rank, at, {});
        return std::vector<CaseResult>{case_at(setting, how, failing.mended, words_of_case(setting, how, failing.words))};
      };
      all.push_back(std::move(planned));
      return true;
    });
  }

  void add_waiting(const Setting& setting, std::vector<Trial>& all) {
    for (int rank = 0; rank < setting.ranks; ++rank) {
      const auto& kinds = setting.operations[static_cast<std::size_t>(rank)];
      SaveCase how = case_in(setting, {});
      how.victim = rank;
      how.script = {.injected = scheduler::InjectedFault::slow, .at = 0, .seconds = kSlow * kDeadline_s};
      Trial slow;
      slow = {fmt::format("slow:{}:{}-ranks:rank-{}", setting.scene->name, setting.ranks, rank), "slow", "every operation",
                    0.002 * setting.ranks};
      slow.run = [this, &setting, how](Slot&) {
        measured().add("slow");
        return std::vector<CaseResult>{case_at(setting, how, true, words_of_case(setting, how, "and all after it are slow"))};
      };
      all.push_back(std::move(slow));
      for (std::size_t at = 0; at < kinds.size(); ++at) {
        how.script = {.injected = scheduler::InjectedFault::hang, .at = static_cast<int64_t>(at)};
        Trial hang;
        hang = {fmt::format("hang:{}:{}-ranks:rank-{}:op-{}", setting.scene->name, setting.ranks, rank, at), "never returns",
                      std::string(checkpoint::name_of(kinds[at])), 0.002 * setting.ranks};
        hang.run = [this, &setting, how](Slot&) {
          measured().add("hangs");
          return std::vector<CaseResult>{case_at(setting, how, false, words_of_case(setting, how, "never returns"))};
        };
        all.push_back(std::move(hang));
      }
    }
  }

  /// Processes that stop: the sockets stay open, and nothing but the time tells.
  void add_stops(std::vector<Trial>& all, const std::string& folder) {
    const auto of_two = std::ranges::find_if(
        settings_, [](const auto& each) { return each->ranks == 2 && each->scene->name == "over_older"; });
    if (of_two == settings_.end()) return;
    const Setting& setting = **of_two;
    MemoryStorage disk(*setting.disk);
    SaveCase how = case_in(setting, {});
    how.block_bytes = SaveCase{}.block_bytes;
    std::vector<KillPoint> points;
    for (const KillPoint& point : kill_points(save_scheduled(disk, how, contents_).kinds)) {
      if (point.injected == scheduler::InjectedFault::end) points.push_back(point);
    }
    const std::size_t most = config_.points > 0 ? 2 : kStops;
    for (const KillPoint& point : even_sample(points, most)) {
      Trial planned{fmt::format("stopped:{}:rank-{}:{}", setting.scene->name, point.rank, name_of(point)),
                    "process stopped", std::string(checkpoint::name_of(point.kind)), 0.4};
      planned.run = [this, &setting, point, own = folder + "/" + planned.name](Slot&) {
        measured().add("stops");
        const Judgement judgement = judge_process_stop(own, *setting.disk, *setting.scene, 2, point, contents_);
        if (!judgement.fault) std::filesystem::remove_all(own);
        return std::vector<CaseResult>{case_of(
            judgement, fmt::format("Rank {} of 2, a process, is stopped before its operation {}", point.rank, point.at))};
      };
      all.push_back(std::move(planned));
    }
  }

  MutantFound search(std::string_view mutant) {
    MutantFound found;
    const checkpoint::Planted planted = mutant_named(mutant).planted;
    const std::unique_ptr<Setting> setting = setting_of(scene_named("retention"), 2, planted);
    places_of(*setting, [&](const Failing& failing, int rank, int64_t at, OperationKind) {
      const SaveCase how = failing_case(*setting, failing, rank, at, planted);
      ++found.tried;
      const CaseResult result = case_at(*setting, how, failing.mended, words_of_case(*setting, how, failing.words));
      if (result.verdict != CaseVerdict::fault) return true;
      found.found = true;
      found.outcome = result.outcome;
      found.sentence = result.sentence;
      found.timeline = result.timeline;
      return false;
    });
    return found;
  }

  void add_mutants(std::vector<Trial>& all) {
    for (const std::string_view mutant : {"skipped_begin", "skipped_written", "skipped_renamed", "skipped_committed", "skipped_finished"})
      all.push_back(mutant_trial(mutant, "any operation", "", [this, mutant] { return search(mutant); }));
  }

  const SaverConfig config_;
  Contents contents_;
  std::vector<std::unique_ptr<Setting>> settings_;
};

}  // namespace

std::unique_ptr<Suite> make_error_search(const SaverConfig& config) { return std::make_unique<ErrorSearch>(config); }

}  // namespace lockstep::saver
