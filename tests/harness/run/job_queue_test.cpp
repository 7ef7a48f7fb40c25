#include "harness/run/job_queue.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

/// Ids in the order in which they start when each finishes before the next is asked for.
std::vector<std::string> order_alone(JobQueue queue) {
  std::vector<std::string> order;
  while (const auto job = queue.next()) {
    order.push_back(queue.job(*job).id);
    queue.finished(*job);
  }
  EXPECT_TRUE(queue.done());
  return order;
}

TEST(JobQueue, StartsTheLongestFirst) {
  EXPECT_THAT(order_alone(JobQueue({{"short", {}, 1, 1}, {"long", {}, 9, 1}, {"middle", {}, 5, 1}}, 1)),
              ElementsAre("long", "middle", "short"));
}

TEST(JobQueue, CountsWhatWaitsForAJobAsItsLength) {
  EXPECT_THAT(
      order_alone(JobQueue({{"alone", {}, 5, 1}, {"needed", {}, 1, 1}, {"last", {"needed"}, 6, 1}}, 1)),
      ElementsAre("needed", "last", "alone"));
}

TEST(JobQueue, StartsNothingBeforeItsNeeds) {
  JobQueue queue({{"a", {}, 1, 1}, {"b", {"a"}, 9, 1}}, 2);
  const auto a = queue.next();
  ASSERT_TRUE(a);
  EXPECT_EQ(queue.job(*a).id, "a");
  EXPECT_FALSE(queue.next()) << "b needs a, though a slot is free";
  queue.finished(*a);
  const auto b = queue.next();
  ASSERT_TRUE(b);
  EXPECT_EQ(queue.job(*b).id, "b");
  EXPECT_FALSE(queue.done());
  queue.finished(*b);
  EXPECT_TRUE(queue.done());
}

TEST(JobQueue, TakesNeedsThatAreNoJobsAsDone) {
  EXPECT_THAT(order_alone(JobQueue({{"b", {"reused"}, 1, 1}}, 1)), ElementsAre("b"));
}

TEST(JobQueue, FillsGapsWithShorterJobs) {
  JobQueue queue({{"one", {}, 9, 1}, {"wide", {}, 8, 3}, {"small", {}, 1, 1}}, 3);
  const auto one = queue.next(), small = queue.next();
  ASSERT_TRUE(one && small);
  EXPECT_EQ(queue.job(*one).id, "one");
  EXPECT_EQ(queue.job(*small).id, "small");
  EXPECT_FALSE(queue.next());
  queue.finished(*one);
  EXPECT_FALSE(queue.next()) << "two slots are free, wide takes three";
  queue.finished(*small);
  EXPECT_TRUE(queue.next());
}

TEST(JobQueue, GivesAllSlotsToAJobThatWantsMore) {
  JobQueue queue({{"wide", {}, 9, 8}, {"small", {}, 1, 1}}, 2);
  const auto wide = queue.next();
  ASSERT_TRUE(wide);
  EXPECT_EQ(queue.slots_of(*wide), 2);
  EXPECT_FALSE(queue.next());
}

TEST(JobQueue, RunsAnExclusiveJobAlone) {
  JobQueue queue({{"alone", {}, 5, 1, true}, {"long", {}, 9, 1}, {"short", {}, 1, 1}}, 4);
  std::vector<std::size_t> going;
  while (!queue.done()) {
    while (const auto job = queue.next()) going.push_back(*job);
    for (const std::size_t job : going) {
      if (queue.job(job).exclusive) {
        EXPECT_EQ(queue.running(), 1);
      }
    }
    EXPECT_FALSE(going.empty());
    queue.finished(going.back());
    going.pop_back();
  }
}

TEST(JobQueue, GivesUpWhatNeededAFailedJobAndNothingElse) {
  JobQueue queue({{"a", {}, 9, 1}, {"b", {"a"}, 1, 1}, {"c", {"b"}, 1, 1}, {"d", {}, 1, 1}}, 1);
  const auto a = queue.next();
  std::vector<std::string> given_up;
  for (const std::size_t job : queue.failed(*a)) given_up.push_back(queue.job(job).id);
  EXPECT_THAT(given_up, UnorderedElementsAre("b", "c"));
  const auto d = queue.next();
  ASSERT_TRUE(d);
  EXPECT_EQ(queue.job(*d).id, "d");
  queue.finished(*d);
  EXPECT_TRUE(queue.done());
}

TEST(JobQueue, StartsNothingOnceStopped) {
  JobQueue queue({{"a", {}, 1, 1}, {"b", {}, 1, 1}}, 1);
  const auto a = queue.next();
  queue.stop();
  EXPECT_FALSE(queue.done()) << "a still runs";
  queue.finished(*a);
  EXPECT_FALSE(queue.next());
  EXPECT_TRUE(queue.done());
}

TEST(JobQueue, IsDoneWithNothingToDo) { EXPECT_TRUE(JobQueue({}, 4).done()); }

TEST(JobQueueDeathTest, RefusesCircles) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(JobQueue({{"a", {"b"}, 1, 1}, {"b", {"a"}, 1, 1}}, 1), "circle");
}

}  // namespace
}  // namespace lockstep
