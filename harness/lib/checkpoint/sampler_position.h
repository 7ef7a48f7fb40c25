#pragma once
// Where the reading of samples stands, so that a run with any number of ranks goes on with the next one.
//
// An epoch has one permutation of all samples, the same on every rank. A step of V ranks with B rows each
// takes the next V * B places of it; row i of rank r is place cursor + i * V + r, which is
// DistributedSampler's partition. The cursor counts places of the permutation and not steps or batches, so it
// means the same for any V and B: places below it have been seen, each once, and the others not yet. Between
// two micro-batches of one update it stands between their places. Rows are partitioned anew from the cursor on:
// what one rank would have read next another one reads.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/state.h"

namespace lockstep::checkpoint {

struct SamplerPosition {
  int64_t epoch = 0;
  int64_t samples = 0;  ///< places of the epoch's permutation that count
  int64_t seed = 0;     ///< the permutation's, with its epoch
  /// Of the places' sample ids, so that another permutation is noticed; may be empty
  std::string permutation_hash;
  int64_t cursor = 0;  ///< places that have been seen
  bool operator==(const SamplerPosition&) const = default;
};

/// XXH3 of the ids in their order.
std::string permutation_hash(const std::vector<int64_t>& ids);

/// Puts it into the kinds sampler_epoch, sampler_permutation and sampler_cursor.
void put_position(State& state, const SamplerPosition& position);

}  // namespace lockstep::checkpoint
