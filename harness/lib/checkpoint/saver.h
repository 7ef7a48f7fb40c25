#pragma once
// Saves states as checkpoints, so that at every moment, whatever ends, fails or is torn, the newest one that
// counts is whole. docs/checkpoint.md has the order of a save's operations and what is promised.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/save.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/lib/checkpoint/survey.h"

namespace lockstep::checkpoint {

/// One rank's saver. Its group belongs to it alone; storage and group outlive it.
class Saver {
 public:
  Saver(SaveOptions options, Storage& storage, Group& group);
  /// Waits for a save that is under way.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Saves and returns when all ranks know what came of it. Waits for an earlier asynchronous save, whose
  /// outcome `wait` still gives. Throws nothing that the disk or other ranks cause.
  SaveOutcome save(const SaveRequest& request, const State& state);
  /// Takes a copy of the state and returns; a thread saves it. At most one is under way: a second call waits
  /// for the first. All ranks must call it alike. Returns what came of the one before, if nobody has asked
  /// for that yet.
  std::optional<SaveOutcome> save_async(const SaveRequest& request, const State& state);
  /// Waits for the save under way; what came of it, once.
  std::optional<SaveOutcome> wait();
  /// Finishes what an earlier save that was cut short left undone after its commit (`settle` of retention.h). Rank 0 does
  /// it, under the folder's lock; the others return at once. Not while a save is under way. Returns what could not be done.
  std::vector<std::string> finish_earlier();

 private:
  struct Background;
  SaveOptions options_;
  Storage& storage_;
  Group& group_;
  Sightings seen_;
  std::unique_ptr<Background> background_;
};

/// Is a checkpoint due after this step? After every `every` steps; never if that is 0.
constexpr bool due(int64_t step, int64_t every) { return every > 0 && step > 0 && step % every == 0; }

}  // namespace lockstep::checkpoint
