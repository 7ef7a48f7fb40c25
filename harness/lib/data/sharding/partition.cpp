#include "harness/lib/data/sharding/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/lib/data/sampler.h"

namespace lockstep::sharding {
namespace {

using Shards = std::vector<std::vector<int64_t>>;

std::string case_words(const PartitionOptions& options) {
  return fmt::format("{} on {}, drop_last={}, shuffle={}", counted(options.samples, "sample"),
                     counted(options.ranks, "rank"), options.drop_last, options.shuffle);
}

/// PyTorch's order of an epoch, before the ranks are filled up.
class TorchOrder {
 public:
  TorchOrder(const PartitionOptions& options, int64_t epoch) : samples_(static_cast<std::size_t>(options.samples)) {
    if (options.shuffle)
      permutation_ = torch_randperm(options.samples,
                                    static_cast<uint64_t>(options.seed) + static_cast<uint64_t>(epoch));
  }
  /// Of a place behind the last one: what fills the ranks up, from the head on.
  int64_t operator[](std::size_t place) const {
    if (place >= samples_) place %= samples_;
    return permutation_.empty() ? static_cast<int64_t>(place) : permutation_[place];
  }

 private:
  std::size_t samples_;
  std::vector<int64_t> permutation_;  ///< empty: samples are read as they are numbered
};

/// One epoch, of which the ranks come one after the other. Ranks that have what PyTorch gives them read places of their
/// own of a permutation, as often as they must: only from the first other one on is anything counted.
class EpochAudit {
 public:
  EpochAudit(const PartitionOptions& options, int64_t epoch)
      : options_(options),
        epoch_(epoch),
        rows_expected_(static_cast<std::size_t>(rows_of_a_rank(options))),
        order_(options, epoch) {}

  void rank(int rank, std::span<const int64_t> rows) {
    if (other_rank_ < 0) {
      if (has(rank, rows, order_)) return;
      other_rank_ = rank;
      times_.resize(static_cast<std::size_t>(options_.samples));
      if (epoch_ > 0) first_order_.emplace(options_, 0);
      for (int before = 0; before < rank; ++before) note(before, expected(before));
    }
    note(rank, rows);
  }

  /// After all ranks: everything but the order.
  Finding rows_finding() const {
    if (other_rank_ < 0) return {};
    if (lengths_) return lengths_;
    if (same_shard_ && options_.samples >= 2 && options_.ranks >= 2 && !of_rank_0_.empty())
      return {"same_shard",
              fmt::format("{}: in epoch {} every rank reads the rows of rank 0, from sample {} on",
                          case_words(options_), epoch_, of_rank_0_[0])};
    return coverage();
  }

  Finding order_finding() const {
    if (other_rank_ < 0) return {};
    if (first_order_ && repeats_first_)
      return {"order_repeats",
              fmt::format("{}: epoch {} has the order of epoch 0, as if set_epoch had not been called",
                          case_words(options_), epoch_)};
    return {"other_order",
            fmt::format("{}: in epoch {} rank {} has another order than PyTorch's sampler gives it",
                        case_words(options_), epoch_, other_rank_)};
  }

 private:
  static constexpr uint16_t kMostTimes = 0xffff;  // and more

  std::size_t place_of(int rank, std::size_t row) const {
    return row * static_cast<std::size_t>(options_.ranks) + static_cast<std::size_t>(rank);
  }

  /// Does the rank have what an order gives it?
  bool has(int rank, std::span<const int64_t> rows, const TorchOrder& order) const {
    if (rows.size() != rows_expected_) return false;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (rows[row] != order[place_of(rank, row)]) return false;
    }
    return true;
  }

  std::vector<int64_t> expected(int rank) const {
    std::vector<int64_t> rows(rows_expected_);
    for (std::size_t row = 0; row < rows.size(); ++row) rows[row] = order_[place_of(rank, row)];
    return rows;
  }

  void note(int rank, std::span<const int64_t> rows) {
    if (rank == 0) of_rank_0_.assign(rows.begin(), rows.end());
    if (rows.size() != of_rank_0_.size() && !lengths_)
      lengths_ = {
          "unequal_lengths",
          fmt::format("{}: in epoch {} rank 0 has {} and rank {} has {}; the ranks with more rows wait for "
                      "the others at a "
                      "collective",
                      case_words(options_), epoch_, counted(static_cast<int64_t>(of_rank_0_.size()), "row"),
                      rank, rows.size())};
    same_shard_ = same_shard_ && std::ranges::equal(rows, of_rank_0_);
    repeats_first_ = repeats_first_ && first_order_ && has(rank, rows, *first_order_);
    rows_ += static_cast<int64_t>(rows.size());
    for (const int64_t id : rows) {
      if (id < 0 || id >= options_.samples) {
        if (!no_sample_)
          no_sample_ = {"other_order", fmt::format("{}: epoch {} reads sample {}, which does not exist",
                                                   case_words(options_), epoch_, id)};
        continue;
      }
      uint16_t& times = times_[static_cast<std::size_t>(id)];
      if (times < kMostTimes) ++times;
    }
  }

