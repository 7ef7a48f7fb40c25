#pragma once
// What a save is asked for, and what comes of it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/planted.h"

namespace lockstep::checkpoint {

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

}  // namespace lockstep::checkpoint
