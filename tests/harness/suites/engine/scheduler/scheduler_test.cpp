// Processes that go on one at a time, and ranks among them that gather.

#include "harness/suites/engine/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "harness/lib/checkpoint/storage.h"

namespace lockstep::scheduler {
namespace {

using checkpoint::Gathered;
using testing::ElementsAre;
using testing::HasSubstr;

class EachEngine : public testing::TestWithParam<Engine> {};

TEST_P(EachEngine, GivesTheTurnAsItIsTold) {
  Scheduler scheduler(3, {2, 0, 1}, GetParam());
  std::string order;
  scheduler.run([&](int process) {
    order += static_cast<char>('a' + process);
    if (process == 2) scheduler.give_way(2, 1, false);
    order += static_cast<char>('A' + process);
  });
  EXPECT_EQ(order, "cbBaAC");
}

TEST_P(EachEngine, WaitsForWhatAnotherDoesAndTellsWhenNobodyCan) {
  Scheduler scheduler(2, {0, 1}, GetParam());
  bool set = false;
  std::vector<bool> came(2);
  scheduler.run([&](int process) {
    if (process == 1) set = true;
    came[static_cast<std::size_t>(process)] = process == 0 ? scheduler.wait(0, [&] { return set; }) : scheduler.wait(1, [] { return false; });
  });
  EXPECT_THAT(came, ElementsAre(true, false));
  EXPECT_TRUE(scheduler.stalled());
}

TEST_P(EachEngine, HandsOnWhatAnProcessThrows) {
  Scheduler scheduler(2, {0, 1}, GetParam());
  EXPECT_THROW(scheduler.run([](int process) {
    if (process == 1) throw std::runtime_error("no");
  }),
               std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Scheduler, EachEngine, testing::Values(Engine::fibers, Engine::threads));

/// Ranks gather "first" and then "second"; `before(rank, group)` comes between. Their problems.
template <class Between>
std::vector<std::string> problems_of(int ranks, Between between) {
  Scheduler scheduler(ranks);
  Meeting meeting(scheduler, 0, ranks);
  std::vector<std::string> problems(static_cast<std::size_t>(ranks));
  scheduler.run([&](int rank) {
    ScheduledGroup group(meeting, rank);
    const Gathered first = group.all_gather("first", std::to_string(rank), 10);
    EXPECT_TRUE(first);
    EXPECT_EQ(first.texts.at(1), "1");
    between(rank, group, scheduler);
    problems[static_cast<std::size_t>(rank)] = group.all_gather("second", "", 10).problem;
    group.end();
  });
  return problems;
}

TEST(ScheduledGroup, NoticesAnEndAtOnceAndTellsAllAlike) {
  const auto problems = problems_of(3, [](int rank, ScheduledGroup& group, Scheduler&) {
    if (rank == 1) group.end();
  });
  EXPECT_EQ(problems[0], "rank 1 ended (at 'second')");
  EXPECT_EQ(problems[2], problems[0]);
}

TEST(ScheduledGroup, TellsSomeAndEndsWhereAKillFallsWithinAGather) {
  const auto problems = problems_of(3, [](int rank, ScheduledGroup& group, Scheduler&) {
    if (rank == 1) group.end_within(1);
  });
  // Rank 0 had its text; rank 2 had not, and told rank 0 too late for this gather.
  EXPECT_EQ(problems[0], "");
  EXPECT_EQ(problems[2], "rank 1 ended (at 'second')");
}

TEST(ScheduledGroup, GivesUpOnSilenceAndNotOnSlowness) {
  const auto slow = problems_of(2, [](int rank, ScheduledGroup& group, Scheduler& scheduler) {
    for (int i = 0; rank == 1 && i < 9; ++i) {
      scheduler.advance(1, 9);
      group.progress();
    }
  });
  EXPECT_THAT(slow, ElementsAre("", ""));
  const auto silent = problems_of(2, [](int rank, ScheduledGroup&, Scheduler& scheduler) {
    // The other one begins to wait in the first second.
    for (int i = 0; rank == 1 && i < 2; ++i) scheduler.advance(1, i == 0 ? 1 : 11);
  });
  EXPECT_EQ(silent[0], "rank 1 gave no sign of progress for 10 s (at 'second')");
  // It had the other's text before that one left, and hears of it at the next gather.
  EXPECT_EQ(silent[1], "");
}

}  // namespace
}  // namespace lockstep::scheduler
