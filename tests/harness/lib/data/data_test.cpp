#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/lib/data/sampler.h"
#include "harness/lib/data/series.h"
#include "harness/lib/data/sharding/tasks.h"
#include "scenarios/energy/spec.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

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

std::vector<DistributedSampler> all_ranks(SamplerOptions one, int world_size, int rows_per_rank) {
  one.world_size = world_size;
  one.rows_per_rank = rows_per_rank;
  return all_ranks(one);
}

TEST(TorchRandperm, NeighbouringSeedsGiveOtherOrders) {
  EXPECT_NE(torch_randperm(100, 0), torch_randperm(100, 1));
}

// Cases of the trainers' sampler that are asked of PyTorch's too.

struct Drawn {
  SamplerOptions options;
  int64_t epoch = 0;
};

/// 640 cases, the edges among them.
std::vector<Drawn> sampler_cases() {
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
std::string hash_of_lists(Drawn drawn) {
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

/// PyTorch's lists, and batches as its loader takes them.
TEST(DistributedSampler, GivesTheListsAndBatchesOfPyTorch) {
  std::string hashes;
  int refused = 0;
  for (Drawn drawn : sampler_cases()) {
    hashes += hash_of_lists(drawn);
    const auto list = [&] { return DistributedSampler(drawn.options).epoch_indices(drawn.epoch); };
    if (drawn.options.samples == 0) {
      EXPECT_THROW(list(), ConfigError);
      ++refused;
    }
    drawn.options.rows_per_rank = 3;
    for (int& rank = drawn.options.rank; drawn.options.samples >= 3 * drawn.options.world_size && rank < drawn.options.world_size; ++rank) {
      const std::vector<int64_t> ids = list();
      DistributedSampler sampler(drawn.options);
      const auto whole = static_cast<int64_t>(ids.size()) / 3, rest = static_cast<int64_t>(ids.size()) % 3;
      const int64_t batches = whole + (rest > 0 && !drawn.options.drop_last ? 1 : 0);
      ASSERT_EQ(sampler.batches_per_epoch(), batches) << ids.size();
      std::vector<int64_t> taken;
      for (int64_t i = 0; i < batches; ++i) {
        for (const int64_t id : sampler.batch(drawn.epoch * batches + i)) taken.push_back(id);
      }
      ASSERT_EQ(taken, std::vector<int64_t>(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(taken.size())));
      ASSERT_GE(taken.size(), 3 * static_cast<std::size_t>(whole));
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(hash_in_hex(hashes), "15b63ac3895ce140");
}

/// And those of PyTorch's own DistributedSampler.
TEST(PyTorchsSampler, GivesEveryRankTheSameRows) {
  const std::string python = LOCKSTEP_PYTHON;
  if (python.empty()) GTEST_SKIP() << "no Python that has this LibTorch's torch package: set LOCKSTEP_PYTHON";
  const TempFolder folder;
  std::string cases;
  for (const auto& [options, epoch] : sampler_cases()) {
    cases += fmt::format("{} {} {:d} {:d} {} {}\n", options.samples, options.world_size, options.drop_last, options.shuffle,
                         options.seed, epoch);
  }
  write_text(folder / "cases", cases);
  const std::string script = LOCKSTEP_SOURCE_DIR "/tests/bridge/sampler.py";
  const auto [output, status] = output_of("OMP_NUM_THREADS=1 " + python + " -W ignore " + script + " < " + (folder / "cases"));
  ASSERT_EQ(status, 0) << output;
  std::istringstream lines(output);
  std::string theirs;
  for (const Drawn& drawn : sampler_cases()) {
    ASSERT_TRUE(lines >> theirs);
    EXPECT_EQ(hash_of_lists(drawn), theirs) << drawn.options.samples << " samples on " << drawn.options.world_size;
  }
  ASSERT_TRUE(lines >> theirs);
  EXPECT_EQ(theirs, "low_32_bits") << "docs/config.md says what PyTorch's CPU generator takes of a seed";
}

TEST(DistributedSampler, RanksTogetherHaveTheRowsOfOneProcess) {
  for (const auto& [world_size, rows] :
       std::vector<std::pair<int, int>>{{8, 3}, {3, 8}, {2, 12}, {4, 6}, {24, 1}}) {
    for (const int64_t samples : {24, 25, 47, 48, 100, 1404, 1560}) {
      SamplerOptions one{.samples = samples, .world_size = 1, .rank = 0, .rows_per_rank = 24, .seed = 7};
      DistributedSampler reference(one);
      std::vector<DistributedSampler> ranks = all_ranks(one, world_size, rows);
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
    std::vector<DistributedSampler> ranks = all_ranks(one, world, 24 / world);
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
  std::vector<DistributedSampler> ranks = all_ranks(one, 8, 3);
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
  EXPECT_THAT([&] { DistributedSampler{options}; },
              testing::ThrowsMessage<ConfigError>(
                  testing::AllOf(testing::HasSubstr("20 samples"), testing::HasSubstr("8 ranks of 3 rows"))));
}

}  // namespace
}  // namespace lockstep

// Tasks on ranks: each once, at least so many a rank, near the best time.

namespace lockstep::sharding {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

std::vector<Task> tasks(const std::vector<double>& costs, int64_t episodes = 4) {
  std::vector<Task> all;
  for (const double cost : costs) all.push_back({"t" + std::to_string(all.size()), cost, episodes});
  return all;
}

/// What is wrong with an assignment: each task must be given out whole and once, to ranks that all have their least.
std::string wrong_with(const std::vector<Task>& all, const AssignOptions& options, const Assignment& assigned) {
  std::map<int, std::multiset<std::pair<int64_t, int64_t>>> parts;
  for (const std::vector<Share>& shares : assigned) {
    if (shares.size() < static_cast<std::size_t>(options.least)) return "a rank lacks shares";
    for (const Share& share : shares) parts[share.task].insert({share.parts, share.part});
  }
  for (int task = 0; task < static_cast<int>(all.size()); ++task) {
    int64_t next = 0;
    for (const auto& [of, part] : parts[task]) {
      if (part != next++ || of != static_cast<int64_t>(parts[task].size()))
        return all[static_cast<std::size_t>(task)].name + " is not given out part by part";
    }
    if (next == 0) return all[static_cast<std::size_t>(task)].name + " is lost";
  }
  return "";
}

TEST(AssignTasks, PutsTheDearestFirst) {
  // The example of Graham (1969) for two ranks: 7 where 6 is possible, and 4/3 - 1/6 is met.
  const std::vector<Task> all = tasks({3, 3, 2, 2, 2});
  const Assignment assigned = assign_tasks(all, {.ranks = 2});  // Good enough not to be cut.
  EXPECT_EQ(finish_s(all, assigned), 7);
  EXPECT_EQ(wrong_with(all, {.ranks = 2}, assigned), "");
}

TEST(AssignTasks, CutsTasksWhereThereAreFewerThanRanks) {
  const std::vector<Task> all = tasks({6, 1});
  const Assignment assigned = assign_tasks(all, {.ranks = 4});
  EXPECT_THAT(assigned, testing::Each(SizeIs(1)));
  EXPECT_EQ(assigned[0][0], (Share{0, 0, 3}));
  EXPECT_EQ(wrong_with(all, {.ranks = 4}, assigned), "");
}

TEST(AssignTasks, GivesEveryRankItsLeast) {
  const std::vector<Task> all = tasks({9, 9, 1, 1, 1, 1});
  const Assignment assigned = assign_tasks(all, {.ranks = 3, .least = 2});
  EXPECT_EQ(wrong_with(all, {.ranks = 3, .least = 2}, assigned), "");
}

TEST(AssignTasks, CutsTasksThatAreTooDearToBeBalanced) {
  const std::vector<Task> all = tasks({20, 1, 1});
  const AssignOptions three{.ranks = 3};
  const Assignment assigned = assign_tasks(all, three);
  EXPECT_LE(finish_s(all, assigned), 4.0 / 3 * fluid_s(all, three));
  // Without episodes it stays whole.
  EXPECT_EQ(finish_s(tasks({20, 1, 1}, 1), assign_tasks(tasks({20, 1, 1}, 1), three)), 20);
}

TEST(AssignTasks, RefusesWhatCannotBePartitioned) {
  EXPECT_THROW(assign_tasks({}, {.ranks = 2}), ConfigError);
  EXPECT_THROW(assign_tasks(tasks({0}), {.ranks = 1}), ConfigError);
  EXPECT_THAT(
      [&] { assign_tasks(tasks({1, 1}, 2), {.ranks = 5}); },
      testing::ThrowsMessage<ConfigError>(HasSubstr("2 tasks of 4 episodes in all give 5 ranks no 1 share each")));
}

/// The rule as it is written: a look at every rank for each share.
Assignment partitioned_by_looking_at_all(const std::vector<Task>& all, const AssignOptions& options) {
  std::vector<Share> shares;
  for (int task = 0; task < static_cast<int>(all.size()); ++task) shares.push_back({task, 0, 1});
  const auto cost_of = [](auto& of, const Share& share) { return of[static_cast<std::size_t>(share.task)].cost_s; };
  std::ranges::stable_sort(shares,
                           [&](const Share& a, const Share& b) { return cost_of(all, a) > cost_of(all, b); });
  Assignment assigned(static_cast<std::size_t>(options.ranks));
  std::vector<double> cost(assigned.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    int64_t lacking = 0;
    for (const auto& own : assigned) lacking += own.empty() ? 1 : 0;
    const bool must_fill = static_cast<int64_t>(shares.size() - i) <= lacking;
    std::size_t to = assigned.size();
    const auto end_s = [&](std::size_t rank) {
      return cost[rank] + cost_of(all, shares[i]);
    };
    for (std::size_t rank = 0; rank < assigned.size(); ++rank) {
      if (must_fill && !assigned[rank].empty()) continue;
      if (to == assigned.size() || end_s(rank) < end_s(to)) to = rank;
    }
    assigned[to].push_back(shares[i]);
    cost[to] += cost_of(all, shares[i]);
  }
  return assigned;
}

TEST(AssignTasks, GivesAShareToTheFirstOfTheRanksThatWouldEndItFirst) {
  std::mt19937 draws(5);
  for (int trial = 0; trial < 400; ++trial) {
    const AssignOptions options{.ranks = 1 + static_cast<int>(draws() % 33)};
    // Costs of tenths add up to loads that differ in their last bits alone.
    std::vector<double> costs(static_cast<std::size_t>(options.ranks) + draws() % 90);
    for (double& cost : costs) cost = 0.1 * static_cast<double>(1 + draws() % 9);
    const std::vector<Task> all = tasks(costs, 1);
    EXPECT_EQ(assign_tasks(all, options), partitioned_by_looking_at_all(all, options)) << "trial " << trial;
  }
}

TEST(AssignTasks, KeepsItsRulesOnManyRanks) {
  const std::vector<Task> few = tasks({5.5, 3.2, 2.9, 1.1, 0.8}, 1000);
  const AssignOptions many{.ranks = 4096};
  // 1,000 episodes of the dearest one are too few for an equal share.
  const Assignment cut = assign_tasks(few, many);
  EXPECT_EQ(wrong_with(few, many, cut), "");
  EXPECT_EQ(finish_s(few, cut), 5.5 / 1000);
  std::vector<double> costs(12'000);
  for (std::size_t i = 0; i < costs.size(); ++i) costs[i] = 1 + static_cast<double>(i % 17);
  EXPECT_EQ(wrong_with(tasks(costs, 8), many, assign_tasks(tasks(costs, 8), many)), "");
}

}  // namespace
}  // namespace lockstep::sharding

namespace lockstep {
namespace {

PairConfig synthetic(int64_t seed = 0) {
  PairConfig config;
  config.source = DataSource::synthetic;
  config.seed = seed;
  return config;
}

uint64_t bits_of(const SeriesSet& set) {
  uint64_t state = 1;
  for (const std::vector<float>& series : set.series) {
    for (const float value : series) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      state = mix64(state ^ bits);
    }
  }
  return state;
}

TEST(SyntheticSeries, AreTheSameBitsOnEveryMachine) {
  EXPECT_EQ(bits_of(synthetic_series(synthetic(), 0)), 7983604306176886469u);
  EXPECT_EQ(bits_of(synthetic_series(synthetic(-3), 1)), 8564173489975931360u);
}

TEST(SyntheticSeries, DifferBySeedAndByPart) {
  const uint64_t bits = bits_of(synthetic_series(synthetic(), 0));
  EXPECT_NE(bits_of(synthetic_series(synthetic(1), 0)), bits);
  EXPECT_NE(bits_of(synthetic_series(synthetic(), 1)), bits);
}

TEST(SyntheticSeries, AddingSeriesLengthensAndKeepsShape) {
  PairConfig config = synthetic();
  config.series = 7;
  config.series_steps = 30;
  config.channels = 3;
  const SeriesSet set = synthetic_series(config, 0);
  ASSERT_EQ(set.series.size(), 7u);
  EXPECT_EQ(set.channels, 3);
  EXPECT_EQ(set.steps_of(6), 30);
  EXPECT_TRUE(std::is_sorted(set.labels.begin(), set.labels.end()));
  for (const std::vector<float>& series : set.series) {
    for (const float value : series) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(SyntheticSeries, EveryClassTakesPart) {
  const SeriesSet set = synthetic_series(synthetic(), 0);
  for (const char* label : {"motion0", "motion1", "motion2", "motion3"}) {
    EXPECT_EQ(std::count(set.labels.begin(), set.labels.end(), label), 10) << label;
  }
}

// The task must be learnable: the chunk that followed the nearest training context must foretell the test
// chunk far better than the mean (0 after standardising) does.
TEST(SyntheticSeries, TheNextChunkFollowsFromTheContext) {
  const Dataset data = load_dataset(synthetic());
  const std::size_t context = static_cast<std::size_t>(data.test.context_steps) * 6;
  const std::size_t action = static_cast<std::size_t>(data.test.action_steps) * 6;
  double error = 0, variance = 0;
  for (std::size_t i = 0; i < data.test.size(); i += 13) {
    double nearest = INFINITY;
    std::size_t found = 0;
    for (std::size_t j = 0; j < data.train.size(); ++j) {
      double distance = 0;
      for (std::size_t k = 0; k < context; ++k) {
        distance += std::pow(data.test.contexts[i * context + k] - data.train.contexts[j * context + k], 2);
      }
      if (distance < nearest) {
        nearest = distance;
        found = j;
      }
    }
    for (std::size_t k = 0; k < action; ++k) {
      const double truth = data.test.actions[i * action + k];
      error += std::pow(truth - data.train.actions[found * action + k], 2);
      variance += truth * truth;
    }
  }
  EXPECT_LT(error, 0.5 * variance);
  RecordProperty("unexplained_variance", std::to_string(error / variance));
}

/// Mean over pairs of neighbouring pairs of the correlation of their actions, within or across blocks of 3.
double alike(const Windows& windows, bool within) {
  const std::size_t each = windows.actions.size() / windows.size();
  double sum = 0;
  int count = 0;
  for (std::size_t pair = 0; pair + 40 < windows.size(); ++pair) {
    const std::size_t other = within ? pair / 3 * 3 + (pair + 1) % 3 : pair + 40;
    double product = 0, own = 0, others = 0;
    for (std::size_t i = 0; i < each; ++i) {
      const double a = windows.actions[pair * each + i], b = windows.actions[other * each + i];
      product += a * b;
      own += a * a;
      others += b * b;
    }
    sum += product / std::sqrt(own * others);
    ++count;
  }
  return sum / count;
}

TEST(Correlation, MakesPairsOfABlockAlikeAndNoOthers) {
  PairConfig config;
  config.source = DataSource::synthetic;
  config.stride = 9;  // so that neighbours do not share most of their steps
  config.min_context = 10;
  const Dataset plain = load_dataset(config);
  config.block = 3;
  EXPECT_EQ(load_dataset(config).train.actions, plain.train.actions) << "blocks alone change nothing";
  EXPECT_EQ(inspect_pairs(config).hash, inspect_pairs(synthetic()).hash);
  config.correlation = 0.95;
  const Dataset correlated = load_dataset(config);
  EXPECT_EQ(correlated.train.context_mask, plain.train.context_mask);
  EXPECT_GT(alike(correlated.train, true), 0.85);
  EXPECT_LT(alike(plain.train, true), 0.5);
  EXPECT_LT(alike(correlated.train, false), 0.5);
  EXPECT_NE(inspect_pairs(config).hash, inspect_pairs(synthetic()).hash);
  for (std::size_t i = 0; i < correlated.train.contexts.size(); ++i) {
    const std::size_t step = i / static_cast<std::size_t>(correlated.train.channels);
    if (correlated.train.context_mask[step] == 0) {
      ASSERT_EQ(correlated.train.contexts[i], 0.0F);
    }
  }
}

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kHeader =
    "# two channels, three steps\n"
    "@problemName Tiny\n"
    "@timeStamps false\n"
    "@univariate false\n"
    "@dimensions 2\n"
    "@equalLength true\n"
    "@seriesLength 3\n"
    "@classLabel true Walking Running\n"
    "@data\n";  // series start on line 10

std::vector<ConfigProblem> problems_of(const std::string& text) {
  try {
    parse_ts(text, "tiny.ts");
  } catch (const ConfigError& error) {
    return error.problems();
  }
  return {};
}

std::string only_problem(const std::string& text) {
  const std::vector<ConfigProblem> problems = problems_of(text);
  if (problems.size() != 1) return "problems: " + std::to_string(problems.size());
  return problems[0].text();
}

TEST(TsReader, ReadsSeriesWithTheChannelFastest) {
  const SeriesSet set = parse_ts(kHeader + "1,2,3:-4,5e-1,6.25:Walking\n7,8,9:10,11,12:Running\n", "tiny.ts");
  EXPECT_EQ(set.channels, 2);
  ASSERT_EQ(set.series.size(), 2u);
  EXPECT_THAT(set.series[0], ElementsAre(1, -4, 2, 0.5f, 3, 6.25f));
  EXPECT_THAT(set.series[1], ElementsAre(7, 10, 8, 11, 9, 12));
  EXPECT_THAT(set.labels, ElementsAre("Walking", "Running"));
  EXPECT_EQ(set.steps_of(0), 3);
}

TEST(TsReader, TakesHeadersInAnyCaseAndFreeSpace) {
  const SeriesSet set = parse_ts(
      "\xef\xbb\xbf@DIMENSIONS 2\r\n\r\n@classlabel TRUE  walking\r\n@Data\r\n # a comment\r\n 1 , +2 : 3, 4 "
      ": Walking \r\n",
      "tiny.ts");
  EXPECT_THAT(set.series[0], ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(set.labels, ElementsAre("walking"));
}

TEST(TsReader, TakesAWholeLastLineWithoutALineBreak) {
  EXPECT_EQ(parse_ts(kHeader + "1,2,3:4,5,6:Walking", "tiny.ts").series.size(), 1u);
}

TEST(TsReader, TakesUnlabelledAndUnequalSeries) {
  const SeriesSet set = parse_ts("@univariate true\n@classLabel false\n@data\n1,2,3\n4,5\n", "tiny.ts");
  EXPECT_EQ(set.channels, 1);
  EXPECT_EQ(set.steps_of(0), 3);
  EXPECT_EQ(set.steps_of(1), 2);
  EXPECT_TRUE(set.labels.empty());
}

TEST(TsReader, FindsTheDimensionsOfTheFirstSeries) {
  EXPECT_EQ(parse_ts("@classLabel true a\n@data\n1:2:3:a\n", "tiny.ts").channels, 3);
  EXPECT_THAT(
      only_problem("@classLabel true a\n@data\n1:2:3:a\n1:2:a\n"),
      HasSubstr("tiny.ts:4:1: the line has 3 fields separated by ':', but 3 dimensions and a class label"));
}

TEST(TsReader, RoundsValuesBelowTheSmallestFloatToZero) {
  EXPECT_THAT(parse_ts("@data\n1e-60,1e-40\n", "tiny.ts").series[0], ElementsAre(0.0f, 1e-40f));
}

TEST(TsReader, NamesTheTextThatIsNoNumber) {
  EXPECT_EQ(only_problem(kHeader + "1,2,3:4,5,6:Walking\n1,2,3:4,zebra,6:Walking\n"),
            "tiny.ts:11:9: \"zebra\" is not a number");
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,5 5,6:Walking\n"), HasSubstr("10:9: \"5 5\" is not a number"));
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,0x1f,6:Walking\n"), HasSubstr("\"0x1f\" is not a number"));
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,+-5,6:Walking\n"), HasSubstr("\"+-5\" is not a number"));
}

TEST(TsReader, RefusesMissingEmptyAndNonFiniteValues) {
  EXPECT_THAT(only_problem(kHeader + "1,?,3:4,5,6:Walking\n"),
              HasSubstr("tiny.ts:10:3: a value is missing (?)"));
  EXPECT_THAT(only_problem(kHeader + "1,,3:4,5,6:Walking\n"), HasSubstr("tiny.ts:10:3: a value is empty"));
  EXPECT_THAT(only_problem(kHeader + "1,NaN,3:4,5,6:Walking\n"),
              HasSubstr("10:3: \"NaN\" is not a finite number"));
  EXPECT_THAT(only_problem(kHeader + "1,-inf,3:4,5,6:Walking\n"),
              HasSubstr("\"-inf\" is not a finite number"));
  EXPECT_THAT(only_problem(kHeader + "1,1e39,3:4,5,6:Walking\n"),
              HasSubstr("\"1e39\" lies outside the range"));
  EXPECT_THAT(only_problem(kHeader + "1,1e999,3:4,5,6:Walking\n"),
              HasSubstr("\"1e999\" lies outside the range"));
}

TEST(TsReader, RefusesUnequalLengthsAndDimensions) {
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,5:Walking\n"),
              HasSubstr("10:1: dimension 2 has 2 steps, dimension 1 has 3"));
  EXPECT_THAT(only_problem(kHeader + "1,2:4,5:Walking\n"),
              HasSubstr("10:1: the series has 2 steps, but @seriesLength is 3"));
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,5,6:7,8,9:Walking\n"), HasSubstr("the line has 4 fields"));
}

TEST(TsReader, RefusesALabelThatNobodyDeclared) {
  EXPECT_EQ(only_problem(kHeader + "1,2,3:4,5,6:Resting\n"),
            "tiny.ts:10:13: the class \"Resting\" is not one of @classLabel's: Walking, Running");
}

TEST(TsReader, SaysWhenTheLastLineIsCutShort) {
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,5,6:Walk"), HasSubstr("is it cut short?"));
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,5,6:Walking\n1,2,3:4,5"), HasSubstr("is it cut short?"));
  EXPECT_THAT(only_problem(kHeader + "1,2,3:4,5,6:Walking\n1,2"), HasSubstr("tiny.ts:11:1:"));
  EXPECT_THAT(only_problem(kHeader), HasSubstr("no series follows @data: is the file cut short?"));
}

// Wherever the file is cut inside the series, the reader must notice; a whole series more or less is no cut
// that the format could show.
TEST(TsReader, NoticesACutAtEveryByteOfTheLastSeries) {
  const std::string head = kHeader + "1,2,3:4,5,6:Walking\n";
  const std::string whole = head + "11,12,13:14,15,16:Running";
  for (std::size_t length = head.size() + 1; length < whole.size(); ++length) {
    EXPECT_FALSE(problems_of(whole.substr(0, length)).empty())
        << whole.substr(head.size(), length - head.size());
  }
}

TEST(TsReader, RefusesFilesWithoutData) {
  EXPECT_EQ(only_problem(""), "tiny.ts: the file is empty");
  EXPECT_THAT(only_problem("@dimensions 2\n"), HasSubstr("tiny.ts:1:1: the file ends without @data"));
  EXPECT_THAT(only_problem("1,2,3\n"), HasSubstr("tiny.ts:1:1: data before @data"));
}

TEST(TsReader, RefusesHeadersThatItDoesNotUnderstand) {
  EXPECT_THAT(only_problem("@dimensoins 2\n@data\n1\n"),
              HasSubstr("1:1: unknown header \"@dimensoins\"; known are"));
  EXPECT_THAT(only_problem("@dimensions two\n@data\n1\n"),
              HasSubstr("1:13: @dimensions is a whole number from 1"));
  EXPECT_THAT(only_problem("@dimensions 0\n@data\n1\n"), HasSubstr("@dimensions is a whole number from 1"));
  EXPECT_THAT(only_problem("@timeStamps true\n@data\n1\n"), HasSubstr("1:13: series with time stamps"));
  EXPECT_THAT(only_problem("@dimensions 1\n@dimension 1\n@data\n1\n"),
              HasSubstr("2:1: \"@dimension\" stands twice"));
  EXPECT_THAT(only_problem("@classLabel true\n@data\n1:a\n"), HasSubstr("@classLabel true lists no class"));
  EXPECT_THAT(only_problem("@missing maybe\n@data\n1\n"),
              HasSubstr("@missing is true or false, not \"maybe\""));
  EXPECT_THAT(only_problem("@data\n1\n@dimensions 1\n"), HasSubstr("3:1: a header after @data"));
}

TEST(TsReader, CollectsProblemsAndStopsAtTwenty) {
  EXPECT_EQ(problems_of(kHeader + "1,x,3:4,y,6:Nobody\n1,2:3,4,5:Walking\n").size(), 4u);
  std::string many = kHeader;
  for (int i = 0; i < 100; ++i) many += "1,x,3:4,5,6:Walking\n";
  const std::vector<ConfigProblem> problems = problems_of(many);
  ASSERT_EQ(problems.size(), 21u);
  EXPECT_EQ(problems[19].line, 29);
  EXPECT_THAT(problems[20].message, HasSubstr("the first 20 problems"));
}

TEST(TsReader, ShowsForeignBytesHarmlessly) {
  EXPECT_THAT(only_problem(kHeader + "1,\x1b[31m,3:4,5,6:Walking\n"),
              HasSubstr("\"\\x1b[31m\" is not a number"));
  const std::string text = only_problem(kHeader + "1," + std::string(100, 'z') + ",3:4,5,6:Walking\n");
  EXPECT_THAT(text, HasSubstr("zzz…\" is not a number"));
  EXPECT_LT(text.size(), 80u);
}

TEST(TsReader, ShowsForeignClassLabelsHarmlessly) {
  std::string text = "@classLabel true a\x1b[2Jb";
  for (int i = 0; i < 40; ++i) text += " label" + std::to_string(i);
  EXPECT_THAT(only_problem(text + "\n@data\n1:nobody\n"),
              testing::AllOf(HasSubstr("a\\x1b[2Jb, label0"), HasSubstr("label10, …")));
}

TEST(TsReader, NamesAMissingFileAndAFolder) {
  EXPECT_THAT(
      [&] { read_data_file("/nowhere/a.ts"); },
      testing::ThrowsMessage<ConfigError>(HasSubstr("/nowhere/a.ts: cannot be read: No such file or directory")));
  EXPECT_THAT([&] { read_data_file("/"); }, testing::ThrowsMessage<ConfigError>(HasSubstr("/: is a folder")));
}

}  // namespace
}  // namespace lockstep
