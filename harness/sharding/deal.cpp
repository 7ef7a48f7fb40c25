#include "harness/sharding/deal.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/data/sampler.h"

namespace lockstep::sharding {
namespace {

using Shards = std::vector<std::vector<int64_t>>;

int64_t rows_of_a_rank(const DealOptions& options) {
  const int64_t ranks = options.ranks;
  return options.drop_last ? options.samples / ranks : (options.samples + ranks - 1) / ranks;
}

std::string case_words(const DealOptions& options) {
  return fmt::format("{} on {}, drop_last={}, shuffle={}", counted(options.samples, "sample"),
                     counted(options.ranks, "rank"), options.drop_last, options.shuffle);
}

Finding lengths(const DealOptions& options, int64_t epoch, const Shards& shards) {
  for (std::size_t rank = 1; rank < shards.size(); ++rank) {
    if (shards[rank].size() == shards[0].size()) continue;
    return {"unequal_lengths",
            fmt::format("{}: in epoch {} rank 0 has {} and rank {} has {}; the ranks with more rows wait for "
                        "the others at a "
                        "collective",
                        case_words(options), epoch, counted(static_cast<int64_t>(shards[0].size()), "row"),
                        rank, shards[rank].size())};
  }
  return {};
}

Finding same_shard(const DealOptions& options, int64_t epoch, const Shards& shards) {
  if (options.samples < 2 || options.ranks < 2 || shards[0].empty()) return {};
  const bool same = std::ranges::all_of(shards, [&](const auto& shard) { return shard == shards[0]; });
  if (!same) return {};
  return {"same_shard", fmt::format("{}: in epoch {} every rank reads the rows of rank 0, from sample {} on",
                                    case_words(options), epoch, shards[0][0])};
}

/// How often each sample is read, held against what the rule allows.
Finding coverage(const DealOptions& options, int64_t epoch, const Shards& shards) {
  std::vector<int64_t> times(static_cast<std::size_t>(options.samples));
  int64_t rows = 0;
  for (const auto& shard : shards) {
    for (const int64_t id : shard) {
      if (id < 0 || id >= options.samples)
        return {"other_order", fmt::format("{}: epoch {} reads sample {}, which does not exist",
                                           case_words(options), epoch, id)};
      ++times[static_cast<std::size_t>(id)];
      ++rows;
    }
  }
  const int64_t all_rows = rows_of_a_rank(options) * options.ranks;
  const int64_t never = std::ranges::count(times, 0);
  if (rows > all_rows && never == 0)
    return {"padded_twice",
            fmt::format("{}: in epoch {} the ranks read {}, {} more than fill them up equally",
                        case_words(options), epoch, counted(rows, "row"), rows - all_rows)};
  const int64_t most_times =
      options.drop_last || options.samples == 0 ? 1 : (all_rows + options.samples - 1) / options.samples;
  const auto often = std::ranges::find_if(times, [&](int64_t count) { return count > most_times; });
  const int64_t may_be_left = options.drop_last ? options.samples - all_rows : 0;
  if (never <= may_be_left && often == times.end()) return {};
  if (often != times.end() || rows == all_rows)
    return {"shards_overlap",
            fmt::format("{}: in epoch {} {} read by nobody, and others more often than the padding explains",
                        case_words(options), epoch,
                        never == 1 ? "1 sample is" : fmt::format("{} samples are", never))};
  return {"samples_lost",
          fmt::format("{}: in epoch {} {} read by nobody, {} may be", case_words(options), epoch,
                      never == 1 ? "1 sample is" : fmt::format("{} samples are", never), may_be_left)};
}

}  // namespace

std::vector<int64_t> torch_list(const DealOptions& options, int64_t epoch) {
  LOCKSTEP_CHECK(options.samples >= 0 && options.ranks >= 1,
                 "there are no fewer than 0 samples, and at least one rank");
  std::vector<int64_t> indices;
  if (options.shuffle) {
    indices =
        torch_randperm(options.samples, static_cast<uint64_t>(options.seed) + static_cast<uint64_t>(epoch));
  } else {
    indices.resize(static_cast<std::size_t>(options.samples));
    std::iota(indices.begin(), indices.end(), int64_t{0});
  }
  const auto total = static_cast<std::size_t>(rows_of_a_rank(options) * options.ranks);
  const std::size_t samples = indices.size();
  // indices += (indices * ceil(padding / len))[:padding]; with drop_last indices[:total].
  for (std::size_t place = samples; place < total; ++place) indices.push_back(indices[place - samples]);
  indices.resize(total);
  return indices;
}

std::vector<std::vector<int64_t>> torch_deal(const DealOptions& options, int64_t epoch) {
  const std::vector<int64_t> list = torch_list(options, epoch);
  Shards shards(static_cast<std::size_t>(options.ranks));
  for (std::size_t place = 0; place < list.size(); ++place)
    shards[place % shards.size()].push_back(list[place]);
  return shards;
}

int64_t counted_rows(const DealOptions& options, int rank) {
  const int64_t whole = options.samples / options.ranks;
  if (options.drop_last) return whole;
  return whole + (rank < options.samples % options.ranks ? 1 : 0);
}

Finding audit_deals(const DealOptions& options, const Deals& deals) {
  for (std::size_t epoch = 0; epoch < deals.size(); ++epoch) {
    const auto number = static_cast<int64_t>(epoch);
    LOCKSTEP_CHECK(deals[epoch].size() == static_cast<std::size_t>(options.ranks), "every rank has a list");
    for (const auto& audit : {lengths, same_shard, coverage}) {
      if (Finding finding = audit(options, number, deals[epoch])) return finding;
    }
  }
  std::vector<Shards> expected;
  for (std::size_t epoch = 0; epoch < deals.size(); ++epoch) {
    expected.push_back(torch_deal(options, static_cast<int64_t>(epoch)));
    if (epoch > 0 && deals[epoch] == deals[0] && expected[epoch] != expected[0])
      return {"order_repeats",
              fmt::format("{}: epoch {} has the order of epoch 0, as if set_epoch had not been called",
                          case_words(options), epoch)};
    if (deals[epoch] == expected[epoch]) continue;
    for (std::size_t rank = 0; rank < deals[epoch].size(); ++rank) {
      if (deals[epoch][rank] == expected[epoch][rank]) continue;
      return {"other_order",
              fmt::format("{}: in epoch {} rank {} has another order than PyTorch's sampler gives it",
                          case_words(options), epoch, rank)};
    }
  }
  return {};
}

Finding audit_evaluation(const DealOptions& options, const std::vector<std::vector<int64_t>>& deal,
                         const std::vector<int64_t>& counted) {
  std::vector<int64_t> times(static_cast<std::size_t>(options.samples));
  for (std::size_t rank = 0; rank < deal.size(); ++rank) {
    for (std::size_t row = 0; row < static_cast<std::size_t>(counted[rank]) && row < deal[rank].size(); ++row)
      ++times[static_cast<std::size_t>(deal[rank][row])];
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
