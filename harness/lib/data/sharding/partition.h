#pragma once
// How an epoch's samples are partitioned to ranks: PyTorch's rule, and an audit of what any sampler partitioned.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "harness/lib/data/sharding/finding.h"

namespace lockstep::sharding {

struct PartitionOptions {
  int64_t samples = 0;
  int ranks = 1;
  bool drop_last = false;
  bool shuffle = true;
  int64_t seed = 0;
};

/// Sample ids by [epoch][rank], in the order in which the rank reads them. Epochs count from 0.
using Partitions = std::vector<std::vector<std::vector<int64_t>>>;

/// Rows of each rank in an epoch.
int64_t rows_of_a_rank(const PartitionOptions& options);

/// The whole list of an epoch before ranks take their parts, as torch.utils.data.DistributedSampler makes it
/// (PyTorch 2.13,
/// `__iter__`): the permutation of seed + epoch, its head repeated until the ranks have equally many
/// (drop_last: its tail cut). Empty where PyTorch gives no rank a row: no samples, or with drop_last fewer
/// than ranks.
std::vector<int64_t> torch_list(const PartitionOptions& options, int64_t epoch);
/// Every rank's part of it: rank r takes places r, r + ranks, …
std::vector<std::vector<int64_t>> torch_partition(const PartitionOptions& options, int64_t epoch);

/// Rows of a rank that count in an exact evaluation: from the first one on; those behind repeat the list's
/// head.
int64_t counted_rows(const PartitionOptions& options, int rank);

/// Is every sample partitioned as often as it must be, to ranks that have equally many, in an order that changes
/// from epoch to epoch, and as PyTorch partitions it? The first of these that is found:
///
///   unequal_lengths   ranks have different numbers of rows
///   same_shard        every rank has the rows of rank 0
///   padded_twice      each rank has more rows than the padding explains
///   samples_lost      a sample is read by nobody (drop_last: more than the remainder)
///   shards_overlap    a sample is read more often than the padding explains
///   order_repeats     a later epoch has the first one's order: set_epoch was not called
///   other_order       all of that is right, and the order is not PyTorch's
Finding audit_partitions(const PartitionOptions& options, const Partitions& partitions);

/// What a rank reads in an epoch; asked once for each, the ranks of an epoch in order, and valid until the next one.
using PartitionedRows = std::function<std::span<const int64_t>(int64_t epoch, int rank)>;
struct EpochSpan {
  int64_t first = 0, count = 0;
};
/// The same of partitions that are too large to be held: 8 bytes a sample if all is well and 18 if not, however many epochs
/// and ranks. A later epoch is compared with the order that epoch 0 must have.
Finding audit_partitions(const PartitionOptions& options, const EpochSpan& epochs, const PartitionedRows& rows_of);

/// Of an evaluation: `counted` by [rank], how many of the rank's rows count, from its first one. Each sample
/// must count once: padding_counted, samples_lost.
Finding audit_evaluation(const PartitionOptions& options, const std::vector<std::vector<int64_t>>& partition,
                         const std::vector<int64_t>& counted);

}  // namespace lockstep::sharding
