#pragma once
// Initial states of a task, drawn by all ranks together without repetition; and an audit of what ranks drew.

#include <cstdint>
#include <vector>

#include "harness/lib/data/sharding/finding.h"

namespace lockstep::sharding {

struct StateOptions {
  int64_t states = 1;   ///< initial states that the task has
  int64_t a_round = 1;  ///< that a round draws, all ranks together
  uint64_t seed = 0;
  int64_t task = 0;
};

/// Rounds of one task. An epoch is one keyed permutation of all states; a round takes the next places of it,
/// whatever the number of ranks, so that every world size draws the same states. A round that goes over an
/// epoch's end takes from the next permutation what it does not hold yet; what it passed over comes right
/// after it.
class InitialStates {
 public:
  /// Throws ConfigError: no states, or a round of more states than there are.
  explicit InitialStates(const StateOptions& options);
  /// The states of a round, each another one; valid until another round is asked for. Rounds count from 0 and are
  /// cheapest in order.
  const std::vector<int64_t>& round(int64_t number);
  /// Rank r's part of it: places r, r + ranks, …
  std::vector<int64_t> of_rank(int64_t number, int rank, int ranks);

 private:
  std::vector<int64_t> permutation(int64_t epoch) const;
  void begin();
  std::vector<int64_t> next();

  StateOptions options_;
  int64_t next_round_ = 0, epoch_ = 0;
  std::vector<int64_t> order_;  ///< of the current epoch, as it is left
  std::size_t at_ = 0;          ///< place in it
  std::vector<int64_t> last_;   ///< of the round before next_round_
};

/// What ranks drew: [round][rank], in order. `environment_seeds` may be empty.
struct StateDraws {
  int64_t states = 1;
  std::vector<std::vector<std::vector<int64_t>>> drawn;
  std::vector<std::vector<std::vector<uint64_t>>> environment_seeds;
};

/// The first of these:
///
///   equal_environment_seeds  two ranks seed their environments alike
///   chunk_index_seeds        requests of a round repeat their seeds with the length of a chunk
///   repeated_seeds           two requests of a round have one seed
///   state_twice              two ranks, or one of them twice, begin at the same state within a round
///   epoch_order_repeats      an epoch has the order of the one before
///   state_left_out           an epoch ended without some state
Finding audit_states(const StateDraws& draws);

}  // namespace lockstep::sharding
