#include "harness/lib/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

uint64_t fnv(const std::vector<int64_t>& values) {
  uint64_t state = 0xcbf29ce484222325u;
  for (const int64_t value : values) {
    for (int shift = 0; shift < 64; shift += 8) {
      state = (state ^ ((static_cast<uint64_t>(value) >> shift) & 0xffu)) * 0x100000001b3u;
    }
  }
  return state;
}

/// Lines of what PyTorch answered, as make_sampler_golden.py wrote them.
std::vector<std::istringstream> golden(const std::string& kind) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/harness/lib/data/sampler_golden.txt");
  std::vector<std::istringstream> cases;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(kind + " ", 0) == 0) cases.emplace_back(line.substr(kind.size() + 1));
  }
  return cases;
}

std::vector<int64_t> global_batch(std::vector<DistributedSampler>& ranks, int64_t step) {
  std::vector<std::vector<int64_t>> batches;
  for (DistributedSampler& rank : ranks) batches.push_back(rank.batch(step));
  std::vector<int64_t> rows;
  for (std::size_t i = 0; i < batches[0].size() * batches.size(); ++i) {
    rows.push_back(batches[i % batches.size()].at(i / batches.size()));
  }
  return rows;
}

std::vector<DistributedSampler> all_ranks(SamplerOptions options) {
  std::vector<DistributedSampler> ranks;
  for (options.rank = 0; options.rank < options.world_size; ++options.rank) ranks.emplace_back(options);
  return ranks;
}

TEST(TorchRandperm, GivesTheBitsOfPyTorch) {
  auto cases = golden("randperm");
  ASSERT_GE(cases.size(), 100u);
  for (std::istringstream& line : cases) {
    int64_t n = 0, seed = 0;
    uint64_t hash = 0;
    line >> n >> seed >> std::hex >> hash;
    ASSERT_FALSE(line.fail());
    EXPECT_EQ(fnv(torch_randperm(n, static_cast<uint64_t>(seed))), hash) << "n " << n << " seed " << seed;
  }
}

TEST(TorchRandperm, NeighbouringSeedsGiveOtherOrders) {
  EXPECT_NE(torch_randperm(100, 0), torch_randperm(100, 1));
}

TEST(DistributedSampler, GivesTheBatchesOfPyTorchsLoader) {
  auto cases = golden("batches");
  ASSERT_GE(cases.size(), 200u);
  int refused = 0;
  for (std::istringstream& line : cases) {
    SamplerOptions options;
    int64_t epoch = 0, batches = 0;
    uint64_t hash = 0;
    line >> options.samples >> options.world_size >> options.rows_per_rank >> options.drop_last >>
        options.shuffle >> options.seed >> epoch >> batches >> std::hex >> hash;
    ASSERT_FALSE(line.fail());
    SCOPED_TRACE(line.str());
    if (batches == 0) {
      EXPECT_THROW(DistributedSampler{options}, ConfigError);
      ++refused;
      continue;
    }
    std::vector<int64_t> flat;
    for (DistributedSampler& rank : all_ranks(options)) {
      ASSERT_EQ(rank.batches_per_epoch(), batches);
      for (int64_t i = 0; i < batches; ++i) {
        const std::vector<int64_t> batch = rank.batch(epoch * batches + i);
        flat.push_back(static_cast<int64_t>(batch.size()));
        flat.insert(flat.end(), batch.begin(), batch.end());
      }
    }
    EXPECT_EQ(fnv(flat), hash);
  }
  EXPECT_GT(refused, 0);
}

TEST(DistributedSampler, RanksTogetherHaveTheRowsOfOneProcess) {
  for (const auto& [world_size, rows] :
       std::vector<std::pair<int, int>>{{8, 3}, {3, 8}, {2, 12}, {4, 6}, {24, 1}}) {
    for (const int64_t samples : {24, 25, 47, 48, 100, 1404, 1560}) {
      SamplerOptions one{.samples = samples, .world_size = 1, .rank = 0, .rows_per_rank = 24, .seed = 7};
      DistributedSampler reference(one);
      SamplerOptions many = one;
      many.world_size = world_size;
      many.rows_per_rank = rows;
      std::vector<DistributedSampler> ranks = all_ranks(many);
      ASSERT_EQ(ranks[0].batches_per_epoch(), reference.batches_per_epoch());
      const int64_t steps = 3 * reference.batches_per_epoch();
      for (int64_t step = 0; step < steps; ++step)
        ASSERT_EQ(global_batch(ranks, step), reference.batch(step)) << step;
    }
  }
}

