#include "harness/trainers/core/streams.h"

namespace lockstep {
namespace {

/// Chris Wellons' lowbias32, a 32-bit finalizer with near-ideal avalanche (nullprogram.com/blog/2018/07/31).
inline uint32_t scramble(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  return x;
}

inline float uniform(uint32_t low, uint32_t high, uint32_t position) {
  const uint32_t bits = scramble(scramble(position * 0x9E3779B9U + low) ^ high);
  return static_cast<float>(bits >> 8) * 0x1.0p-24F;
}

}  // namespace

RandomStreams::RandomStreams(RankSeed mode, int64_t seed, int rank)
    : mode_(mode), base_(stream_base(mode, seed, rank)) {}

uint64_t RandomStreams::row_key(Purpose purpose, int64_t step, int64_t sample_id, int64_t local_row) const {
  const uint64_t who = static_cast<uint64_t>(mode_ == RankSeed::keyed ? sample_id : local_row);
  return stream_row_key(base_, static_cast<uint32_t>(purpose), step, who);
}

uint64_t RandomStreams::pair_key(uint64_t row_key, int64_t column_id, int64_t local_column) const {
  return mix_key(row_key ^
                 mix_key(static_cast<uint64_t>(mode_ == RankSeed::keyed ? column_id : local_column)));
}

__attribute__((target_clones("avx2", "default"))) void fill_uniform(uint64_t key, std::span<float> out) {
  const auto low = static_cast<uint32_t>(key);
  const auto high = static_cast<uint32_t>(key >> 32);
  for (std::size_t d = 0; d < out.size(); ++d) {
    out[d] = uniform(low, high, static_cast<uint32_t>(d));
  }
}

__attribute__((target_clones("avx2", "default"))) void fill_dropout(uint64_t key, float p,
                                                                    std::span<float> out) {
  const auto low = static_cast<uint32_t>(key);
  const auto high = static_cast<uint32_t>(key >> 32);
  const float kept = 1.0F / (1.0F - p);
  for (std::size_t d = 0; d < out.size(); ++d) {
    out[d] = uniform(low, high, static_cast<uint32_t>(d)) < p ? 0.0F : kept;
  }
}

}  // namespace lockstep
