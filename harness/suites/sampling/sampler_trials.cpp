// The sampler: every number of samples and ranks, with and without drop_last and shuffling, over several
// epochs.

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "harness/base/clock.h"
#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/lib/data/sampler.h"
#include "harness/lib/data/sharding/partition.h"
#include "harness/suites/sampling/trials.h"

namespace lockstep::sampling {
namespace {

using sharding::PartitionOptions;
using sharding::Partitions;
using sharding::EpochSpan;
using Shards = std::vector<std::vector<int64_t>>;

/// Up to so many places of orders each rank makes an epoch's order itself, as a trainer's ranks do. Beyond, one order
/// serves all ranks: a sampler's order depends on no rank.
constexpr int64_t kOwnOrders = 1'000'000;

/// What the sampler of the trainers partitions, a rank at a time.
class Partitioner {
 public:
  /// Throws ConfigError if the sampler refuses the case.
  explicit Partitioner(const PartitionOptions& options)
      : own_orders_(options.samples * options.ranks <= kOwnOrders) {
    for (int rank = 0; rank < options.ranks; ++rank) {
      ranks_.emplace_back(SamplerOptions{.samples = options.samples,
                                         .world_size = options.ranks,
                                         .rank = rank,
                                         .seed = options.seed,
                                         .shuffle = options.shuffle,
                                         .drop_last = options.drop_last});
    }
  }

  std::vector<int64_t> rows(int64_t epoch, int rank) {
    const DistributedSampler& sampler = ranks_[static_cast<std::size_t>(rank)];
    if (own_orders_) return sampler.epoch_indices(epoch);
    if (epoch != epoch_) {
      order_ = std::vector<int64_t>();  // Before the next one is made: a long one takes much memory.
      order_ = sampler.epoch_order(epoch);
      epoch_ = epoch;
    }
    return sampler.part_of(order_);
  }

 private:
  bool own_orders_;
  std::vector<DistributedSampler> ranks_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;
};

/// All of it; nothing if the sampler refuses the case.
Partitions partitioned(const PartitionOptions& options, int64_t epochs) {
  Partitions partitions;
  try {
    Partitioner partitioner(options);
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      partitions.emplace_back();
      for (int rank = 0; rank < options.ranks; ++rank) partitions.back().push_back(partitioner.rows(epoch, rank));
    }
  } catch (const ConfigError&) {
    return {};
  }
  return partitions;
}

/// Of a set of rows that fills no rank nothing may be partitioned; every other one must be partitioned as PyTorch does.
sharding::Finding audit(const PartitionOptions& options, int64_t epochs, const Partitions& partitions) {
  const bool empty = sharding::rows_of_a_rank(options) == 0;
  if (partitions.empty() != empty)
    return {empty ? "empty_not_refused" : "refused",
            fmt::format("{} on {}: {}", counted(options.samples, "sample"), counted(options.ranks, "rank"),
                        empty ? "no rank has a row, and the sampler says nothing"
                              : "the sampler refuses what PyTorch partitions")};
  if (empty) return {};
  LOCKSTEP_CHECK(partitions.size() == static_cast<std::size_t>(epochs), "every epoch is partitioned");
  return sharding::audit_partitions(options, partitions);
}

struct SamplerMistake {
  std::string_view name, words;
  std::vector<std::string> expected;
  Partitions (*plant)(const PartitionOptions& options, const Partitions& good);
};

/// One more row a rank, from where the list goes on.
Partitions padded_twice(const PartitionOptions& options, const Partitions& good) {
  Partitions partitions = good;
  for (Shards& shards : partitions) {
    if (options.drop_last) continue;
    for (std::size_t rank = 0; rank < shards.size(); ++rank) shards[rank].push_back(shards[rank][0]);
  }
  return partitions;
}

Partitions own_permutations(const PartitionOptions& options, const Partitions& good) {
  Partitions partitions = good;
  // Few samples may come out whole by chance.
  const bool acts = options.shuffle && options.samples >= 10;
  for (std::size_t epoch = 0; epoch < partitions.size() && acts; ++epoch) {
    for (std::size_t rank = 0; rank < partitions[epoch].size(); ++rank) {
      PartitionOptions own = options;
      own.seed += static_cast<int64_t>(1000 * rank);
      const std::vector<int64_t> list = sharding::torch_list(own, static_cast<int64_t>(epoch));
      for (std::size_t row = 0; row < partitions[epoch][rank].size(); ++row)
        partitions[epoch][rank][row] = list[row * partitions[epoch].size() + rank];
    }
  }
  return partitions;
}

const std::vector<SamplerMistake>& mistakes() {
  static const std::vector<SamplerMistake> kSamplerMistakes{
      {"set_epoch_forgotten",
       "set_epoch is never called",
       {"order_repeats"},
       [](const PartitionOptions&, const Partitions& good) { return Partitions(good.size(), good[0]); }},
      {"padded_twice", "the ranks are filled up a second time", {"padded_twice"}, padded_twice},
      {"drop_last_loses",
       "each rank drops its last row, whether it fills up or not",
       {"samples_lost"},
       [](const PartitionOptions&, const Partitions& good) {
         Partitions partitions = good;
         for (Shards& shards : partitions) {
           for (auto& shard : shards) shard.pop_back();
         }
         return partitions;
       }},
      {"same_shard",
       "every rank takes rank 0's shard",
       {"same_shard"},
       [](const PartitionOptions&, const Partitions& good) {
         Partitions partitions = good;
         for (Shards& shards : partitions) shards.assign(shards.size(), Shards::value_type(shards[0]));
         return partitions;
       }},
      {"one_rank_short",
       "the last rank is not filled up",
       {"unequal_lengths"},
       [](const PartitionOptions& options, const Partitions& good) {
         Partitions partitions = good;
         if (options.ranks < 2 || options.samples % options.ranks == 0 || options.drop_last) return partitions;
         for (Shards& shards : partitions) shards.back().pop_back();
         return partitions;
       }},
      {"own_permutations", "each rank shuffles with a seed of its own", {"shards_overlap"}, own_permutations},
  };
  return kSamplerMistakes;
}

class SamplerTrials final : public Suite {
 public:
  explicit SamplerTrials(const SamplingConfig& config) : config_(config) {}

