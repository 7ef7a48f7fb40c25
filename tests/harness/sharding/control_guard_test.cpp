// Control values of ranks that are threads: silent while they agree, and the same name on every rank where they do not.

#include "harness/sharding/control_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "harness/checkpoint/groups/thread_group.h"

namespace lockstep::sharding {
namespace {

using testing::HasSubstr;

struct Ranks {
  int64_t step = 4;
  bool stop = false;
  double rate = 0.1, kl = 0.02;
  uint64_t parameters = 7;
};

/// What each rank is told about values that `change` makes.
std::vector<ControlVerdict> verdicts(int ranks, const std::function<void(int rank, Ranks&)>& change, int leaves = -1) {
  checkpoint::ThreadMeeting meeting(ranks);
  std::vector<ControlVerdict> told(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<checkpoint::Group> group = meeting.group(rank);
      if (rank == leaves) return;
      Ranks mine;
      change(rank, mine);
      Controls controls;
      controls.add("stop", mine.stop);
      controls.add("learning_rate", mine.rate);
      controls.driven_by("kl", mine.kl);
      controls.add_hash("parameters", mine.parameters);
      told[static_cast<std::size_t>(rank)] = ControlGuard(*group, 30).check(mine.step, controls);
    });
  }
  threads.clear();
  return told;
}

void expect_all(const std::vector<ControlVerdict>& told, const std::string& code, int rank, int64_t step) {
  for (const ControlVerdict& verdict : told) {
    EXPECT_EQ(verdict.code, code) << verdict.sentence;
    EXPECT_EQ(verdict.rank, rank);
    EXPECT_EQ(verdict.step, step);
    EXPECT_EQ(verdict.sentence, told[0].sentence);
  }
}

TEST(ControlGuard, IsSilentWhereAllAgree) { expect_all(verdicts(4, [](int, Ranks&) {}), "", -1, 0); }

TEST(ControlGuard, NamesTheFirstRankThatDisagrees) {
  const auto told = verdicts(5, [](int rank, Ranks& mine) { mine.stop = rank >= 3; });
  expect_all(told, "stop_differs", 3, 4);
  EXPECT_EQ(told[0].found, "true");
  EXPECT_EQ(told[0].expected, "false");
  EXPECT_THAT(told[0].sentence, HasSubstr("step 4: stop is true on rank 3, and false was expected; who stops leaves the others "
                                          "waiting at the next collective"));
}

TEST(ControlGuard, TellsAnOwnStatisticFromAWrongValue) {
  expect_all(verdicts(3, [](int rank, Ranks& mine) { mine.rate = rank == 2 ? 0.2 : 0.1; }), "learning_rate_differs", 2, 4);
  // The rate is still the same: it will not be.
  const auto told = verdicts(3, [](int rank, Ranks& mine) { mine.kl += 0.001 * rank; });
  expect_all(told, "learning_rate_from_local_kl", 1, 4);
  EXPECT_THAT(told[0].sentence, HasSubstr("kl, which drives learning_rate, is 0.021"));
}

TEST(ControlGuard, NamesTheStepFirst) {
  const auto told = verdicts(3, [](int rank, Ranks& mine) {
    mine.step += rank == 1;
    mine.parameters += rank == 1;
  });
  expect_all(told, "step_differs", 1, 4);
}

TEST(ControlGuard, SeesTheLastBit) {
  expect_all(verdicts(3, [](int rank, Ranks& mine) { mine.rate += rank == 0 ? 5e-18 : 0; }), "", -1, 0);
  expect_all(verdicts(3, [](int rank, Ranks& mine) { mine.rate += rank == 0 ? 1.4e-17 : 0; }), "learning_rate_differs", 0, 4);
}

TEST(ControlGuard, TellsOfARankThatIsGone) {
  const auto told = verdicts(3, [](int, Ranks&) {}, 2);
  EXPECT_EQ(told[0].code, "group_broken");
  EXPECT_THAT(told[0].sentence, HasSubstr("step 4: control values could not be compared: rank 2 ended"));
}

}  // namespace
}  // namespace lockstep::sharding
