#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/manifest.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/lib/checkpoint/storage.h"

// What stands in a folder of checkpoints: which are whole, which damaged, which were never finished.

namespace lockstep::checkpoint {

enum class Standing {
  whole,       ///< committed, and its manifest is what was committed
  damaged,     ///< committed once; something of it is not what it was
  unfinished,  ///< no commit record: it never counted
  newer,       ///< of a format that this program does not know
  refusing,    ///< it cannot be read now: permissions, too many open files
};

struct Entry {
  std::string name;
  EntryName parsed;
  Standing standing = Standing::unfinished;
  /// Also of damaged and newer ones, where it can be read; save_id is empty otherwise
  CommitRecord commit = {};
  Manifest manifest = {};    ///< of whole ones, unless `Sightings` knew them
  /// Its commit record could not be read now; `commit` has the manifest's sequence then, or 0.
  bool unread = false;
  std::string problem = {};  ///< "manifest.json: step: 100 was committed, the manifest has 101"
};

struct Survey {
  bool exists = false;                   ///< the folder stands
  std::vector<Entry> entries;            ///< newest first; those whose place nobody knows before all others
  std::vector<std::string> temporaries;  ///< left beside pointers
  std::vector<std::string> strangers;    ///< names that are none of ours
  Failure failure;                       ///< the folder cannot be read
};

/// Whole checkpoints that one process has looked at, so that its next save reads of each no more than its commit record,
/// which binds the rest: name -> the record's bytes, and whether the files' lengths were looked at too.
struct Sightings {
  struct Sighting {
    std::string commit_text;
    bool lengths = false;
  };
  std::map<std::string, Sighting> whole;
};

/// `lengths`: a checkpoint whose files have other lengths than its manifest says is damaged. `seen` may be null.
Survey survey(Storage& storage, const std::string& root, bool lengths, Sightings* seen = nullptr);

/// One checkpoint of the folder, as `survey` sees it.
Entry look_at(Storage& storage, const std::string& root, const std::string& name, bool lengths = false);

/// A pointer's content, or why it says nothing: "latest: is empty".
struct ReadPointer {
  Pointer pointer;
  std::string problem;
  bool missing = false;
};
ReadPointer read_pointer(Storage& storage, const std::string& root, std::string_view name);

/// The entry that holds this save; null if none does.
const Entry* entry_of(const Survey& survey, const std::string& save_id);

/// Moved aside for a newer one of its step, which is whole?
bool superseded(const Survey& survey, const Entry& entry);

/// What `latest` is to name: the newest whole one. Null if none is.
const Entry* newest_of(const Survey& survey);
/// What `best_model` is to name: the newest whole one that was saved as the best so far; where none was (an older format
/// does not say), what the pointer names. Null if there is none.
const Entry* best_of(const Survey& survey, const ReadPointer& pointer);

// The manifest's part about the state, put together from what each rank holds.

/// Of each kind a hash of what must be the same on all ranks: tensors' names, types, shapes and placements,
/// and the values.
nlohmann::json forms_of(const State& state);
/// The first kind in which they differ: "moments: rank 1 holds other tensors or values than rank 0"; empty:
/// in none.
std::string forms_problem(const nlohmann::json& first, const nlohmann::json& other, int rank);

/// What only this rank can tell: its slices, its own shapes and values.
nlohmann::json contribution_of(const State& state);

/// All ranks get the same from the same contributions. `problem`: "parameters: w: elements 4 to 6 are held by
/// no rank".
std::map<std::string, KindEntry> assemble(const State& state,
                                          const std::vector<nlohmann::json>& contributions,
                                          std::string& problem);

// Finds the newest checkpoint that is whole, verifies it, and gives each rank its part, whatever the number
// of ranks was.

struct LoadOptions {
  std::string root;
  /// A checkpoint's name, "latest" or "best_model"; empty: the newest. A named one is loaded or refused.
  std::string name;
  std::string config_hash;  ///< what the checkpoint must have been saved with; empty: any
  /// What the run needs: kinds, tensors, types and shapes, and of sharded tensors the slice that this rank
  /// wants. Bytes and values are not looked at. Null: all that there is, in even slices.
  const State* expected = nullptr;
  bool fresh_start = false;  ///< if there is no checkpoint at all, the run may begin at step 0
  double deadline_s = 60;
  std::size_t block_bytes = std::size_t{1} << 20;
};

enum class Loaded {
  loaded,
  fresh,    ///< there was none, and `fresh_start` was asked for
  refused,  ///< `problem` says why
};

struct LoadOutcome {
  Loaded loaded = Loaded::refused;
  std::string name;   ///< of the checkpoint's folder
  Manifest manifest;  ///< of what was loaded
  /// This rank's part. Tensors and values that each rank has for itself are in it only if the number of ranks
  /// is the same.
  State state;
  /// If the number of ranks is another: what each rank had for itself, by rank. How to go on from that, the
  /// trainer knows.
  std::vector<State> of_ranks;
  /// Field or file, what was expected and what was found; the same on all ranks
  std::string problem;
  /// Newer ones that were passed over: "epoch_2_step_40: rank-0-of-2.safetensors: …"
  std::vector<std::string> refused;
  int64_t best_step = -1;  ///< of the whole one that `best_model` is to name; -1: there is none
  std::vector<std::string> remarks;  ///< a pointer that is behind, a save that did not finish
  explicit operator bool() const { return loaded != Loaded::refused; }
};

/// All ranks load the same checkpoint, or all refuse. Changes nothing on the disk.
LoadOutcome load(const LoadOptions& options, Storage& storage, Group& group);

}  // namespace lockstep::checkpoint
