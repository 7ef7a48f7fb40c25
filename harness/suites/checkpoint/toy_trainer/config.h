#pragma once
// What a run of the toy trainer is. It learns a small regression on generated rows, in float32, with what trainers
// have that must be restored: Adam, warm-up and plateau, accumulation, dropout, noise, loss scale, averaged weights,
// running normalisers, best metric and patience.

#include <cstdint>
#include <set>
#include <string>

namespace lockstep::toy {

/// Mistakes that a lab plants to see them found. All off: the trainer as it is.
struct Planted {
  /// Kinds of state that are not saved, and so begin anew when the run is resumed
  std::set<std::string, std::less<>> left_out = {};
  bool cursor_in_batches = false;  ///< the sampler's cursor is saved in batches of the ranks that there are
  bool cursor_of_rank = false;     ///< each rank saves how many rows it has read itself
  bool shard_off_by_one = false;   ///< a rank takes its moments from one element further on
  bool stops_alone = false;        ///< a rank that is told to end does, and does not tell the others
  bool default_on_second = false;  ///< from the first signal on another one ends the process
  bool operator==(const Planted&) const = default;
};

struct Config {
  uint64_t seed = 1;
  int64_t samples = 60;
  int64_t batch_rows = 8;      ///< of a step, all ranks together
  int64_t rows_per_rank = 0;   ///< if not 0: a step has that many for each rank, and batch_rows does not count
  int64_t accumulate = 3;      ///< steps for one update
  int64_t evaluate_every = 4;  ///< steps
  int64_t patience = 40;       ///< evaluations without a better one after which the run ends
  /// Rows are jittered by a generator that each rank has for itself. Without it a run has the same bits on any number
  /// of ranks, if batch_rows is the same.
  bool jitter = true;
  bool shard_parameters = false;  ///< in checkpoints; moments always are
  Planted planted = {};

  int64_t rows_of_step(int ranks) const { return rows_per_rank > 0 ? rows_per_rank * ranks : batch_rows; }
};

}  // namespace lockstep::toy
