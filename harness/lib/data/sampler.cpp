#include "harness/lib/data/sampler.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>

#include "harness/base/text.h"

namespace lockstep {
namespace {

int64_t ceil_div(int64_t numerator, int64_t denominator) {
  return (numerator + denominator - 1) / denominator;
}

/// torch.Generator draws: std::mt19937 is fixed by the C++ standard and seeds as ATen's engine does, from 32
/// bits.
class TorchGenerator {
 public:
  explicit TorchGenerator(uint64_t seed) : engine_(static_cast<uint32_t>(seed & 0xffffffffu)) {}
  uint32_t random() { return static_cast<uint32_t>(engine_()); }
  uint64_t random64() {
    const uint64_t high = random();
    return (high << 32) | random();
  }

 private:
  std::mt19937 engine_;
};

std::vector<int64_t> ids_in_order(int64_t n) {
  LOCKSTEP_CHECK(n >= 0, "there are no fewer than 0 ids");
  std::vector<int64_t> ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), int64_t{0});
  return ids;
}

}  // namespace

std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed) {
  std::vector<int64_t> permutation = ids_in_order(n);
  TorchGenerator generator(seed);
  // ATen takes one 32-bit draw a place while the modulus leaves little bias, two above that length.
  const bool wide = n >= static_cast<int64_t>(std::numeric_limits<uint32_t>::max() / 20);
  for (int64_t place = 0; place + 1 < n; ++place) {
    const uint64_t offset = (wide ? generator.random64() : generator.random()) % static_cast<uint64_t>(n - place);
    std::swap(permutation[static_cast<std::size_t>(place)],
              permutation[static_cast<std::size_t>(place) + static_cast<std::size_t>(offset)]);
  }
  return permutation;
}

DistributedSampler::DistributedSampler(const SamplerOptions& options)
    : block_(options.block), options_(options) {
  LOCKSTEP_CHECK(block_ >= 1 && options_.rows_per_rank % block_ == 0, "a rank's rows are whole blocks");
  options_.samples /= block_;
  options_.rows_per_rank /= block_;
  LOCKSTEP_CHECK(options_.world_size >= 1 && options_.rank >= 0 && options_.rank < options_.world_size,
                 "a rank lies in [0, world_size)");
  LOCKSTEP_CHECK(options_.rows_per_rank >= 1, "a batch has at least one row");
  if (options_.samples < 1 || batches_per_epoch() < 1) {
    throw ConfigError("the sampler has " + std::to_string(options.samples) +
                      " samples, which give no whole batch for " + std::to_string(options.world_size) +
                      " ranks of " + std::to_string(options.rows_per_rank) +
                      " rows; use more series, a smaller data.stride or a smaller layout");
  }
}

int64_t DistributedSampler::rows_per_epoch() const {
  return block_ * (options_.drop_last ? options_.samples / options_.world_size
                                      : ceil_div(options_.samples, options_.world_size));
}

int64_t DistributedSampler::batches_per_epoch() const {
  const int64_t rows_per_batch = int64_t{options_.rows_per_rank} * block_;
  return options_.drop_last ? rows_per_epoch() / rows_per_batch : ceil_div(rows_per_epoch(), rows_per_batch);
}

std::vector<int64_t> DistributedSampler::epoch_indices(int64_t epoch) const {
  // Unsigned, so that the sum wraps: PyTorch's generator sees only the low 32 bits of it.
  const uint64_t seed = static_cast<uint64_t>(options_.seed) + static_cast<uint64_t>(epoch);
  const std::vector<int64_t> order =
      options_.shuffle ? torch_randperm(options_.samples, seed) : ids_in_order(options_.samples);
  std::vector<int64_t> mine(static_cast<std::size_t>(rows_per_epoch() / block_));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const std::size_t position =
        i * static_cast<std::size_t>(options_.world_size) + static_cast<std::size_t>(options_.rank);
    // Past the end (without drop_last) the list starts over, as often as it takes.
    mine[i] = order[position < order.size() ? position : position % order.size()];
  }
  return expanded(mine);
}

std::vector<int64_t> DistributedSampler::expanded(const std::vector<int64_t>& units) const {
  if (block_ == 1) {
    return units;
  }
  std::vector<int64_t> ids;
  for (const int64_t unit : units) {
    for (int64_t k = 0; k < block_; ++k) {
      ids.push_back(unit * block_ + k);
    }
  }
  return ids;
}

std::vector<int64_t> DistributedSampler::batch(int64_t step) {
  LOCKSTEP_CHECK(step >= 0, "steps count from 0");
  const int64_t batches = batches_per_epoch();
  const int64_t epoch = step / batches;
  if (epoch != cached_epoch_) {
    cached_ = epoch_indices(epoch);
    cached_epoch_ = epoch;
  }
  const int64_t rows_per_batch = int64_t{options_.rows_per_rank} * block_;
  const int64_t first = (step % batches) * rows_per_batch;
  const int64_t last = std::min(first + rows_per_batch, static_cast<int64_t>(cached_.size()));
  return {cached_.begin() + first, cached_.begin() + last};
}

std::vector<int> owners_of_rows(int64_t rows, int world_size, RowPartition partition, int block) {
  if (block > 1) {
    std::vector<int> owner;
    for (const int rank : owners_of_rows(ceil_div(rows, block), world_size, partition)) {
      owner.insert(owner.end(), static_cast<std::size_t>(block), rank);
    }
    owner.resize(static_cast<std::size_t>(rows));
    return owner;
  }
  const auto world = static_cast<std::size_t>(world_size);
  std::vector<int64_t> left(world, ceil_div(rows, world_size));
  if (partition == RowPartition::unequal && world_size > 1) {
    const int64_t half = std::max<int64_t>(1, rows / world_size / 2);
    left.front() = std::max<int64_t>(0, rows / world_size - half);
    left.back() += half;
  } else if (partition == RowPartition::one_empty && world_size > 1) {
    left.assign(world, ceil_div(rows, world_size - 1));
    left.back() = 0;
  }
  std::vector<int> owner;
  for (std::size_t rank = 0; static_cast<int64_t>(owner.size()) < rows; rank = (rank + 1) % world) {
    if (left[rank] > 0) {
      --left[rank];
      owner.push_back(static_cast<int>(rank));
    }
  }
  return owner;
}

}  // namespace lockstep
