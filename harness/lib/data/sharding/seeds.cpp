#include "harness/lib/data/sharding/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <vector>

#include "harness/base/hashing.h"

namespace lockstep::sharding {
namespace {

uint64_t u(int64_t value) { return static_cast<uint64_t>(value); }

/// What a loader draws from its process's generator at the begin of an epoch (63 bits); processes are seeded
/// alike, so it is the same on all ranks.
uint64_t loader_base(const StreamOwner& o) { return keyed(uint64_t{0x6c6f61646572}, o.run, o.epoch) >> 1; }

constexpr int64_t kDataParallel = 25;  // Megatron's ranks: 25 data-parallel ones in each pipeline stage

constexpr uint64_t kStream = 0x73747265616d;  // "stream"

constexpr auto kFormulas = std::to_array<SeedFormula>({
    {"same", "seed", "one seed everywhere: Lightning's seed_everything, accelerate's set_seed",
     [](const StreamOwner& o, const StreamRanges&) { return u(o.run); }, true},
    {"plus_rank", "seed + rank", "accelerate's set_seed(device_specific=True), many scripts",
     [](const StreamOwner& o, const StreamRanges&) { return u(o.run) + u(o.rank); }, true},
    {"plus_epoch", "seed + epoch", "PyTorch's DistributedSampler",
     [](const StreamOwner& o, const StreamRanges&) { return u(o.run) + u(o.epoch); }, true},
    {"plus_all", "seed + rank + worker + epoch", "scripts",
     [](const StreamOwner& o, const StreamRanges&) {
       return u(o.run) + u(o.rank) + u(o.worker) + u(o.epoch);
     },
     true},
    {"megatron", "seed + 100 pipeline stage + 10 data-parallel rank",
     "Megatron-LM with data_parallel_random_init; 25 ranks a stage",
     [](const StreamOwner& o, const StreamRanges&) {
       return u(o.run) + 100 * u(o.rank / kDataParallel) + 10 * u(o.rank % kDataParallel);
     },
     true},
    {"workers", "base drawn each epoch + worker", "PyTorch's DataLoader, ranks seeded alike",
     [](const StreamOwner& o, const StreamRanges&) { return loader_base(o) + u(o.worker); }, true},
    {"lightning", "(base << 32 | worker << 16 | rank) a + 1", "Lightning's workers (2.4); a: Knuth's MMIX",
     [](const StreamOwner& o, const StreamRanges&) {
       return (loader_base(o) << 32 | u(o.worker) << 16 | u(o.rank)) * 6364136223846793005u + 1;
     },
     false},
    {"mixed_radix", "seed + (epoch workers + worker) ranks + rank",
     "torchtitan's rule for mesh dimensions, here for all of them",
     [](const StreamOwner& o, const StreamRanges& r) {
       return u(o.run) + (u(o.epoch) * u(r.workers) + u(o.worker)) * u(r.ranks) + u(o.rank);
     },
     true},
    {"keyed", "key(purpose, seed, rank, worker, epoch)", "lockstep",
     [](const StreamOwner& o, const StreamRanges&) { return keyed_seed(kStream, o); }, false},
});

int64_t distinct_of(std::vector<uint64_t> seeds) {
  std::ranges::sort(seeds);
  return std::ranges::unique(seeds).begin() - seeds.begin();
}

}  // namespace

StreamOwner StreamRanges::owner(int64_t index) const {
  StreamOwner owner;
  owner.rank = index % ranks;
  owner.worker = index / ranks % workers;
  owner.epoch = index / (ranks * workers) % epochs;
  owner.run = index / (ranks * workers * epochs);
  return owner;
}

std::span<const SeedFormula> seed_formulas() { return kFormulas; }

const SeedFormula* find_seed_formula(std::string_view name) {
  const auto found = std::ranges::find(kFormulas, name, &SeedFormula::name);
  return found == kFormulas.end() ? nullptr : &*found;
}

uint64_t keyed_seed(uint64_t purpose, const StreamOwner& owner) {
  return keyed(purpose, owner.run, owner.rank, owner.worker, owner.epoch);
}

Collisions scan_seeds(const SeedFormula& formula, const StreamRanges& ranges) {
  Collisions found;
  found.streams = ranges.count();
  std::vector<std::pair<uint64_t, int64_t>> seeds;
  seeds.reserve(static_cast<std::size_t>(found.streams));
  for (int64_t i = 0; i < found.streams; ++i) seeds.emplace_back(formula.seed(ranges.owner(i), ranges), i);
  std::ranges::sort(seeds);
  int64_t earliest = found.streams;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    if (i == 0 || seeds[i].first != seeds[i - 1].first) {
      ++found.distinct;
      continue;
    }
    if (seeds[i].second >= earliest) continue;
    earliest = seeds[i].second;
    found.first = ranges.owner(seeds[i - 1].second);
    found.second = ranges.owner(seeds[i].second);
    found.seed = seeds[i].first;
  }
  std::vector<uint64_t> low;
  low.reserve(seeds.size());
  for (const auto& [seed, index] : seeds) low.push_back(seed & 0xffffffffu);
  found.distinct_low = distinct_of(std::move(low));
  return found;
}

CrossCollisions cross_seeds(const SeedFormula& of_ranks, const SeedFormula& of_epochs,
                            const StreamRanges& ranges) {
  std::unordered_map<uint64_t, StreamOwner> permutations;
  for (int64_t run = 0; run < ranges.runs; ++run) {
    for (int64_t epoch = 0; epoch < ranges.epochs; ++epoch) {
      const StreamOwner owner{.run = run, .epoch = epoch};
      permutations.emplace(of_epochs.seed(owner, ranges), owner);
    }
  }
  CrossCollisions found;
  for (int64_t run = 0; run < ranges.runs; ++run) {
    for (int64_t rank = 1; rank < ranges.ranks; ++rank) {
      const StreamOwner owner{.run = run, .rank = rank};
      ++found.streams;
      const uint64_t seed = of_ranks.seed(owner, ranges);
      const auto at = permutations.find(seed);
      if (at == permutations.end()) continue;
      if (found.shared++ > 0) continue;
      found.stream = owner;
      found.permutation = at->second;
      found.seed = seed;
    }
  }
  return found;
}

std::string in_words(const StreamOwner& owner) {
  return fmt::format("run {}, rank {}, worker {}, epoch {}", owner.run, owner.rank, owner.worker,
                     owner.epoch);
}

}  // namespace lockstep::sharding
