#pragma once
// Saves states as checkpoints, so that at every moment, whatever ends, fails or is torn, the newest one that
// counts is whole. docs/checkpoint.md has the order of a save's operations and what is promised.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/checkpoint/group.h"
#include "harness/checkpoint/planted.h"
#include "harness/checkpoint/state.h"
#include "harness/checkpoint/storage.h"

namespace lockstep::checkpoint {

struct SaveOptions {
  std::string root;         ///< a folder, which the first save makes (its parent must stand)
  std::string config_hash;  ///< of what must be the same when the run is resumed
  int keep_last = 3;        ///< checkpoints, at least 1; the best one is among them, and then at least 2
  double deadline_s = 60;   ///< for a rank that shows no progress
  std::size_t block_bytes = std::size_t{1} << 20;  ///< one write, and one step of the hash
  /// 16 hex digits, another at each call; by default from process, clock and count. Rank 0's is used.
  std::function<std::string()> nonce;
  Planted planted = {};
};

struct SaveRequest {
  int64_t epoch = 0, step = 0;
  bool best = false;  ///< `best_model` is to name this one
};

enum class Saved {
  committed,      ///< whole and durable, and the newest
  failed,         ///< as if it had never begun; older ones are untouched
  unknown,        ///< a rank ended while the commit was under way: a load tells
};

struct SaveOutcome {
  Saved saved = Saved::failed;
  std::string name;                  ///< "epoch_2_step_371"
  std::string save_id;
  std::string problem;               ///< why it failed: the same text on every rank that lives
  std::vector<std::string> remarks;  ///< what came after the commit and failed, and what was cleaned
  explicit operator bool() const { return saved == Saved::committed; }
};

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
  bool under_way() const;

 private:
  struct Background;
  SaveOptions options_;
  Storage& storage_;
  Group& group_;
  std::unique_ptr<Background> background_;
};

/// Is a checkpoint due after this step? After every `every` steps; never if that is 0.
constexpr bool due(int64_t step, int64_t every) { return every > 0 && step > 0 && step % every == 0; }

}  // namespace lockstep::checkpoint
