#include "harness/verdict/config/stream_keys.h"

namespace lockstep {

uint64_t mix_key(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

int64_t stream_seed(const RunConfig& config) {
  constexpr uint64_t kOtherDraws = 0x6f7468657264;  // "otherd"
  if (config.perturb != Perturbation::random_draws) return config.seed;
  return static_cast<int64_t>(mix_key(static_cast<uint64_t>(config.seed) ^ kOtherDraws));
}

uint64_t stream_base(RankSeed mode, int64_t seed, int rank) {
  return mix_key(static_cast<uint64_t>(seed) +
                 (mode == RankSeed::plus_rank ? static_cast<uint64_t>(rank) : 0));
}

uint64_t stream_row_key(uint64_t base, uint32_t purpose, int64_t step, uint64_t who) {
  return mix_key(mix_key(mix_key(base ^ static_cast<uint64_t>(purpose)) ^ static_cast<uint64_t>(step)) ^ who);
}

uint64_t stream_fingerprint(std::span<const uint64_t> row_keys) {
  uint64_t sum = 0;
  for (const uint64_t key : row_keys) sum += mix_key(key);
  return sum;
}

}  // namespace lockstep