  /// How often each sample is read, compared with what the rule allows.
  Finding coverage() const {
    if (no_sample_) return no_sample_;
    const int64_t all_rows = static_cast<int64_t>(rows_expected_) * options_.ranks;
    const int64_t never = std::ranges::count(times_, 0);
    if (rows_ > all_rows && never == 0)
      return {"padded_twice",
              fmt::format("{}: in epoch {} the ranks read {}, {} more than fill them up equally",
                          case_words(options_), epoch_, counted(rows_, "row"), rows_ - all_rows)};
    const int64_t most_times = options_.drop_last || options_.samples == 0
                                   ? 1
                                   : (all_rows + options_.samples - 1) / options_.samples;
    const bool often = std::ranges::any_of(times_, [&](int64_t times) { return times > most_times; });
    const int64_t may_be_left = options_.drop_last ? options_.samples - all_rows : 0;
    if (never <= may_be_left && !often) return {};
    const std::string left = never == 1 ? "1 sample is" : fmt::format("{} samples are", never);
    if (often || rows_ == all_rows)
      return {"shards_overlap",
              fmt::format(
                  "{}: in epoch {} {} read by nobody, and others more often than the padding explains",
                  case_words(options_), epoch_, left)};
    return {"samples_lost", fmt::format("{}: in epoch {} {} read by nobody, {} may be", case_words(options_),
                                        epoch_, left, may_be_left)};
  }

  const PartitionOptions& options_;
  int64_t epoch_;
  std::size_t rows_expected_;
  TorchOrder order_;
  int other_rank_ = -1;  ///< the first one that has not what PyTorch gives it; all below is known from it on
  std::optional<TorchOrder> first_order_;  ///< of epoch 0
  bool same_shard_ = true, repeats_first_ = true;  ///< so far
  std::vector<int64_t> of_rank_0_;
  std::vector<uint16_t> times_;  ///< that each sample is read
  int64_t rows_ = 0;
  Finding lengths_, no_sample_;
};

}  // namespace

int64_t rows_of_a_rank(const PartitionOptions& options) {
  const int64_t ranks = options.ranks;
  return options.drop_last ? options.samples / ranks : (options.samples + ranks - 1) / ranks;
}

std::vector<int64_t> torch_list(const PartitionOptions& options, int64_t epoch) {
  LOCKSTEP_CHECK(options.samples >= 0 && options.ranks >= 1,
                 "there are no fewer than 0 samples, and at least one rank");
  const TorchOrder order(options, epoch);
  // indices += (indices * ceil(padding / len))[:padding]; with drop_last indices[:total].
  std::vector<int64_t> indices(static_cast<std::size_t>(rows_of_a_rank(options) * options.ranks));
  for (std::size_t place = 0; place < indices.size(); ++place) indices[place] = order[place];
  return indices;
}
std::vector<std::vector<int64_t>> torch_partition(const PartitionOptions& options, int64_t epoch) {
  const std::vector<int64_t> list = torch_list(options, epoch);
  Shards shards(static_cast<std::size_t>(options.ranks));
  for (std::size_t place = 0; place < list.size(); ++place)
    shards[place % shards.size()].push_back(list[place]);
  return shards;
}

int64_t counted_rows(const PartitionOptions& options, int rank) {
  const int64_t whole = options.samples / options.ranks;
  if (options.drop_last) return whole;
  return whole + (rank < options.samples % options.ranks ? 1 : 0);
}

Finding audit_partitions(const PartitionOptions& options, const Partitions& partitions) {
  return audit_partitions(options, {0, static_cast<int64_t>(partitions.size())}, [&](int64_t epoch, int rank) {
    const Shards& shards = partitions[static_cast<std::size_t>(epoch)];
    LOCKSTEP_CHECK(shards.size() == static_cast<std::size_t>(options.ranks), "every rank has a list");
    return std::span(shards[static_cast<std::size_t>(rank)]);
  });
}

Finding audit_partitions(const PartitionOptions& options, const EpochSpan& epochs, const PartitionedRows& rows_of) {
  Finding order;
  for (int64_t epoch = epochs.first; epoch < epochs.first + epochs.count; ++epoch) {
    EpochAudit audit(options, epoch);
    for (int rank = 0; rank < options.ranks; ++rank) audit.rank(rank, rows_of(epoch, rank));
    if (Finding finding = audit.rows_finding()) return finding;
    if (!order) order = audit.order_finding();
  }
  return order;
}

Finding audit_evaluation(const PartitionOptions& options, const std::vector<std::vector<int64_t>>& partition,
                         const std::vector<int64_t>& counted) {
  std::vector<int64_t> times(static_cast<std::size_t>(options.samples));
  for (std::size_t rank = 0; rank < partition.size(); ++rank) {
    for (std::size_t row = 0; row < static_cast<std::size_t>(counted[rank]) && row < partition[rank].size(); ++row)
      ++times[static_cast<std::size_t>(partition[rank][row])];
  }
  for (std::size_t id = 0; id < times.size(); ++id) {
    if (times[id] > 1)
      return {"padding_counted",
              fmt::format("{}: the evaluation counts sample {} {} times: what fills the ranks up is counted "
                          "as if it were new",
                          case_words(options), id, times[id])};
  }
  const int64_t never = std::ranges::count(times, 0);
  const int64_t may_be_left = options.drop_last ? options.samples % options.ranks : 0;
  if (never > may_be_left)
    return {"samples_lost", fmt::format("{}: the evaluation leaves out {}", case_words(options),
                                        lockstep::counted(never, "sample"))};
  return {};
}

}  // namespace lockstep::sharding
