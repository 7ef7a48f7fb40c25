#pragma once
// PyTorch's DistributedSampler and DataLoader, by their exact rule.

#include <cstdint>
#include <vector>

#include "harness/plan/config/run_config.h"

namespace lockstep {

struct SamplerOptions {
  int64_t samples = 0;
  int world_size = 1;
  int rank = 0;
  int rows_per_rank = 1;
  int64_t seed = 0;
  bool shuffle = true;
  bool drop_last =
      true;  ///< of the sampler (shorten to a multiple of the world) and the loader (whole batches)
  int block =
      1;  ///< this many neighbouring ids stay together on one rank; samples that fill no block are left out
};

/// torch.randperm(n, generator=torch.Generator().manual_seed(seed)), bit for bit.
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed);

/// Rank r of V takes permutation[r], [r + V], …; without drop_last the permutation's head is repeated to fill
/// up. With drop_last the ranks' rows of a step together are the rows of one process with batch V * B: row i
/// of that batch is row i / V of rank i mod V. Without drop_last that holds for every step but the last one
/// of an epoch, where V ranks share what is left of the padded list and one process has what is left of the
/// list itself. With blocks, all of this holds for blocks instead of rows, and each block gives its ids in
/// order.
class DistributedSampler {
 public:
  /// Throws ConfigError if an epoch has no batch.
  explicit DistributedSampler(const SamplerOptions& options);
  int64_t batches_per_epoch() const;
  /// Length of this rank's list of an epoch, before batches are cut from it; equal on all ranks.
  int64_t rows_per_epoch() const;
  /// Sample ids of this rank's rows at a global step (epoch = step / batches_per_epoch; set_epoch is called).
  /// rows_per_rank of them; without drop_last the last batch of an epoch has the rest, at least one, on every
  /// rank alike.
  std::vector<int64_t> batch(int64_t step);
  /// This rank's whole list of an epoch.
  std::vector<int64_t> epoch_indices(int64_t epoch) const;

 private:
  std::vector<int64_t> expanded(const std::vector<int64_t>& units) const;

  int block_ = 1;
  SamplerOptions options_;  ///< in units of blocks
  int64_t cached_epoch_ = -1;
  std::vector<int64_t> cached_;
};

/// Which of `world_size` ranks each row of a step's whole batch goes to. Equal: row i to rank i mod V.
/// Unequal: rank 0 gets half a share less than B and the last rank half a share more. One empty: the last
/// rank gets none, the others share its rows. Rows of one block (`block` neighbours) go together.
std::vector<int> owners_of_rows(int64_t rows, int world_size, RowPartition partition, int block = 1);

}  // namespace lockstep
