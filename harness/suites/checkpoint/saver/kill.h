#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/suites/checkpoint/saver/judge.h"
#include "harness/suites/engine/suite.h"

// One kill of one save, and what all that come after it find.

namespace lockstep::saver {

/// Where a rank of a save ends.
struct KillPoint {
  int rank = 0;
  int64_t at = 0;
  scheduler::InjectedFault injected = scheduler::InjectedFault::end;
  int reach = 0;
  checkpoint::OperationKind kind = checkpoint::OperationKind::create;
};
/// "op-12", "op-12-within", "op-30-within-2", "op-12-all".
std::string name_of(const KillPoint& point);
/// "rank 1 is killed before its operation 12, rename".
std::string in_words(const KillPoint& point);

/// Before every operation and collective of each rank, within every write and collective, and the whole job before every one.
std::vector<KillPoint> kill_points(const std::vector<std::vector<checkpoint::OperationKind>>& operations);

/// Every save that stands on a scene's disk, the new one first.
std::vector<KnownSave> known_of(const Scene& scene, int ranks);

/// Saves, and lets others load what is left, save the next step and load that. `disk`: the scene's; stays as it is.
struct Aftermath {
  Judgement judgement;
  std::vector<scheduler::Note> notes;
};
Aftermath judge_save(const checkpoint::MemoryStorage& disk, const SaveCase& how, Contents& contents);

/// What a load must find after what was told. `told`: by rank; those that ended do not count.
std::vector<KnownSave> allowed_after(const Scene& scene, int ranks, const std::vector<checkpoint::SaveOutcome>& told,
                                     const std::vector<bool>& ended, bool& none_may);
/// The next save must succeed, and stand there with no more than keep_last in all.
Judgement judge_next(checkpoint::Storage& disk, const Scene& scene, int ranks, Contents& contents,
                     std::string_view root = kRoot);
/// When a later save or resumption has finished what the save left undone: `best_model` names the scene's best save, of those that count.
/// `newest`: which of the known saves a load found.
Judgement judge_best(checkpoint::Storage& disk, const Scene& scene, const std::vector<KnownSave>& known, int newest,
                     Contents& contents, std::string_view root = kRoot);
/// Loads by the same ranks, by others and by `latest`; then the next save, and `best_model`. The first that is wrong, or what the first load found.
Judgement judge_disk(checkpoint::Storage& disk, const Scene& scene, int ranks, const std::vector<KnownSave>& known,
                     bool none_may, Contents& contents, std::string_view root = kRoot);

// Ranks that are processes on the machine's file system, one of which is killed: sockets close, locks go and pages stay as
// the kernel does it.

/// The same with SIGSTOP: the others must give up on it within the deadline, and it is killed then.
Judgement judge_process_stop(const std::string& folder, const checkpoint::MemoryStorage& before, const Scene& scene, int ranks,
                             const KillPoint& point, Contents& contents);

// What `saver:` holds in a config.

/// What is done to saves.
enum class SearchKind { kill, schedules, power, corruption, errors };
WordList words_of(SearchKind kind);

struct SaverConfig {
  SearchKind search = SearchKind::kill;
  std::vector<int64_t> world_sizes = {1, 2, 4, 8};
  int64_t points = 0;
  int64_t process_points = 0;
  bool planted = true;
};

// What the suites of the saver library have in common: trials that carry what they run, and planted mistakes.

std::unique_ptr<Suite> make_schedule_search(const SaverConfig& config);
std::unique_ptr<Suite> make_power_search(const SaverConfig& config);
std::unique_ptr<Suite> make_corruption_search(const SaverConfig& config);
std::unique_ptr<Suite> make_error_search(const SaverConfig& config);

/// A mistake that a search plants to see it found.
struct Mutant {
  std::string_view name, words;
  checkpoint::Planted planted;
};
/// Every one that there is; LOCKSTEP_CHECKs the name.
const Mutant& mutant_named(std::string_view name);

/// What came of the search for one mutant.
struct MutantFound {
  bool found = false;
  int64_t tried = 0;  ///< points, schedules or states, the one that shows it included
  std::string outcome, sentence;
  std::vector<TimelineStep> timeline = {};
};

/// A trial that plants the mutant. Found, it is listed as planted; not found, it is a fault of this suite.
/// `harmless`: why it does no harm in this search; then finding it would be the fault.
Trial mutant_trial(std::string_view name, std::string_view place, std::string_view harmless,
                     std::function<MutantFound()> search);

/// `count` of them, evenly spread; all if count is 0.
template <class T>
std::vector<T> even_sample(const std::vector<T>& all, std::size_t count) {
  if (count == 0 || count >= all.size()) return all;
  std::vector<T> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(all[i * all.size() / count]);
  return some;
}

}  // namespace lockstep::saver

// The suite of the saver library (harness/lib/checkpoint): kills, schedules, power losses, corruption and errors, by the
// thousand, on a disk in memory and on the machine's.

namespace lockstep {

const SuiteKind& saver_suite();

}  // namespace lockstep
