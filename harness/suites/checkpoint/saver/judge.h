#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/suites/engine/scheduler/scheduler.h"
#include "harness/suites/engine/suite.h"

// States that tell which save they are of, in every kind and on every rank.

namespace lockstep::saver {

using checkpoint::Storage;

/// What one save saved. Two tries to save one step differ in their `writer`.
struct Content {
  int64_t step = 0;
  int writer = 0;
  int64_t floats = 24;  ///< of each moment; all ranks together
  bool few_kinds = false;  ///< most of the bytes are the tensors'
  auto operator<=>(const Content&) const = default;
};
/// "step 11", "step 11 of writer 2".
std::string in_words(const Content& content);

/// Every kind that there is, replicated, sharded and of each rank.
checkpoint::State state_of(const Content& content, int rank, int ranks);

/// States by content, rank and number of ranks, each made once. For all threads.
class Contents {
 public:
  std::shared_ptr<const checkpoint::State> state(const Content& content, int rank, int ranks);
  /// What a rank gets that loads on another number of ranks: all but what each rank had for itself.
  std::shared_ptr<const checkpoint::State> shared(const Content& content, int rank, int ranks);

 private:
  using Key = std::tuple<Content, int, int, bool>;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const checkpoint::State>> states_;
};

/// Where what a rank loaded is not this content; empty: nowhere. `saved_by`: ranks that had saved it.
std::string difference(Contents& contents, const Content& content, int saved_by, const checkpoint::LoadOutcome& loaded,
                       int rank, int ranks);

// What stands on the disk before a save, and what is saved then.

inline constexpr std::string_view kParent = "/run", kRoot = "/run/checkpoints", kConfigHash = "config";
inline constexpr double kDeadline_s = 20;

struct Scene {
  std::string_view name, words;
  std::vector<int64_t> before = {};  ///< steps that were saved, the oldest first
  int64_t step = 11;
  int keep_last = 3;
  bool best = false;      ///< the new one is the best; the oldest was
  bool async = false;     ///< a thread saves it, and the state is written over meanwhile
  bool leftovers = false;  ///< two earlier saves ended, one of them over a checkpoint
  bool no_root = false;   ///< the folder does not stand yet
};

/// Every scene of the sweeps.
std::span<const Scene> scenes();
const Scene& scene_named(std::string_view name);

/// What stands there: old to the save that is tried.
inline Content content_of(int64_t step) { return {.step = step, .writer = 0}; }
/// What the scene saves.
inline Content new_content(const Scene& scene) { return {.step = scene.step, .writer = 1}; }

/// What the same ranks save after it, if they do.
inline Content then_content(const Scene& scene) { return {.step = scene.step + 1, .writer = 2}; }

/// Options of every save here; `writer` stands in names.
checkpoint::SaveOptions options_of(const Scene& scene, int writer, const checkpoint::Planted& planted = {},
                                   std::string_view root = kRoot);

/// Makes the scene's disk: its older checkpoints, saved by so many ranks.
std::unique_ptr<checkpoint::MemoryStorage> disk_of(const Scene& scene, int ranks, Contents& contents);

/// A run whose ranks save one content together; `writer` stands in its names.
struct SavingRun {
  Content content = {};
  int ranks = 1;
  int writer = 9;
};

/// How a save is to go.
struct SaveCase : SavingRun {
  const Scene* scene = nullptr;
  std::vector<SavingRun> rivals = {};  ///< that save into the same folder meanwhile; their processes come after this run's
  int victim = 0;                      ///< the process that the script is for
  scheduler::Script script = {};
  std::vector<int> order = {};  ///< in which processes have the turn; empty: from 0 up
  std::vector<scheduler::Preemption> preemptions = {};
  checkpoint::Planted planted = {};
  std::string_view root = kRoot;
  bool notes = false, bytes = false;
  bool unsynced = false;  ///< syncs are left out
  std::size_t block_bytes = 96;
  bool then = false;  ///< nothing is disturbed any more, and the same savers save the next step
};

struct SaveEnd {
  std::vector<checkpoint::SaveOutcome> told;  ///< by process
  std::vector<checkpoint::SaveOutcome> then;  ///< by process, of the step after it
  std::vector<bool> ended;                    ///< by process: killed
  std::vector<std::vector<checkpoint::OperationKind>> kinds;  ///< by process: of its operations
  std::vector<bool> preempted;                ///< by preemption: it took place
  std::vector<int> committed;                 ///< processes that heard of their commit, the first one first
  bool acted = false;                         ///< the script's operation was reached
  bool stalled = false;                       ///< somebody waited for the whole deadline
  std::vector<scheduler::Note> notes;
  /// Was a process that lives told so?
  bool any(checkpoint::Saved saved) const;
};

/// As the scene wants it; what is saved asynchronously is written over meanwhile, as training would do.
checkpoint::SaveOutcome save_as(checkpoint::Saver& saver, const Scene& scene, const checkpoint::SaveRequest& request,
                                const checkpoint::State& state);

/// The ranks of one run, or of several, save, one at a time on a scheduler.
SaveEnd save_scheduled(checkpoint::Storage& disk, const SaveCase& how, Contents& contents);

/// A save in a scene that nothing disturbs.
struct Setting {
  SaveCase how;
  std::unique_ptr<checkpoint::MemoryStorage> disk;  ///< before it
  std::vector<std::vector<checkpoint::OperationKind>> operations;  ///< by process
  /// "A save over an older one by 2 ranks"
  std::string in_words() const;
};
using SettingPtr = std::shared_ptr<const Setting>;
/// The content is the scene's new one of `floats`.
SettingPtr setting_of(const Scene& scene, int ranks, const checkpoint::Planted& planted, Contents& contents,
                      std::size_t block_bytes = SaveCase{}.block_bytes, int64_t floats = Content{}.floats);

/// Ranks load, one at a time on a scheduler. `name` as in LoadOptions.
std::vector<checkpoint::LoadOutcome> load_scheduled(checkpoint::Storage& disk, int ranks, const std::string& name = "",
                                                   std::string_view root = kRoot);

/// As a timeline names them.
std::vector<std::string> rank_names(int ranks);

// What a load found, compared with what was saved and what was told.

/// A save that may stand there.
struct KnownSave {
  Content content;
  int ranks = 1;
  bool may = true;  ///< may be what a load finds; if not, finding it is lost work
};

struct Judgement {
  std::string outcome;  ///< "whole, new", "torn"
  bool fault = false;
  std::string found;  ///< what was expected and what was found, if it is a fault
  int save = -1;      ///< which of the known saves was found; -1: none
  CaseVerdict verdict() const;
};

/// What a load must find.
struct Allowed {
  std::vector<KnownSave> known;  ///< the newest first
  bool none_may = false;         ///< none of them counts for sure, and a refusal is as it must be
  /// Any of the known ones, as what a pointer names may be behind.
  Allowed any() const;
};
/// Every save that stands on a scene's disk, the new one first. `committed`, `failed`: so a rank was told.
Allowed allowed_after(const Scene& scene, const SavingRun& saved, bool committed, bool failed);

/// A load must find one that may be found, with all of its bits, on every rank.
Judgement judge_load(Contents& contents, const Allowed& allowed, const std::vector<checkpoint::LoadOutcome>& loaded);
/// `latest`, if it stands, names one that is whole; it may be behind.
Judgement judge_latest(Storage& disk, const Allowed& allowed, Contents& contents, std::string_view root = kRoot);
/// The next save must succeed, and stand there with no more than keep_last in all.
Judgement judge_next(Storage& disk, const Scene& scene, int ranks, Contents& contents, std::string_view root = kRoot);
/// When a later save or resumption has finished what the save left undone: `best_model` names the scene's best save, of
/// those that count. `newest`: which of the known saves a load found.
Judgement judge_best(Storage& disk, const Scene& scene, const Allowed& allowed, int newest, Contents& contents,
                     std::string_view root = kRoot);
/// Loads by the same ranks, by others and by `latest`; then the next save, and `best_model`. The first that is wrong, or
/// what the first load found.
Judgement judge_disk(Storage& disk, const Scene& scene, int ranks, const Allowed& allowed, Contents& contents,
                     std::string_view root = kRoot);

/// What the ranks that live were told must be the same, of a committed save the remarks as well. Empty: it is.
std::string told_problem(const std::vector<checkpoint::SaveOutcome>& told, const std::vector<bool>& ended);

}  // namespace lockstep::saver
