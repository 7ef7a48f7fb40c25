#pragma once

#include <string>
#include <vector>

#include "harness/lib/checkpoint/storage.h"
#include "harness/suites/checkpoint/saver/judge.h"

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

/// `folder` is this call's own: it is emptied, and gets the scene's disk. SIGKILL comes before the point's operation. What
/// the ranks say at the end is judged as judge_save does.
Judgement judge_process_kill(const std::string& folder, const checkpoint::MemoryStorage& before, const Scene& scene, int ranks,
                             const KillPoint& point, Contents& contents);

/// The same with SIGSTOP: the others must give up on it within the deadline, and it is killed then.
Judgement judge_process_stop(const std::string& folder, const checkpoint::MemoryStorage& before, const Scene& scene, int ranks,
                             const KillPoint& point, Contents& contents);

}  // namespace lockstep::saver
