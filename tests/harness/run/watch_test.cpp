#include "harness/run/watch.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

/// Three ranks under a clock that the test turns.
class RunWatchTest : public testing::Test {
 protected:
  void report(int rank, int64_t step, const char* operation, double at) {
    heartbeat_.report(rank, step, operation);
    watch_.look(heartbeat_, at);
  }
  /// The rank enters the next collective of its data, and waits in it.
  void enter(int rank, int64_t step, const char* operation, double at) {
    heartbeat_.enter(rank, HeartbeatGroup::data);
    report(rank, step, operation, at);
  }
  const Thresholds limits_{10, 1, 5, 3, 2};
  const TempFolder folder_;
  HeartbeatFile heartbeat_ = HeartbeatFile::create(folder_ / "beat", 3);
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

TEST_F(RunWatchTest, HoldsARankToTheThresholdOfWhatItDoes) {
  enter(0, 5, "barrier saved", 101);
  enter(1, 5, "barrier saved", 101);
  report(2, 5, "evaluate", 101);
  EXPECT_FALSE(watch_.standstill(limits_, 105.9)) << "an evaluation may take 5 s";
  const auto found = watch_.standstill(limits_, 106.1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->phase, WatchPhase::evaluation);
  EXPECT_EQ(found->waiting, (std::vector<int>{0, 1}));
  EXPECT_EQ(found->awaited, "barrier saved");
  EXPECT_EQ(found->sequence, 1U);
}

TEST_F(RunWatchTest, IsSilentOnAStragglerWithinItsThreshold) {
  for (int step = 0; step < 1000; ++step) {
    const double at = 101 + step;
    report(0, step, "forward", at);
    enter(1, step, "all_reduce w", at);
    enter(2, step, "all_reduce w", at);
    EXPECT_FALSE(watch_.standstill(limits_, at + 0.5));
    enter(0, step, "all_reduce w", at + 0.5);
    EXPECT_FALSE(watch_.standstill(limits_, at + 0.9));
  }
}

TEST_F(RunWatchTest, NamesTheRankThatHasNotEnteredThoughItIsAStepAhead) {
  enter(0, 5, "all_reduce w", 101);
  enter(2, 5, "all_reduce w", 102);
  report(1, 6, "forward", 103);
  EXPECT_EQ(watch_.behind(), 1);
}

TEST_F(RunWatchTest, NamesOneOfRanksThatAllWaitInDifferentCollectives) {
  enter(0, 5, "all_reduce w", 101);
  enter(2, 5, "all_reduce w", 101);
  heartbeat_.enter(1, HeartbeatGroup::gradients);
  report(1, 5, "reduce_gradients", 101);
  EXPECT_FALSE(watch_.standstill(limits_, 101.9));
  const auto found = watch_.standstill(limits_, 102.1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->waiting, (std::vector<int>{0, 2}));
}

TEST_F(RunWatchTest, LetsASaveGoOnWhileAnyRankReportsProgress) {
  report(0, 5, "save", 101);
  enter(1, 5, "barrier saved", 101);
  report(2, 5, "save", 101);
  report(0, 5, "save", 103);
  EXPECT_FALSE(watch_.standstill(limits_, 105.9));
  EXPECT_TRUE(watch_.standstill(limits_, 106.1));
}

TEST_F(RunWatchTest, NamesAStoppedProcessWhereAllWaitAlike) {
  for (const int rank : {0, 1, 2}) enter(rank, 5, "all_reduce w", 101);
  EXPECT_EQ(watch_.standstill(limits_, 103, [](int rank) { return rank == 2; })->rank, 2);
}

TEST_F(RunWatchTest, NamesAStoppedProcessAmongRanksThatAreEquallyFarBehind) {
  for (const int rank : {0, 1, 2}) enter(rank, 5, "all_gather rows", 101);
  enter(1, 5, "broadcast target", 102);  // it had what it needed from the stopped one
  const auto found = watch_.standstill(limits_, 104, [](int rank) { return rank == 2; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2) << "rank 0 has reported no less, and waits for it";
}

TEST_F(RunWatchTest, ForgivesTimeInWhichNobodyLooked) {
  for (const int rank : {0, 1, 2}) report(rank, 5, "forward", 101);
  watch_.forgive(10);
  EXPECT_FALSE(watch_.standstill(limits_, 111.5));
  EXPECT_TRUE(watch_.standstill(limits_, 112.5));
}

}  // namespace
}  // namespace lockstep
