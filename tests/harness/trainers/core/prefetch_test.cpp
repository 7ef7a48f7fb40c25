#include "harness/trainers/core/prefetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <string>

#include "harness/trainers/core/step.h"

namespace lockstep {
namespace {

struct Numbered : PreparedRows {
  explicit Numbered(int64_t step_) : step(step_) {}
  int64_t step;
};

PartitionedRows rows_of(int64_t step) {
  return {{step * 10, step * 10 + 1}, std::make_shared<const Numbered>(step)};
}

TEST(Prefetcher, GivesStepsInOrderWithWhatWasMadeReadyOfThem) {
  Prefetcher prefetcher({3, 50, 30}, rows_of);
  for (int64_t step = 0; step < 50; ++step) {
    const PartitionedRows rows = prefetcher.next();
    EXPECT_EQ(rows.ids, (std::vector<int64_t>{step * 10, step * 10 + 1}));
    EXPECT_EQ(dynamic_cast<const Numbered&>(*rows.prepared).step, step);
  }
  EXPECT_THROW(prefetcher.next(), std::runtime_error) << "the run has 50 steps";
}

TEST(Prefetcher, RunsNoFurtherAheadThanItMay) {
  std::atomic<int64_t> partitioned{0};
  Prefetcher prefetcher({2, 100, 30}, [&](int64_t step) {
    ++partitioned;
    return rows_of(step);
  });
  for (int64_t step = 0; step < 20; ++step) {
    prefetcher.next();
    EXPECT_LE(partitioned, step + 1 + 2 + 1) << "two ready, and one in the making";
  }
}

TEST(Prefetcher, HandsOverWhatWasThrownAtTheStepThatItWasThrownFor) {
  Prefetcher prefetcher({4, 10, 30}, [](int64_t step) {
    if (step == 3) throw std::runtime_error("series 7 is torn");
    return rows_of(step);
  });
  for (int64_t step = 0; step < 3; ++step) EXPECT_EQ(prefetcher.next().ids.front(), step * 10);
  try {
    prefetcher.next();
    FAIL() << "the error was swallowed";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "series 7 is torn");
  }
}

TEST(Prefetcher, NamesTheStepThatIsNotReadyInTime) {
  std::promise<void> gate;
  std::shared_future<void> opened = gate.get_future().share();
  Prefetcher prefetcher({1, 10, 0.01}, [opened](int64_t step) {
    if (step == 1) opened.wait();
    return rows_of(step);
  });
  prefetcher.next();
  try {
    prefetcher.next();
    FAIL() << "nothing was ready";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("rows of step 1 were not ready"), std::string::npos)
        << error.what();
  }
  gate.set_value();
}

TEST(Prefetcher, EndsBeforeItsTimeAndDropsWhatIsReady) {
  std::weak_ptr<const PreparedRows> kept;
  {
    Prefetcher prefetcher({5, 1000, 30}, rows_of);
    kept = prefetcher.next().prepared;
  }
  EXPECT_TRUE(kept.expired());
}

TEST(StepMeter, LeavesTheFirstTenthOut) {
  CommunicationMeter meter;
  StepMeter steps(&meter);
  RankResult result;
  double now = 100;
  for (int step = 0; step < 20; ++step) {
    steps.begin(now);
    const double seconds = step < 2 ? 5.0 : 1.0 + 0.01 * step;
    meter.seconds += 0.25 * seconds;
    meter.received_bytes += step < 2 ? 1e6 : 300;
    now += seconds;
    steps.end(now, result);
    now += 3;  // an evaluation
  }
  steps.fill(result);
  EXPECT_NEAR(result.step_seconds, 1.105, 1e-9);
  EXPECT_NEAR(result.communication_share, 0.25, 1e-9);
  EXPECT_NEAR(result.received_bytes, 300, 1e-9);
  EXPECT_NEAR(result.train_seconds, 10 + 18 + 0.01 * 189, 1e-9);
  EXPECT_NEAR(result.communication_seconds, 0.25 * result.train_seconds, 1e-9);
}

TEST(StepMeter, KnowsNoShareOfNothing) {
  StepMeter steps(nullptr);
  RankResult result;
  steps.fill(result);
  EXPECT_EQ(result.step_seconds, 0);
  steps.begin(1);
  steps.end(3, result);
  steps.fill(result);
  EXPECT_EQ(result.step_seconds, 2) << "one step is all there is";
  EXPECT_EQ(result.communication_share, 0);
}

}  // namespace
}  // namespace lockstep
