#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/manifest.h"
#include "harness/lib/checkpoint/shard.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/lib/checkpoint/storage.h"

// The classic mistakes of savers, which a lab plants to see them found. All off: the saver as it is.

namespace lockstep::checkpoint {

struct Planted {
  bool one_file_name = false;          ///< all ranks write the file of rank 0, and none of them exclusively
  bool shared_temporary_name = false;  ///< of all tries and writers; what stands there already is taken over
  bool no_lock = false;                ///< another process may save into the folder meanwhile
  bool rename_before_data = false;     ///< the folder has its final name before anything is in it
  bool latest_before_commit = false;   ///< the pointer is advanced before the data are durable and committed
  bool delete_before_commit = false;   ///< older checkpoints go before the new one is committed
  bool exists_per_rank = false;        ///< each rank asks the disk by itself whether the step was saved
  bool no_data_sync = false;           ///< no fsync of files
  bool no_folder_sync = false;         ///< no fsync of folders
  /// Ranks do not wait for each other here: "begin", "written", "renamed", "committed", "finished".
  std::string skipped_gather = {};
};

// What a save is asked for, and what comes of it.

struct SaveOptions {
  std::string root;         ///< a folder, which the first save makes (its parent must stand)
  std::string config_hash;  ///< of what must be the same when the run is resumed
  int keep_last = 3;        ///< checkpoints, at least 1; the best one is among them, and then at least 2
  double deadline_s = 60;   ///< for a rank that shows no progress
  std::size_t block_bytes = std::size_t{1} << 20;  ///< one write, and one step of the hash
  /// 16 hex digits, another at each call; by default from process, clock and count. Rank 0's is used.
  std::function<std::string()> nonce;
  int64_t process = 0;  ///< this process's number in names; 0: the system's
  Planted planted = {};
};

struct SaveRequest {
  int64_t epoch = 0, step = 0;
  bool best = false;  ///< `best_model` is to name this one
};

enum class Saved {
  committed,  ///< whole and durable, and the newest
  failed,     ///< as if it had never begun; older ones are untouched
  unknown,    ///< a rank ended while the commit was under way: a load tells
};

struct SaveOutcome {
  Saved saved = Saved::failed;
  std::string name;  ///< "epoch_2_step_371"
  std::string save_id;
  std::string problem;               ///< why it failed: the same text on every rank that lives
  std::vector<std::string> remarks;  ///< what came after the commit and failed, and what was cleaned
  explicit operator bool() const { return saved == Saved::committed; }
};

// Which checkpoints stay and which of them the pointers name, and the taking away of the others, so that a deletion that
// is cut short leaves nothing that counts.

struct Retention {
  int keep_last = 3;
  Durability durability = {};
  Writer writer = {};              ///< in the names of temporary files
  std::function<void()> progress = {};  ///< after each folder; may be empty
  Sightings* seen = nullptr;       ///< of the process that settles; may be null
};

/// All of it, but for what a planted mistake leaves out.
inline Durability durability_of(const SaveOptions& options) { return {!options.planted.no_data_sync, !options.planted.no_folder_sync}; }

/// Finishes what a save does after its commit, this one or an earlier one that was cut short: lets `best_model` and `latest`
/// name the best and the newest whole checkpoint, as the commit records have it, and takes away older ones and what saves
/// left that did not finish. Only who holds the folder's lock may call it: then no save is under way that could still need
/// these. What a pointer names stays while the pointer cannot be replaced. Returns what could not be done and why.
std::vector<std::string> settle(Storage& storage, const std::string& root, const Retention& retention);

// Saves states as checkpoints, so that at every moment, whatever ends, fails or is torn, the newest one that
// counts is whole. docs/checkpoint.md has the order of a save's operations and what is promised.

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
