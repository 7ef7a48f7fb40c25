// The toy trainer: its bits depend neither on ranks nor on stops, and every kind of state is part of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "harness/lib/checkpoint/memory_storage.h"
#include "harness/suites/checkpoint/toy_trainer/run.h"

namespace lockstep::toy {
namespace {

constexpr const char* kRoot = "/run/toy";

/// A disk, and what the ranks of its runs recorded, by step and rank.
struct Bench {
  Bench() { disk.put_folder("/run"); }

  std::vector<RunEnd> run(const Config& config, int ranks, int64_t until, bool asynchronous = false) {
    RunOptions options;
    options.config = config;
    options.root = kRoot;
    options.until = until;
    options.asynchronous = asynchronous;
    options.save_every = asynchronous ? 4 : 0;
    options.deadline_s = 20;
    return run_threads(options, ranks, disk, [this](int rank, const StepRecord& record) {
      const std::lock_guard lock(mutex);
      records[record.step][rank] = record;
    });
  }
  std::string bits(int64_t step, int rank) { return bits_of(records.at(step).at(rank)); }

  checkpoint::MemoryStorage disk;
  std::mutex mutex;
  std::map<int64_t, std::map<int, StepRecord>> records;
};

std::vector<std::string> differences(const std::vector<RunEnd>& expected, const std::vector<RunEnd>& seen) {
  std::vector<std::string> all;
  for (std::size_t rank = 0; rank < expected.size(); ++rank) {
    EXPECT_EQ(expected[rank].problem, "");
    EXPECT_EQ(seen[rank].problem, "");
    for (std::string& each : checkpoint::state_differences(expected[rank].state, seen[rank].state))
      all.push_back(std::move(each));
  }
  return all;
}

TEST(ToyTrainer, HasTheSameBitsOnAnyNumberOfRanks) {
  Config config;
  config.jitter = false;
  Bench alone;
  alone.run(config, 1, 40);
  for (const int ranks : {2, 3, 5, 8}) {
    Bench bench;
    bench.run(config, ranks, 40);
    for (int64_t step = 1; step <= 40; ++step) {
      const StepRecord &one = alone.records.at(step).at(0), &many = bench.records.at(step).at(0);
      ASSERT_EQ(one.samples, many.samples) << step;
      ASSERT_EQ(one.parameters, many.parameters) << step << " on " << ranks;
      ASSERT_EQ(one.loss, many.loss) << step;
    }
  }
}

TEST(ToyTrainer, GoesOnBitForBitFromEveryStep) {
  const Config config;
  Bench whole;
  whole.run(config, 3, 30);
  for (const int64_t stop : {1, 7, 8, 12, 18, 23}) {
    Bench bench;
    bench.run(config, 3, stop, stop % 2 == 0);
    Bench control;
    EXPECT_THAT(differences(control.run(config, 3, stop + 6), bench.run(config, 3, stop + 6)), testing::IsEmpty())
        << stop;
    for (int64_t step = 1; step <= stop + 6; ++step) {
      for (int rank = 0; rank < 3; ++rank)
        ASSERT_EQ(whole.bits(step, rank), bench.bits(step, rank)) << stop << " " << step;
    }
  }
}

TEST(ToyTrainer, EndsWhenItsPatienceDoesWhereverItWasStopped) {
  Config config;
  config.patience = 2;
  Bench whole, stopped, forgetful;
  EXPECT_EQ(whole.run(config, 2, 40)[0].ended_at, 12);
  stopped.run(config, 2, 9);
  EXPECT_EQ(stopped.run(config, 2, 40)[0].ended_at, 12);
  config.planted.left_out = {"patience"};
  forgetful.run(config, 2, 9);
  EXPECT_EQ(forgetful.run(config, 2, 40)[0].ended_at, 16);
}

TEST(ToyTrainer, HasEveryKindOfState) {
  const Trainer trainer(Config{}, 0, 2);
  const checkpoint::State state = trainer.state();
  for (const checkpoint::Kind& kind : checkpoint::kinds()) {
    // It tells no curves at its end.
    const bool told = kind.name != checkpoint::kind::curves;
    EXPECT_EQ(state.find(kind.name) != nullptr, told) << kind.name;
  }
  EXPECT_EQ(state.sections.size(), checkpoint::kinds().size() - 1 + 3);
}

TEST(ToyTrainer, ReadsEachSampleOnceInAnEpochAndMeetsWhatItsStateIsFor) {
  Config config;
  Bench bench;
  bench.run(config, 3, 64);
  std::map<int64_t, std::multiset<int64_t>> read;
  std::set<int64_t> patience;
  int overflows = 0, updates = 0;
  double lowest = 1e9, highest = 0;
  for (const auto& [step, ranks] : bench.records) {
    for (const auto& [rank, record] : ranks) read[record.epoch].insert(record.own.begin(), record.own.end());
    const StepRecord& record = ranks.at(0);
    if (record.update) {
      ++updates;
      overflows += record.update->overflow;
    }
    if (record.evaluation) patience.insert(record.evaluation->left);
    lowest = std::min(lowest, record.scale);
    highest = std::max(highest, record.scale);
  }
  for (int64_t epoch = 0; epoch < 8; ++epoch) {
    std::multiset<int64_t> all;
    for (int64_t id = 0; id < config.samples; ++id) all.insert(id);
    EXPECT_EQ(read[epoch], all) << epoch;
  }
  EXPECT_EQ(updates, 21);
  EXPECT_GT(overflows, 0);
  EXPECT_GT(highest, lowest);
  EXPECT_THAT(patience, testing::ElementsAre(37, 38, 39, 40));
}

}  // namespace
}  // namespace lockstep::toy
