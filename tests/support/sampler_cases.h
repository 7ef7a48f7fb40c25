#pragma once
// Cases of the trainers' sampler that are asked of PyTorch's too, and what the sampler gives each rank, as a hash.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/lib/data/sampler.h"

namespace lockstep::support {

struct Drawn {
  SamplerOptions options;
  int64_t epoch = 0;
};

/// 640 cases, the edges among them.
inline std::vector<Drawn> sampler_cases() {
  std::vector<Drawn> all;
  const auto add = [&](int64_t samples, int ranks, bool drop_last, bool shuffle, int64_t seed, int64_t epoch) {
    all.push_back({{.samples = samples, .world_size = ranks, .seed = seed, .shuffle = shuffle, .drop_last = drop_last}, epoch});
  };
  for (const int64_t samples : {0, 1, 2, 7, 16, 17, 257}) {
    for (const int ranks : {1, 2, 8, 16}) {
      for (const bool drop_last : {false, true}) add(samples, ranks, drop_last, true, 3, 2);
    }
  }
  for (const int64_t samples : {3, 623, 624, 625, 70000}) {
    for (const int64_t seed : {int64_t{0}, int64_t{-7}, int64_t{1} << 31, (int64_t{1} << 32) + 5, int64_t{1} << 62, -(int64_t{1} << 62)})
      add(samples, 1, false, true, seed, 0);
  }
  for (uint64_t i = 0; all.size() < 640; ++i) {
    const auto below = [i](uint64_t what, uint64_t count) { return keyed(uint64_t{7}, i, what) % count; };
    add(static_cast<int64_t>(below(0, 258)), static_cast<int>(1 + below(1, 16)), below(2, 2) == 0, below(3, 2) == 0,
        static_cast<int64_t>(below(4, 1000)), static_cast<int64_t>(below(5, 3)));
  }
  return all;
}

/// FNV-1a of all ranks' lists in order, each preceded by its length; empty ones where the sampler refuses the case (PyTorch returns
/// empty lists without a message).
inline std::string hash_of_lists(Drawn drawn) {
  std::vector<std::vector<int64_t>> lists(static_cast<std::size_t>(drawn.options.world_size));
  try {
    for (int& rank = drawn.options.rank; rank < drawn.options.world_size; ++rank)
      lists[static_cast<std::size_t>(rank)] = DistributedSampler(drawn.options).epoch_indices(drawn.epoch);
  } catch (const ConfigError&) {
  }
  uint64_t state = 0xcbf29ce484222325u;
  const auto add = [&](int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) state = (state ^ ((static_cast<uint64_t>(value) >> shift) & 0xffu)) * 0x100000001b3u;
  };
  for (const std::vector<int64_t>& list : lists) {
    add(static_cast<int64_t>(list.size()));
    for (const int64_t id : list) add(id);
  }
  return hex16(state);
}

}  // namespace lockstep::support