  std::vector<std::string> plan() const override {
    return {fmt::format(
        "sampler: 0 to {} samples on 1 to {} ranks, drop_last and shuffle on and off, {}: {} cases, and the "
        "job of "
        "{} on {}",
        config_.most_samples, config_.most_ranks, counted(config_.epochs, "epoch"), with_commas(count()),
        counted(config_.samples, "sample"), counted(config_.ranks, "rank"))};
  }

  std::vector<Trial> trials(const SuiteRun&) override {
    std::vector<Trial> all;
    constexpr int64_t kBlock = 32;
    for (const bool drop_last : {false, true}) {
      for (const bool shuffle : {false, true}) {
        for (int64_t first = 0; first <= config_.most_samples; first += kBlock)
          all.push_back(block(drop_last, shuffle, first, std::min(first + kBlock - 1, config_.most_samples)));
      }
    }
    all.push_back(evaluations());
    for (EpochSpan part{0, job_epochs()}; part.first < config_.epochs; part.first += part.count)
      all.push_back(job({part.first, std::min(part.count, config_.epochs - part.first)}));
    if (config_.planted) {
      for (const SamplerMistake& mistake : mistakes())
        all.push_back(planted_trial(mistake.name, mistake.words, "sampler", 0.2, mistake.expected,
                                    [this, &mistake](MutationCheck& check) { plant(mistake, check); }));
      all.push_back(planted_trial("padding_counted", "an evaluation counts what fills the ranks up",
                                  "sampler", 0.1, {"padding_counted"},
                                  [this](MutationCheck& check) { plant_counted(check); }));
    }
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    return {{"cases of samples, ranks, drop_last, shuffle and epoch, partitioned as PyTorch partitions",
             with_commas(m.count("cases"))},
            {"seconds of these, over all slots",
             fmt::format("{:.2f}", 1e-6 * static_cast<double>(m.count("microseconds")))}};
  }

 private:
  int64_t count() const { return (config_.most_samples + 1) * config_.most_ranks * 4 * config_.epochs; }
  PartitionOptions options(int64_t samples, int64_t ranks, bool drop_last, bool shuffle) const {
    return {samples, static_cast<int>(ranks), drop_last, shuffle, config_.seed};
  }

  void audit_case(const PartitionOptions& options, Cases& cases) {
    const Partitions partitions = partitioned(options, config_.epochs);
    if (const sharding::Finding finding = audit(options, config_.epochs, partitions))
      return cases.fault(finding.code, finding.sentence);
    cases.good(partitions.empty() ? "refused" : kAsItMust, config_.epochs);
    measured().add("cases", config_.epochs);
  }

  Trial block(bool drop_last, bool shuffle, int64_t first, int64_t last) {
    Trial planned;
    planned = {
        fmt::format("sampler:{}-{}:{}-{}", drop_last ? "drop" : "pad", shuffle ? "shuffled" : "in_order",
                    first, last),
        "sampler",
        fmt::format("{}, {}", drop_last ? "drop_last" : "padded", shuffle ? "shuffled" : "in order"), 0.05};
    planned.run = [this, drop_last, shuffle, first, last](Slot&) {
      const double begun_s = monotonic_s();
      Cases cases;
      for (int64_t samples = first; samples <= last; ++samples) {
        for (int64_t ranks = 1; ranks <= config_.most_ranks; ++ranks)
          audit_case(options(samples, ranks, drop_last, shuffle), cases);
      }
      measured().add("microseconds", static_cast<int64_t>(1e6 * (monotonic_s() - begun_s)));
      return cases.take();
    };
    return planned;
  }

