#pragma once
// Random numbers without a generator's hidden state: every draw is a function of (seed, purpose, step, who,
// position).

#include <cstdint>
#include <span>

#include "harness/verdict/config/run_config.h"
#include "harness/verdict/config/seeds.h"

namespace lockstep {

enum class Purpose : uint32_t { context_noise = 1, dropout = 2, negative_noise = 3, negative_shuffle = 4 };

/// Keys of the streams that one rank draws from.
///
/// keyed: a row's stream belongs to its sample, whatever rank it is on, so that the layout changes nothing;
/// plus_rank: to the row's place on this rank and seed + rank; same: to the row's place and the seed alone,
/// on every rank alike.
class RandomStreams {
 public:
  RandomStreams(RankSeed mode, int64_t seed, int rank);

  uint64_t row_key(Purpose purpose, int64_t step, int64_t sample_id, int64_t local_row) const;
  /// Stream of a (row, candidate) pair.
  uint64_t pair_key(uint64_t row_key, int64_t column_id, int64_t local_column) const;

 private:
  RankSeed mode_;
  uint64_t base_;
};

/// Fills with uniforms in [0, 1), multiples of 2^-24; element d depends on (key, d) alone.
void fill_uniform(uint64_t key, std::span<float> out);

/// Fills with 0 (probability p) and 1 / (1 - p): a dropout mask, drawn as fill_uniform draws.
void fill_dropout(uint64_t key, float p, std::span<float> out);

}  // namespace lockstep
