#pragma once
// How frameworks make the seed of a stream from run, rank, worker and epoch, and which streams then share
// one.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::sharding {

/// Whose stream it is. `run` is the run's own seed: runs are numbered 0, 1, 2, … as people number them.
struct StreamOwner {
  int64_t run = 0, rank = 0, worker = 0, epoch = 0;
};

/// All streams of so many runs, ranks, workers and epochs: 1,000,000.
struct StreamRanges {
  int64_t runs = 10, ranks = 100, workers = 10, epochs = 100;
  int64_t count() const { return runs * ranks * workers * epochs; }
  StreamOwner owner(int64_t index) const;
};

struct SeedFormula {
  std::string_view name;
  std::string_view words;  ///< the formula
  std::string_view used_by;
  uint64_t (*seed)(const StreamOwner& owner, const StreamRanges& ranges);
  bool collides;  ///< within the default ranges, as a 64-bit seed
};
std::span<const SeedFormula> seed_formulas();
/// Null if there is none of that name.
const SeedFormula* find_seed_formula(std::string_view name);

/// What a scan of all streams found.
struct Collisions {
  int64_t streams = 0;
  int64_t distinct = 0;      ///< seeds
  int64_t distinct_low = 0;  ///< lower 32 bits of seeds: all that PyTorch's CPU generator takes (at::mt19937)
  StreamOwner first, second;  ///< two streams with one seed, if distinct < streams
  uint64_t seed = 0;          ///< theirs
};
Collisions scan_seeds(const SeedFormula& formula, const StreamRanges& ranges);

/// Seeds that one formula gives to ranks' streams and another one to epochs' permutations, over all runs.
struct CrossCollisions {
  int64_t shared = 0;   ///< (run, rank) streams whose seed is also one of a (run, epoch) permutation
  int64_t streams = 0;  ///< (run, rank) streams
  StreamOwner stream, permutation;  ///< the first such pair
  uint64_t seed = 0;
};
CrossCollisions cross_seeds(const SeedFormula& of_ranks, const SeedFormula& of_epochs,
                            const StreamRanges& ranges);

/// A stream's seed keyed by all that it belongs to (SplitMix64's finaliser over the parts in order): as a
/// 64-bit key it is met twice with probability n^2 / 2^65 among n streams.
uint64_t keyed_seed(uint64_t purpose, const StreamOwner& owner);

/// "run 0, rank 1, worker 0, epoch 0"
std::string in_words(const StreamOwner& owner);

}  // namespace lockstep::sharding
