#include "harness/base/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

TEST(Turns, LetSoManyComputeAtOnceAndNoMore) {
  Turns turns(2);
  std::atomic<int> computing = 0, most = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Turns::Taken turn(turns);
      for (int round = 0; round < 200; ++round) {
        const int now = ++computing;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::yield();
        --computing;
        const Turns::GivenUp waits;
        std::this_thread::yield();
      }
    });
  }
  threads.clear();
  EXPECT_LE(most, 2);
  EXPECT_GE(most, 1);
}

/// More threads than turns meet again and again: each gives its turn to those that it waits for.
TEST(Turns, AreGivenUpByWhoWaitsForAnother) {
  Turns turns(1);
  constexpr int kThreads = 5, kRounds = 50;
  std::barrier meet(kThreads);
  std::atomic<int> met = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const Turns::Taken turn(turns);
      for (int round = 0; round < kRounds; ++round) {
        const Turns::GivenUp waits;
        meet.arrive_and_wait();
        ++met;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(met, kThreads * kRounds);
}

TEST(Turns, AskNothingOfAThreadWithoutOne) {
  const Turns::GivenUp waits;
  SUCCEED();
}

}  // namespace
}  // namespace lockstep
