#pragma once
// Finds the newest checkpoint that is whole, verifies it, and gives each rank its part, whatever the number
// of ranks was.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/manifest.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/lib/checkpoint/storage.h"

namespace lockstep::checkpoint {

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
