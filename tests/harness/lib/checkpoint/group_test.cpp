#include "harness/lib/checkpoint/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "harness/base/machine.h"
#include "tests/support/checkpoint_ranks.h"

namespace lockstep::checkpoint {
namespace {

using namespace support;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(SocketGroup, GivesEveryRankTheTextsOfAll) {
  for (const int size : {1, 2, 3, 8}) {
    run_ranks(size, [&](int rank, Group& group) {
      for (int round = 0; round < 20; ++round) {
        const Gathered all = group.all_gather("round", std::to_string(100 * round + rank), 20);
        ASSERT_TRUE(all) << all.problem;
        for (int other = 0; other < size; ++other) {
          EXPECT_EQ(all.texts[static_cast<std::size_t>(other)], std::to_string(100 * round + other));
        }
      }
    });
  }
}

TEST(SocketGroup, CarriesLongTextsAndEmptyOnes) {
  run_ranks(3, [](int rank, Group& group) {
    const std::string mine = rank == 1 ? "" : std::string(3'000'000, static_cast<char>('a' + rank));
    const Gathered all = group.all_gather("long", mine, 20);
    ASSERT_TRUE(all) << all.problem;
    EXPECT_EQ(all.texts[0], std::string(3'000'000, 'a'));
    EXPECT_EQ(all.texts[1], "");
    EXPECT_EQ(all.texts[2], std::string(3'000'000, 'c'));
  });
}

TEST(SocketGroup, NamesARankThatHasEndedAtOnceAndForGood) {
  const double start_s = monotonic_s();
  run_ranks(4, [](int rank, Group& group) {
    ASSERT_TRUE(group.all_gather("first", "x", 20));
    if (rank == 2) return;
    EXPECT_THAT(group.all_gather("second", "x", 20).problem, HasSubstr("rank 2 ended (at 'second')"));
    EXPECT_THAT(group.all_gather("third", "x", 20).problem, HasSubstr("rank 2 ended (at 'second')"));
  });
  EXPECT_LT(monotonic_s() - start_s, 5);
}

TEST(SocketGroup, NamesARankThatGivesNoSign) {
  std::atomic<int> told{0};
  run_ranks(3, [&](int rank, Group& group) {
    if (rank == 1) {
      while (told < 2) ::sched_yield();
      return;
    }
    EXPECT_THAT(group.all_gather("written", "x", 0.05).problem,
                HasSubstr("rank 1 gave no sign of progress for 0.05 s"));
    ++told;
  });
}

TEST(SocketGroup, WaitsForARankThatShowsProgress) {
  run_ranks(2, [](int rank, Group& group) {
    const double start_s = monotonic_s();
    // For longer than the deadline rank 1 is at work and says so.
    while (rank == 1 && monotonic_s() - start_s < 1.5) group.progress();
    const Gathered all = group.all_gather("written", "x", 1);
    EXPECT_TRUE(all) << all.problem;
  });
}

TEST(SocketGroup, SaysWhoIsElsewhere) {
  run_ranks(2, [](int rank, Group& group) {
    EXPECT_THAT(group.all_gather(rank == 0 ? "here" : "there", "x", 20).problem, HasSubstr("'"));
  });
}

TEST(SocketGroup, HoldsProcessesTogetherAndNoticesOneThatIsKilled) {
  std::vector<std::unique_ptr<SocketGroup>> groups = make_socket_groups(2);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    groups[0]->close();
    if (groups[1]->all_gather("first", "child", 20)) ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  groups[1]->close();
  const Gathered all = groups[0]->all_gather("first", "parent", 20);
  EXPECT_THAT(all.texts, ElementsAre("parent", "child"));
  EXPECT_THAT(groups[0]->all_gather("second", "parent", 20).problem, HasSubstr("rank 1 ended"));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(Agreement, IsTheSameTextOnAllRanks) {
  run_ranks(3, [](int rank, Group& group) {
    EXPECT_EQ(agree(group, "done", "", 20), "");
    EXPECT_EQ(agree(group, "done", rank == 1 ? "no space" : "", 20), "rank 1: no space");
  });
}

TEST(HookedGroup, CountsWithTheStorageAndFailsWhereItIsTold) {
  MemoryStorage disk;
  FaultHook hook;
  Seam seam(hook);
  HookedStorage storage(disk, seam);
  AloneGroup alone;
  HookedGroup group(alone, seam);
  int file = -1;
  storage.create("/f", file);
  EXPECT_TRUE(group.all_gather("one", "x", 1));
  hook.fail_at = 2;
  hook.error = EIO;
  EXPECT_THAT(group.all_gather("two", "x", 1).problem, HasSubstr("gather 'two' failed: Input/output error"));
  EXPECT_THAT(hook.seen, ElementsAre("create /f", "gather 'one'", "gather 'two'"));
}

}  // namespace
}  // namespace lockstep::checkpoint