TEST(DistributedSampler, KeepsBlocksTogetherAndTheGlobalBatchAtEveryLayout) {
  const SamplerOptions one{
      .samples = 100, .world_size = 1, .rank = 0, .rows_per_rank = 24, .seed = 7, .block = 3};
  DistributedSampler reference(one);
  EXPECT_EQ(reference.batches_per_epoch(), 1 * (99 / 24));
  for (const int world : {2, 4, 8}) {
    SamplerOptions many = one;
    many.world_size = world;
    many.rows_per_rank = 24 / world;
    std::vector<DistributedSampler> ranks = all_ranks(many);
    for (int64_t step = 0; step < 9; ++step) {
      std::vector<int64_t> expected = reference.batch(step), found;
      const std::vector<int> owner = owners_of_rows(24, world, RowPartition::equal, 3);
      for (int rank = 0; rank < world; ++rank) {
        const std::vector<int64_t> rows = ranks[static_cast<std::size_t>(rank)].batch(step);
        std::vector<int64_t> partitioned;
        for (std::size_t row = 0; row < 24; ++row) {
          if (owner[row] == rank) partitioned.push_back(expected[row]);
        }
        EXPECT_EQ(rows, partitioned) << "world " << world << ", step " << step;
        for (std::size_t row = 0; row < rows.size(); ++row) {
          EXPECT_EQ(rows[row] / 3, rows[row / 3 * 3] / 3) << "a block was parted";
        }
        found.insert(found.end(), rows.begin(), rows.end());
      }
      std::sort(expected.begin(), expected.end());
      std::sort(found.begin(), found.end());
      EXPECT_EQ(found, expected);
    }
  }
}

TEST(DistributedSampler, WithoutDropLastOnlyAnEpochsLastStepDiffersFromOneProcess) {
  SamplerOptions one{
      .samples = 1404, .world_size = 1, .rank = 0, .rows_per_rank = 24, .seed = 1, .drop_last = false};
  DistributedSampler reference(one);
  SamplerOptions many = one;
  many.world_size = 8;
  many.rows_per_rank = 3;
  std::vector<DistributedSampler> ranks = all_ranks(many);
  ASSERT_EQ(reference.batches_per_epoch(), 59);
  ASSERT_EQ(ranks[0].batches_per_epoch(), 59);
  for (int64_t step = 0; step < 58; ++step) ASSERT_EQ(global_batch(ranks, step), reference.batch(step));
  EXPECT_EQ(reference.batch(58).size(), 12u);
  EXPECT_EQ(global_batch(ranks, 58).size(), 16u);  // 4 rows of padding
  EXPECT_EQ(ranks[7].batch(58).size(), 2u);
}

// Every length, world and batch in a range: what each epoch must hold, counted.
TEST(DistributedSampler, HandsOutEverySampleAsOftenAsItMust) {
  int64_t audited = 0;
  for (int64_t samples = 1; samples <= 40; ++samples) {
    for (int world_size = 1; world_size <= 9; ++world_size) {
      for (const bool drop_last : {true, false}) {
        SamplerOptions options{.samples = samples,
                               .world_size = world_size,
                               .rank = 0,
                               .rows_per_rank = 1,
                               .seed = samples,
                               .shuffle = samples % 2 == 0,
                               .drop_last = drop_last};
        if (drop_last && samples < world_size) {
          EXPECT_THROW(DistributedSampler{options}, ConfigError);
          continue;
        }
        std::vector<int> times(static_cast<std::size_t>(samples), 0);
        int64_t handed_out = 0;
        for (const DistributedSampler& rank : all_ranks(options)) {
          const std::vector<int64_t> ids = rank.epoch_indices(3);
          ASSERT_EQ(static_cast<int64_t>(ids.size()), rank.rows_per_epoch());
          handed_out += rank.rows_per_epoch();
          for (const int64_t id : ids) ++times.at(static_cast<std::size_t>(id));
        }
        const auto [least, most] = std::minmax_element(times.begin(), times.end());
        if (drop_last) {
          EXPECT_EQ(*most, 1);
          EXPECT_EQ(handed_out, samples / world_size * world_size);
          EXPECT_EQ(std::count(times.begin(), times.end(), 0), samples % world_size);
        } else {
          EXPECT_GE(*least, 1);
          EXPECT_LE(*most - *least, 1);
          EXPECT_EQ(handed_out, (samples + world_size - 1) / world_size * world_size);
        }
        ++audited;
      }
    }
  }
  EXPECT_GT(audited, 600);
}

TEST(DistributedSampler, AStepAskedForOutOfOrderIsTheSame) {
  SamplerOptions options{.samples = 100, .world_size = 3, .rank = 1, .rows_per_rank = 4, .seed = 5};
  DistributedSampler forward(options), jumping(options);
  std::vector<std::vector<int64_t>> batches;
  for (int64_t step = 0; step < 30; ++step) batches.push_back(forward.batch(step));
  for (const int64_t step : {29, 0, 17, 16, 8, 7})
    EXPECT_EQ(jumping.batch(step), batches[static_cast<std::size_t>(step)]);
}

TEST(DistributedSampler, EpochsHaveOtherOrdersUnlessShuffleIsOff) {
  SamplerOptions options{.samples = 64, .world_size = 2, .rank = 0, .rows_per_rank = 4};
  EXPECT_NE(DistributedSampler(options).epoch_indices(0), DistributedSampler(options).epoch_indices(1));
  options.shuffle = false;
  EXPECT_EQ(DistributedSampler(options).epoch_indices(0), DistributedSampler(options).epoch_indices(1));
}

TEST(DistributedSampler, SaysWhatIsTooSmall) {
  SamplerOptions options{.samples = 20, .world_size = 8, .rank = 0, .rows_per_rank = 3};
  try {
    DistributedSampler{options};
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("20 samples"), testing::HasSubstr("8 ranks of 3 rows")));
  }
}

}  // namespace
}  // namespace lockstep
