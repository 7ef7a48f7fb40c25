// Tasks on ranks: each once, at least so many a rank, near the best time.

#include "harness/lib/data/sharding/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "harness/base/errors.h"

namespace lockstep::sharding {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

std::vector<Task> tasks(const std::vector<double>& costs, int64_t episodes = 4) {
  std::vector<Task> all;
  for (const double cost : costs) all.push_back({"t" + std::to_string(all.size()), cost, episodes});
  return all;
}

/// What is wrong with an assignment: each task must be given out whole and once, to ranks that all have their least.
std::string wrong_with(const std::vector<Task>& all, const AssignOptions& options, const Assignment& assigned) {
  std::map<int, std::multiset<std::pair<int64_t, int64_t>>> parts;
  for (const std::vector<Share>& shares : assigned) {
    if (shares.size() < static_cast<std::size_t>(options.least)) return "a rank lacks shares";
    for (const Share& share : shares) parts[share.task].insert({share.parts, share.part});
  }
  for (int task = 0; task < static_cast<int>(all.size()); ++task) {
    int64_t next = 0;
    for (const auto& [of, part] : parts[task]) {
      if (part != next++ || of != static_cast<int64_t>(parts[task].size()))
        return all[static_cast<std::size_t>(task)].name + " is not given out part by part";
    }
    if (next == 0) return all[static_cast<std::size_t>(task)].name + " is lost";
  }
  return "";
}

TEST(AssignTasks, PutsTheDearestFirst) {
  // The example of Graham (1969) for two ranks: 7 where 6 is possible, and 4/3 - 1/6 is met.
  const std::vector<Task> all = tasks({3, 3, 2, 2, 2});
  const Assignment assigned = assign_tasks(all, {.ranks = 2});  // Good enough not to be cut.
  EXPECT_EQ(finish_s(all, assigned), 7);
  EXPECT_EQ(wrong_with(all, {.ranks = 2}, assigned), "");
}

TEST(AssignTasks, CutsTasksWhereThereAreFewerThanRanks) {
  const std::vector<Task> all = tasks({6, 1});
  const Assignment assigned = assign_tasks(all, {.ranks = 4});
  EXPECT_THAT(assigned, testing::Each(SizeIs(1)));
  EXPECT_EQ(assigned[0][0], (Share{0, 0, 3}));
  EXPECT_EQ(wrong_with(all, {.ranks = 4}, assigned), "");
}

TEST(AssignTasks, GivesEveryRankItsLeast) {
  const std::vector<Task> all = tasks({9, 9, 1, 1, 1, 1});
  const Assignment assigned = assign_tasks(all, {.ranks = 3, .least = 2});
  EXPECT_EQ(wrong_with(all, {.ranks = 3, .least = 2}, assigned), "");
}

TEST(AssignTasks, CutsTasksThatAreTooDearToBeBalanced) {
  const std::vector<Task> all = tasks({20, 1, 1});
  const AssignOptions three{.ranks = 3};
  const Assignment assigned = assign_tasks(all, three);
  EXPECT_LE(finish_s(all, assigned), 4.0 / 3 * fluid_s(all, three));
  // Without episodes it stays whole.
  EXPECT_EQ(finish_s(tasks({20, 1, 1}, 1), assign_tasks(tasks({20, 1, 1}, 1), three)), 20);
}

TEST(AssignTasks, RefusesWhatCannotBePartitioned) {
  EXPECT_THROW(assign_tasks({}, {.ranks = 2}), ConfigError);
  EXPECT_THROW(assign_tasks(tasks({0}), {.ranks = 1}), ConfigError);
  try {
    assign_tasks(tasks({1, 1}, 2), {.ranks = 5});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 tasks of 4 episodes in all give 5 ranks no 1 share each"));
  }
}

/// The rule as it is written: a look at every rank for each share.
Assignment partitioned_by_looking_at_all(const std::vector<Task>& all, const AssignOptions& options) {
  std::vector<Share> shares;
  for (int task = 0; task < static_cast<int>(all.size()); ++task) shares.push_back({task, 0, 1});
  const auto cost_of = [](auto& of, const Share& share) { return of[static_cast<std::size_t>(share.task)].cost_s; };
  std::ranges::stable_sort(shares,
                           [&](const Share& a, const Share& b) { return cost_of(all, a) > cost_of(all, b); });
  Assignment assigned(static_cast<std::size_t>(options.ranks));
  std::vector<double> cost(assigned.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    int64_t lacking = 0;
    for (const auto& own : assigned) lacking += own.empty() ? 1 : 0;
    const bool must_fill = static_cast<int64_t>(shares.size() - i) <= lacking;
    std::size_t to = assigned.size();
    const auto end_s = [&](std::size_t rank) {
      return cost[rank] + cost_of(all, shares[i]);
    };
    for (std::size_t rank = 0; rank < assigned.size(); ++rank) {
      if (must_fill && !assigned[rank].empty()) continue;
      if (to == assigned.size() || end_s(rank) < end_s(to)) to = rank;
    }
    assigned[to].push_back(shares[i]);
    cost[to] += cost_of(all, shares[i]);
  }
  return assigned;
}

TEST(AssignTasks, GivesAShareToTheFirstOfTheRanksThatWouldEndItFirst) {
  std::mt19937 draws(5);
  for (int trial = 0; trial < 400; ++trial) {
    const AssignOptions options{.ranks = 1 + static_cast<int>(draws() % 33)};
    // Costs of tenths add up to loads that differ in their last bits alone.
    std::vector<double> costs(static_cast<std::size_t>(options.ranks) + draws() % 90);
    for (double& cost : costs) cost = 0.1 * static_cast<double>(1 + draws() % 9);
    const std::vector<Task> all = tasks(costs, 1);
    EXPECT_EQ(assign_tasks(all, options), partitioned_by_looking_at_all(all, options)) << "trial " << trial;
  }
}

TEST(AssignTasks, KeepsItsRulesOnManyRanks) {
  const std::vector<Task> few = tasks({5.5, 3.2, 2.9, 1.1, 0.8}, 1000);
  const AssignOptions many{.ranks = 4096};
  // 1,000 episodes of the dearest one are too few for an equal share.
  const Assignment cut = assign_tasks(few, many);
  EXPECT_EQ(wrong_with(few, many, cut), "");
  EXPECT_EQ(finish_s(few, cut), 5.5 / 1000);
  std::vector<double> costs(12'000);
  for (std::size_t i = 0; i < costs.size(); ++i) costs[i] = 1 + static_cast<double>(i % 17);
  EXPECT_EQ(wrong_with(tasks(costs, 8), many, assign_tasks(tasks(costs, 8), many)), "");
}

}  // namespace
}  // namespace lockstep::sharding