  /// An evaluation that counts the rows that count_rows says counts every sample once.
  Trial evaluations() {
    Trial planned;
    planned = {"evaluation", "evaluation", "padded and dropped", 0.1};
    planned.run = [this](Slot&) {
      Cases cases;
      for (int64_t samples = 1; samples <= config_.most_samples; ++samples) {
        for (int64_t ranks = 1; ranks <= config_.most_ranks; ++ranks) {
          for (const bool drop_last : {false, true}) {
            const PartitionOptions each = options(samples, ranks, drop_last, false);
            std::vector<int64_t> rows;
            for (int rank = 0; rank < ranks; ++rank) rows.push_back(sharding::counted_rows(each, rank));
            judge_finding(cases, sharding::audit_evaluation(each, sharding::torch_partition(each, 0), rows), "evaluation");
          }
        }
      }
      return cases.take();
    };
    return planned;
  }

  /// Epochs of one's own job that one trial looks at: so many that the slots share long ones.
  int64_t job_epochs() const {
    constexpr int64_t kMostPlaces = 500'000'000;
    return std::clamp<int64_t>(kMostPlaces / config_.samples, 1, config_.epochs);
  }

  Trial job(EpochSpan epochs) {
    Trial planned;
    planned = {"job:sampler", "one's own job", "sampler",
                     0.05 + 1e-7 * static_cast<double>(config_.samples * epochs.count)};
    if (epochs.count < config_.epochs)
      planned.name += fmt::format(":{}-{}", epochs.first, epochs.first + epochs.count - 1);
    planned.run = [this, epochs](Slot&) {
      Cases cases;
      for (const bool shuffle : {false, true}) {
        const PartitionOptions own = options(config_.samples, config_.ranks, config_.drop_last, shuffle);
        Partitioner partitioner(own);  // Never refuses it: a config has a sample for each rank.
        std::vector<int64_t> rows;
        const auto rows_of = [&](int64_t epoch, int rank) {
          rows = partitioner.rows(epoch, rank);
          return std::span<const int64_t>(rows);
        };
        judge_finding(cases, sharding::audit_partitions(own, epochs, rows_of), "one's own job");
      }
      return cases.take();
    };
    return planned;
  }

  template <class Each>
  void for_some(Each each) const {
    std::vector<int64_t> some;
    for (int64_t samples = 1; samples <= std::min<int64_t>(40, config_.most_samples); ++samples)
      some.push_back(samples);
    if (config_.most_samples > 40) some.push_back(config_.most_samples);
    const auto in_all_ways = [&](int64_t samples, int64_t ranks) {
      for (const bool drop_last : {false, true}) {
        for (const bool shuffle : {false, true}) each(options(samples, ranks, drop_last, shuffle));
      }
    };
    for (const int64_t samples : some) {
      for (int64_t ranks = 1; ranks <= config_.most_ranks; ++ranks) in_all_ways(samples, ranks);
    }
    // A few rows for each rank of one's own job, and a remainder.
    if (config_.has_many_ranks())
      in_all_ways(std::min(config_.samples, 3 * config_.ranks - 1), config_.ranks);
  }

  /// With as many ranks as one's own job may have, three are enough to see a mistake.
  int64_t epochs_of(const PartitionOptions& options) const {
    return options.ranks > kMostOfEach ? std::min<int64_t>(config_.epochs, 3) : config_.epochs;
  }

  void plant(const SamplerMistake& mistake, MutationCheck& check) const {
    for_some([&](const PartitionOptions& options) {
      const Partitions good = partitioned(options, epochs_of(options));
      if (good.empty()) return;
      const Partitions wrong = mistake.plant(options, good);
      if (wrong == good) return;
      const sharding::Finding finding = sharding::audit_partitions(options, wrong);
      check.saw(finding.code, finding.sentence);
    });
  }

  void plant_counted(MutationCheck& check) const {
    for_some([&](const PartitionOptions& options) {
      if (options.drop_last || options.samples % options.ranks == 0) return;
      const Shards shards = sharding::torch_partition(options, 0);
      std::vector<int64_t> rows;
      for (const auto& shard : shards) rows.push_back(static_cast<int64_t>(shard.size()));
      const sharding::Finding finding = sharding::audit_evaluation(options, shards, rows);
      check.saw(finding.code, finding.sentence);
    });
  }

  const SamplingConfig config_;
};

}  // namespace

std::unique_ptr<Suite> make_sampler_trials(const SamplingConfig& config) {
  return std::make_unique<SamplerTrials>(config);
}

}  // namespace lockstep::sampling
