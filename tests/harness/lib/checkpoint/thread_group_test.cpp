#include "harness/lib/checkpoint/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace lockstep::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void meet(int size, const std::function<void(int rank, Group& group)>& body) {
  ThreadRendezvous meeting(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Group> group = meeting.group(rank);
      body(rank, *group);
    });
  }
}

TEST(ThreadGroup, GivesEveryRankTheTextsOfAllRoundByRound) {
  for (const int size : {1, 2, 5}) {
    meet(size, [size](int rank, Group& group) {
      EXPECT_EQ(group.rank(), rank);
      EXPECT_EQ(group.size(), size);
      for (int round = 0; round < 200; ++round) {
        const Gathered all = group.all_gather("round", std::to_string(100 * round + rank), 20);
        ASSERT_TRUE(all) << all.problem;
        for (int other = 0; other < size; ++other)
          EXPECT_EQ(all.texts[static_cast<std::size_t>(other)], std::to_string(100 * round + other));
      }
    });
  }
}

TEST(ThreadGroup, NamesARankThatHasEndedAndForGood) {
  meet(3, [](int rank, Group& group) {
    ASSERT_TRUE(group.all_gather("first", "x", 20));
    if (rank == 2) return;
    EXPECT_THAT(group.all_gather("second", "x", 20).problem, HasSubstr("rank 2 ended"));
    EXPECT_THAT(group.all_gather("third", "x", 20).problem, HasSubstr("rank 2 ended"));
  });
}

TEST(ThreadGroup, GivesUpOnARankThatStaysAway) {
  ThreadRendezvous meeting(2);
  const std::unique_ptr<Group> here = meeting.group(0), away = meeting.group(1);
  EXPECT_THAT(here->all_gather("written", "x", 0.01).problem, HasSubstr("no other rank gave a sign of progress"));
  EXPECT_THAT(away->all_gather("written", "x", 20).problem, HasSubstr("at 'written'"));
}

TEST(ThreadGroup, RefusesRanksAtOtherPlaces) {
  meet(2, [](int rank, Group& group) {
    const Gathered all = group.all_gather(rank == 0 ? "written" : "renamed", "x", 20);
    EXPECT_EQ(all.problem, "rank 0 is at 'written' and rank 1 at 'renamed'");
  });
}

}  // namespace
}  // namespace lockstep::checkpoint
