// Actors that go on one at a time, and ranks among them that gather.

#include "harness/stage/stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "harness/checkpoint/hooked_storage.h"
#include "harness/stage/actor.h"
#include "harness/stage/stage_group.h"

namespace lockstep::stage {
namespace {

using checkpoint::Gathered;
using testing::ElementsAre;
using testing::HasSubstr;

class EachEngine : public testing::TestWithParam<Engine> {};

TEST_P(EachEngine, GivesTheTurnAsItIsTold) {
  Stage stage(3, {2, 0, 1}, GetParam());
  std::string order;
  stage.run([&](int actor) {
    order += static_cast<char>('a' + actor);
    if (actor == 2) stage.give_way(2, 1, false);
    order += static_cast<char>('A' + actor);
  });
  EXPECT_EQ(order, "cbBaAC");
}

TEST_P(EachEngine, WaitsForWhatAnotherDoesAndTellsWhenNobodyCan) {
  Stage stage(2, {0, 1}, GetParam());
  bool set = false;
  std::vector<bool> came(2);
  stage.run([&](int actor) {
    if (actor == 1) set = true;
    came[static_cast<std::size_t>(actor)] = actor == 0 ? stage.wait(0, [&] { return set; }) : stage.wait(1, [] { return false; });
  });
  EXPECT_THAT(came, ElementsAre(true, false));
  EXPECT_TRUE(stage.stalled());
}

TEST_P(EachEngine, HandsOnWhatAnActorThrows) {
  Stage stage(2, {0, 1}, GetParam());
  EXPECT_THROW(stage.run([](int actor) {
    if (actor == 1) throw std::runtime_error("no");
  }),
               std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Stage, EachEngine, testing::Values(Engine::fibers, Engine::threads));

/// Ranks gather "first" and then "second"; `before(rank, group)` comes between. Their problems.
template <class Between>
std::vector<std::string> problems_of(int ranks, Between between) {
  Stage stage(ranks);
  Meeting meeting(stage, 0, ranks);
  std::vector<std::string> problems(static_cast<std::size_t>(ranks));
  stage.run([&](int rank) {
    StageGroup group(meeting, rank);
    const Gathered first = group.all_gather("first", std::to_string(rank), 10);
    EXPECT_TRUE(first);
    EXPECT_EQ(first.texts.at(1), "1");
    between(rank, group, stage);
    problems[static_cast<std::size_t>(rank)] = group.all_gather("second", "", 10).problem;
    group.end();
  });
  return problems;
}

TEST(StageGroup, NoticesAnEndAtOnceAndTellsAllAlike) {
  const auto problems = problems_of(3, [](int rank, StageGroup& group, Stage&) {
    if (rank == 1) group.end();
  });
  EXPECT_EQ(problems[0], "rank 1 ended (at 'second')");
  EXPECT_EQ(problems[2], problems[0]);
}

TEST(StageGroup, TellsSomeAndEndsWhereAKillFallsWithinAGather) {
  const auto problems = problems_of(3, [](int rank, StageGroup& group, Stage&) {
    if (rank == 1) group.end_within(1);
  });
  // Rank 0 had its text; rank 2 had not, and told rank 0 too late for this gather.
  EXPECT_EQ(problems[0], "");
  EXPECT_EQ(problems[2], "rank 1 ended (at 'second')");
}

TEST(StageGroup, GivesUpOnSilenceAndNotOnSlowness) {
  const auto slow = problems_of(2, [](int rank, StageGroup& group, Stage& stage) {
    for (int i = 0; rank == 1 && i < 9; ++i) {
      stage.advance(1, 9);
      group.progress();
    }
  });
  EXPECT_THAT(slow, ElementsAre("", ""));
  const auto silent = problems_of(2, [](int rank, StageGroup&, Stage& stage) {
    // The other one begins to wait in the first second.
    for (int i = 0; rank == 1 && i < 2; ++i) stage.advance(1, i == 0 ? 1 : 11);
  });
  EXPECT_EQ(silent[0], "rank 1 gave no sign of progress for 10 s (at 'second')");
  // It had the other's text before that one left, and hears of it at the next gather.
  EXPECT_EQ(silent[1], "");
}

}  // namespace
}  // namespace lockstep::stage
