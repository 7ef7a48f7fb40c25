#include "harness/run/job_queue.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "tests/support/drawn_jobs.h"

namespace lockstep {
namespace {

using support::drawn_jobs;
using support::run_through;
using support::shapes_of;
using testing::ElementsAre;

constexpr int kDraws = 100;
const auto as_estimated = [](const Job& job) { return job.estimate_s; };

class Makespan : public testing::TestWithParam<int> {};

TEST_P(Makespan, IsWithinThreeInAHundredOfTheLowerBound) {
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const std::vector<Job> jobs = drawn_jobs(200, seed);
    const double ratio = run_through(JobQueue(jobs, GetParam()), as_estimated) /
                         makespan_bound(shapes_of(jobs, GetParam()), GetParam());
    EXPECT_LE(ratio, 1.03) << "seed " << seed;
    EXPECT_GE(ratio, 1 - 1e-9) << "seed " << seed << ": the bound is none";
  }
}

TEST_P(Makespan, IsSoOnAverageWhereJobsReadOthers) {
  double sum = 0;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const std::vector<Job> jobs = drawn_jobs(200, seed, 3);
    const double ratio = run_through(JobQueue(jobs, GetParam()), as_estimated) /
                         makespan_bound(shapes_of(jobs, GetParam()), GetParam());
    // The bound knows chains and widths, and not what they cost together.
    EXPECT_LE(ratio, 1.06) << "seed " << seed;
    sum += ratio;
  }
  EXPECT_LE(sum / kDraws, 1.015);
}

// Estimates are never right: with each off by up to a quarter the order must not fall apart.
TEST_P(Makespan, SuffersLittleFromWrongEstimates) {
  double worst = 0, sum = 0;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const std::vector<Job> jobs = drawn_jobs(200, seed);
    std::vector<Job> taken = jobs;
    std::mt19937_64 engine(seed);
    for (Job& job : taken) job.estimate_s *= 0.75 + 0.5 * static_cast<double>(engine() >> 11) * 0x1p-53;
    const auto as_taken = [&](const Job& job) {
      return taken[static_cast<std::size_t>(std::stoul(job.id.substr(4)))].estimate_s;
    };
    const double ratio = run_through(JobQueue(jobs, GetParam()), as_taken) /
                         makespan_bound(shapes_of(taken, GetParam()), GetParam());
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  EXPECT_LE(sum / kDraws, 1.03);
  EXPECT_LE(worst, 1.1);
}

INSTANTIATE_TEST_SUITE_P(Slots, Makespan, testing::Values(2, 8, 16));

TEST(MakespanBound, IsReachedByNoOrderOfFewJobsFromBelow) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const std::vector<JobShape> jobs = shapes_of(drawn_jobs(6, seed, 4), 8);
    std::vector<std::size_t> order(jobs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    double best = simulated_makespan(jobs, 8, order);
    while (std::next_permutation(order.begin(), order.end())) {
      best = std::min(best, simulated_makespan(jobs, 8, order));
    }
    EXPECT_LE(makespan_bound(jobs, 8), best * (1 + 1e-12)) << "seed " << seed;
    EXPECT_LE(simulated_makespan(jobs, 8, job_order(jobs, 8)), best * 1.01) << "seed " << seed;
  }
}

TEST(MakespanBound, KnowsThatWideJobsDoNotFitBesideEachOther) {
  // Five of eight slots each: 10/8 by their area, and yet one after the other.
  EXPECT_DOUBLE_EQ(makespan_bound(std::vector<JobShape>{{1, 5, 0, {}}, {1, 5, 0, {}}}, 8), 2);
  EXPECT_DOUBLE_EQ(makespan_bound(std::vector<JobShape>{{3, 1, 0, {1}}, {4, 1, 1, {}}}, 8), 7);
}

TEST(JobOrder, IsTheSameForTheSameJobs) {
  const std::vector<JobShape> jobs = shapes_of(drawn_jobs(200, 7), 16);
  EXPECT_EQ(job_order(jobs, 16), job_order(jobs, 16));
}

TEST(JobOrder, TakesTheWidestFirstWhereThatEndsEarlier) {
  // Narrow ones first would leave the wide one alone at the end.
  const std::vector<JobShape> jobs = {{2, 1, 0, {}}, {2, 1, 0, {}}, {2, 1, 0, {}},
                                      {2, 1, 0, {}}, {1, 3, 0, {}}, {1, 3, 0, {}}};
  EXPECT_DOUBLE_EQ(simulated_makespan(jobs, 4, job_order(jobs, 4)), 4);
}

TEST(JobOrder, KnowsWhatWaits) {
  EXPECT_THAT(seconds_to_the_end(std::vector<JobShape>{{1, 1, 0, {1, 2}}, {2, 1, 1, {2}}, {3, 1, 2, {}}}),
              ElementsAre(6, 5, 3));
  EXPECT_TRUE(job_order({}, 4).empty());
}

}  // namespace
}  // namespace lockstep
