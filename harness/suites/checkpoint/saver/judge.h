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

/// How a save is to go.
struct SaveCase {
  const Scene* scene = nullptr;
  Content content = {};
  int ranks = 1;
  int victim = 0;     ///< whom the script befalls
  scheduler::Script script = {};
  bool everyone = false;  ///< the script befalls every rank
  std::vector<int> order = {};  ///< in which ranks have the turn; empty: from 0 up
  std::vector<scheduler::Preemption> preemptions = {};
  checkpoint::Planted planted = {};
  int writer = 9;
  std::string_view root = kRoot;
  bool notes = false, bytes = false;
  bool unsynced = false;  ///< syncs are left out
  std::size_t block_bytes = 96;
  bool then = false;  ///< nothing befalls anybody any more, and the same savers save the next step
};

struct SaveEnd {
  std::vector<checkpoint::SaveOutcome> told;  ///< by rank
  std::vector<checkpoint::SaveOutcome> then;  ///< by rank, of the step after it
  std::vector<bool> ended;                    ///< by rank: killed
  std::vector<std::vector<checkpoint::OperationKind>> kinds;  ///< by rank: of its operations
  bool acted = false;    ///< the script's operation was reached
  bool stalled = false;  ///< somebody waited for the whole deadline
  std::vector<scheduler::Note> notes;
};

/// The ranks of one run save, one at a time on a scheduler.
SaveEnd save_scheduled(checkpoint::Storage& disk, const SaveCase& how, Contents& contents);

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
  CaseVerdict verdict() const { return fault ? CaseVerdict::fault : CaseVerdict::good; }
};

/// Known saves, the newest first. A load must find one that may be found, with all of its bits, on every rank.
/// `none_may`: none of them counts for sure, and a refusal is as it must be.
Judgement judge_load(Contents& contents, const std::vector<KnownSave>& known, bool none_may,
                     const std::vector<checkpoint::LoadOutcome>& loaded);

/// What the ranks that live were told must be the same, of a committed save the remarks as well. Empty: it is.
std::string told_problem(const std::vector<checkpoint::SaveOutcome>& told, const std::vector<bool>& ended);

/// The case, and the timeline if it is a fault.
CaseResult case_of(const Judgement& judgement, const std::string& done, int64_t cases = 1);

}  // namespace lockstep::saver
