#include "harness/launch/watch.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

/// Three ranks under a clock that the test turns.
class RunWatchTest : public testing::Test {
 protected:
  void report(int rank, int64_t step, const char* operation, double at) {
    beat_.report(rank, step, operation);
    watch_.look(beat_, at);
  }
  const TemporaryFolder folder_;
  BeatFile beat_ = BeatFile::create(folder_ / "beat", 3);
  RunWatch watch_{3, 100};
};

TEST_F(RunWatchTest, CountsFromTheStartUntilAnythingIsReported) {
  EXPECT_EQ(watch_.standstill_s(107), 7);
  EXPECT_EQ(watch_.deadline(60), 160);
}

TEST_F(RunWatchTest, NamesTheRankWithTheLowestStep) {
  report(0, 5, "all_reduce", 101);
  report(1, 4, "all_reduce", 101);
  report(2, 5, "all_reduce", 101);
  EXPECT_EQ(watch_.behind(), 1);
  EXPECT_EQ(watch_.standstill_s(111), 10);
}

TEST_F(RunWatchTest, NamesTheRankThatDoesSomethingElse) {
  report(2, 5, "train", 103);
  report(0, 5, "all_gather loss.actions", 101);
  report(1, 5, "all_gather loss.actions", 102);
  EXPECT_EQ(watch_.behind(), 2) << "though it reported last";
}

TEST_F(RunWatchTest, NamesOneOfTwoThatIsInNoCollective) {
  report(0, 5, "all_gather loss.actions", 101);
  report(1, 5, "train", 102);
  watch_.ended(2);
  EXPECT_EQ(watch_.behind(), 1) << "rank 0 waits for it";
}

TEST_F(RunWatchTest, NamesTheRankInAnotherCollectiveThanTheOthers) {
  report(0, 5, "all_reduce bucket 0", 101);
  report(2, 5, "all_reduce bucket 0", 102);
  report(1, 5, "all_gather loss.actions", 103);
  EXPECT_EQ(watch_.behind(), 1);
}

TEST_F(RunWatchTest, NamesTheRankThatReportedLongestAgo) {
  report(0, 5, "train", 103);
  report(1, 5, "train", 101);
  report(2, 5, "train", 102);
  EXPECT_EQ(watch_.behind(), 1);
}

TEST_F(RunWatchTest, DoesNotAccuseRanksThatWaitForOneThatWorks) {
  report(0, 5, "evaluate", 101);
  report(1, 5, "barrier", 101);
  report(2, 5, "barrier", 101);
  report(0, 5, "evaluate", 190);
  EXPECT_EQ(watch_.standstill_s(191), 1) << "rank 0 has just reported, at the step that all stand at";
}

TEST_F(RunWatchTest, IsNotFooledByRanksAheadOfTheSilentOne) {
  report(1, 4, "train", 101);
  report(0, 5, "all_reduce", 130);
  report(2, 5, "all_reduce", 150);
  EXPECT_EQ(watch_.behind(), 1);
  EXPECT_EQ(watch_.standstill_s(151), 50);
}

TEST_F(RunWatchTest, ForgetsRanksThatHaveEnded) {
  report(1, 1, "train", 101);
  report(0, 5, "train", 120);
  report(2, 5, "train", 121);
  watch_.ended(1);
  EXPECT_EQ(watch_.behind(), 0);
  EXPECT_TRUE(watch_.alive(0));
  watch_.ended(0);
  watch_.ended(2);
  EXPECT_EQ(watch_.behind(), -1);
}

}  // namespace
}  // namespace lockstep
